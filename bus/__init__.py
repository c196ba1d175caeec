"""JetStream for the run: typed, signed events; streams folded by sequence; the runtime of every node. No torch."""

from bus.client import Bus
from bus.component import Component
from bus.envelope import Record
from bus.errors import AlreadyPublished, BusError, Fenced, NoStream, NotTrusted, StreamFull, WireError
from bus.identity import Identity, Trust, key_file, verify
from bus.standings import Standings
from bus.wire import digest
from bus.writer import Writer

__all__ = [
    "AlreadyPublished", "Bus", "BusError", "Component", "Fenced", "Identity", "NoStream", "NotTrusted", "Record",
    "Standings", "StreamFull", "Trust", "WireError", "Writer", "digest", "key_file", "verify",
]  # fmt: skip
