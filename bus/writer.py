"""The one writer of the trainer's streams, fenced by an epoch.

Every publish names the last sequence that its stream must have; many are sent ahead, each naming the one
before it. When the server holds another sequence, the tail of the stream is read: what is there already
was stored after all and its ack lost, a WriterStarted of a higher epoch means that this process has been
replaced, and anything else is stepped over. So a process that was believed dead cannot write one more event.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Self

import structlog

from bus import fold
from bus.envelope import MESSAGE_ID, Message, Sealed, kind_of, seal, unseal
from bus.errors import BusError, Fenced, NotTrusted, WireError
from bus.identity import Trust
from bus.publish import EXPECTED_LAST, WINDOW, WrongLast
from bus.streams import SUBJECTS, WRITER_STREAMS, name_of
from schemas import Event, WriterStarted

if TYPE_CHECKING:
    from bus.client import Bus

log = structlog.get_logger()


class Writer:
    """Publishes to RUN, TASKS, BATCHES, STEPS and POLICIES as their only writer; `Writer.open(bus)`."""

    def __init__(self, bus: Bus, epoch: int, trust: Trust, ends: dict[str, int]) -> None:
        self.bus = bus
        self.epoch = epoch
        self.trust = trust
        self.fenced: Fenced | None = None
        self._lanes = {stream: _Lane(self, stream, end) for stream, end in ends.items()}

    @classmethod
    async def open(cls, bus: Bus) -> Self:
        """Take over the streams with an epoch above all earlier ones.

        Raises NotTrusted when the run belongs to another key, Fenced when another process opens at the
        same moment, NoStream before `create_streams`.
        """
        trust = await bus.claim()
        # The ends first: whatever is stored after them, another WriterStarted too, will be noticed.
        ends = {stream: await bus.end(stream) for stream in WRITER_STREAMS}
        started = [await bus.last(WriterStarted, writes=stream.lower()) for stream in WRITER_STREAMS]
        epoch = 1 + max(record.event.epoch if record else 0 for record in started)
        writer = cls(bus, epoch, trust, ends)
        for stream in WRITER_STREAMS:
            await writer.publish(WriterStarted.model_validate({"epoch": epoch, "writes": stream.lower()}))
        log.info("writing", run=bus.run, epoch=epoch)
        return writer

    async def watch(self) -> None:
        """Wait, beside the work, until another process takes over: one that has nothing to write notices it too.

        Raises Fenced then, and BusError.
        """
        async for record in self.bus.records(WriterStarted, writes="run"):
            if record.event.epoch > self.epoch:
                raise self.replaced(record.event.epoch)

    def replaced(self, epoch: int) -> Fenced:
        return Fenced(
            f"another trainer of run {self.bus.run} has started (epoch {epoch}, this one has {self.epoch}); "
            "this process stops writing"
        )

    async def publish(self, event: Event) -> int:
        """Store the event after all that were published before it on its stream; returns its sequence.

        Many may be under way at once; their order is kept. A publish that is cancelled may still be
        stored. Raises Fenced, StreamFull, BusError.
        """
        if self.fenced is not None:
            raise self.fenced
        kind = type(event)
        if not self.trust.allows(kind, self.bus.public_key):
            raise NotTrusted(f"the key of this trainer may not publish {kind.__name__}")
        lane = self._lanes.get(event.destination())
        if lane is None:
            raise BusError(
                f"{kind.__name__} goes to {event.destination()}, which has no single writer; bus.publish it"
            )
        sealed = seal(event, self.bus.run, self.bus.identity)
        # The expected sequence does all that a message id would, which would also hide an event that an
        # earlier life of this process has stored: a duplicate takes no place after the last sequence.
        headers = {name: value for name, value in sealed.headers.items() if name != MESSAGE_ID}
        return await lane.publish(replace(sealed, headers=headers))


@dataclass(slots=True, eq=False)
class _Entry:
    sealed: Sealed
    stored: asyncio.Future[int]


class _Lane:
    """One stream: events wait in order; whoever holds the lock sends all that wait."""

    def __init__(self, writer: Writer, stream: str, last: int) -> None:
        self._writer = writer
        self._bus = writer.bus
        self._stream = stream
        self._last = last
        self._queue: deque[_Entry] = deque()
        self._lock = asyncio.Lock()

    async def publish(self, sealed: Sealed) -> int:
        entry = _Entry(sealed, asyncio.get_running_loop().create_future())
        self._queue.append(entry)
        try:
            async with self._lock:
                while not entry.stored.done():
                    await self._send_waiting()
        except asyncio.CancelledError:
            entry.stored.cancel()  # it keeps its place: what was sent after it names it
            raise
        return entry.stored.result()

    async def _send_waiting(self) -> None:
        batch = list(islice(self._queue, WINDOW))
        results = await asyncio.gather(
            *(
                self._bus.publisher.send(entry.sealed, {EXPECTED_LAST: str(self._last + at)})
                for at, entry in enumerate(batch)
            ),
            return_exceptions=True,
        )
        for result in results:
            if result != (self._last + 1, False):
                break
            self._store(self._queue[0], self._last + 1)
        else:
            return
        try:
            await self._read_tail()
        except Fenced as fenced:
            self._writer.fenced = fenced
            self._fail(fenced)
        for error in results:
            if isinstance(error, BaseException) and not isinstance(error, WrongLast):
                self._fail(error)

    async def _read_tail(self) -> None:
        """Everything that the stream holds after the last sequence we know."""
        name = name_of(self._bus.run, self._stream)
        subjects = [f"{self._bus.run}.{pattern}" for pattern in SUBJECTS[self._stream]]
        end = await fold.last_sequence(self._bus.connection, name)
        self._last = min(self._last, end)  # less only when the server lost the newest messages with its power
        async for message in fold.messages(self._bus.connection, name, subjects, self._last, live=False):
            if message.sequence > self._last:
                self._meet(message)
                self._last = message.sequence
        self._last = max(self._last, end)

    def _meet(self, message: Message) -> None:
        for entry in self._queue:
            if entry.sealed.is_in(message):
                self._store(entry, message.sequence)
                return
        try:
            if kind_of(message)[0] is WriterStarted:
                started = unseal(message, self._bus.run, self._writer.trust).event
                assert isinstance(started, WriterStarted)
                if started.epoch >= self._writer.epoch:
                    raise self._writer.replaced(started.epoch)
        except WireError as error:
            log.warning(
                "a foreign message", subject=message.subject, sequence=message.sequence, reason=str(error)
            )

    def _store(self, entry: _Entry, sequence: int) -> None:
        self._queue.remove(entry)
        self._last = sequence
        if not entry.stored.done():
            entry.stored.set_result(sequence)

    def _fail(self, error: BaseException) -> None:
        while self._queue:
            entry = self._queue.popleft()
            if not entry.stored.done():
                entry.stored.set_exception(error)
