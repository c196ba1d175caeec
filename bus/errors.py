"""Everything that this room raises on purpose.

BusError            the bus cannot go on: one line that says what, why and what to do
  NoStream          the run, or this stream of it, does not exist on the server
  NotTrusted        this key may not say that in this run
  StreamFull        a stream refuses messages because it has reached its limit
  Fenced            another process took over the streams of this writer
WireError           a message that cannot be believed or decoded, and why
AlreadyPublished    someone else's event holds a subject that is written once
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from schemas.errors import CairnError

if TYPE_CHECKING:
    from bus.envelope import Record


class BusError(CairnError):
    """The bus cannot go on; the message is one line for people: what, why, what to do."""


class NoStream(BusError):
    """The server has no such stream; `runs` are those that it does have."""

    def __init__(self, text: str, runs: list[str] | None = None) -> None:
        super().__init__(text)
        self.runs = runs or []


class NotTrusted(BusError):
    """This key has not the role, or is not the owner, that the event needs; readers would skip it."""


class StreamFull(BusError):
    """The stream has reached its limit and refuses new messages; nothing was lost."""


class Fenced(BusError):
    """A newer writer has taken over; this process must end without writing anything more."""


class WireError(ValueError):
    """A message was refused; the text says which bound, check or field."""


class AlreadyPublished(Exception):
    """The subject already holds another event; `record` is what stands there."""

    def __init__(self, record: Record[Any]) -> None:
        super().__init__(
            f"{record.subject} already holds an event of {record.signer} (sequence {record.sequence})"
        )
        self.record = record
