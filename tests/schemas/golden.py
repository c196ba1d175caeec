"""The bytes of the examples, as files: `python -m tests.schemas.golden` adds those that are missing.

The file of a released version is never written again: whoever has to has changed the messages under others' feet.
"""

from __future__ import annotations

from pathlib import Path

import msgpack

from schemas import EVENTS, Event
from tests.schemas.examples import EXAMPLES

FOLDER = Path(__file__).parent / "golden"


def encode(event: Event) -> bytes:
    return msgpack.packb(event.model_dump())


def decode(name: str, data: bytes) -> Event:
    return EVENTS[name].from_wire(msgpack.unpackb(data))


def path(event: Event) -> Path:
    """Where the golden message of the event's present version lies."""
    major, minor = event.schema_version
    return FOLDER / f"{major}.{minor}" / f"{type(event).__name__}.msgpack"


if __name__ == "__main__":
    for example in EXAMPLES.values():
        file = path(example)
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(encode(example))
            print(f"written: {file}")
