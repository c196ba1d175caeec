"""The bus as everyone uses it: publish events, read them by sequence, look one up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Self, TypeVar, cast

import structlog

from bus import fold, store, streams
from bus.connection import TRANSIENT, Connection
from bus.envelope import KEY, Message, Record, kind_of, seal, unseal
from bus.errors import BusError, NoStream, NotTrusted, WireError
from bus.identity import Identity, Trust, key_file
from bus.publish import Publisher
from bus.retry import delays
from schemas import DeadLetter, Event, RunCreated, WriterStarted
from schemas.config import BusSection

log = structlog.get_logger()

PATIENCE_SECONDS = 5.0

E = TypeVar("E", bound=Event)


class Bus:
    """One node's connection to one run; made by `Bus.connect`."""

    def __init__(
        self, connection: Connection, run: str, identity: Identity | None, name: str, anchor: tuple[str, ...]
    ):
        self.connection = connection
        self.run = run
        self.publisher = Publisher(connection, run)
        self._identity = identity
        self._name = name
        self._anchor = anchor
        self._trust: Trust | None = None
        self._claimed = False

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        url: str,
        run: str,
        identity: Identity | None = None,
        name: str = "",
        anchor: tuple[str, ...] = (),
        patience: float = PATIENCE_SECONDS,
    ) -> AsyncIterator[Self]:
        """Connect to a server for the length of an `async with`; the run need not exist yet.

        identity: signs what is published; without one the operator's key of this user is taken at the first
        publish. anchor: public keys of which one must have created the run; without it the run's first
        RunCreated is believed. patience: seconds to wait for a server. Raises BusError.
        """
        connection = Connection(url, name or "cairn", identity.public_key if identity else "")
        await connection.open(patience)
        try:
            yield cls(connection, run, identity, name, anchor)
        finally:
            await connection.close()

    @property
    def identity(self) -> Identity:
        if self._identity is None:
            self._identity = Identity.load_or_create(key_file("operator"))
        return self._identity

    @property
    def public_key(self) -> str:
        """This node's name in subjects."""
        return self.identity.public_key

    async def create_streams(self, limits: BusSection) -> None:
        """Make the run's streams, or bring their limits up to date; running it again changes nothing."""
        await streams.create(self.connection, self.run, limits)

    async def publish(self, event: Event, once: bool = False) -> int:
        """Store the event and return its sequence; waits through reconnects. At most 64 are under way at once.

        once: the subject is written once. The same bytes there already count as published; raises
        AlreadyPublished when another valid event is there. Raises NotTrusted, StreamFull, BusError.
        """
        kind = type(event)
        await self.require(kind)
        sealed = seal(event, self.run, self.identity)
        if not once:
            return await self.publisher.publish(sealed)
        stream = streams.name_of(self.run, sealed.stream)

        async def existing() -> tuple[Record[Event] | None, int]:
            last = await store.last_on(self.connection, stream, sealed.subject)
            async with aclosing(
                self._on_subjects(stream, {sealed.subject}, (kind,), 0, live=False)
            ) as records:
                return await anext(records, None), last.sequence if last else 0

        return await self.publisher.publish_once(sealed, existing)

    async def require(self, kind: type[Event]) -> None:
        """Raise NotTrusted unless this node's key may publish such events: at the start, not at the first result."""
        trust = await (self.claim() if kind is RunCreated else self.trust())
        if not trust.allows(kind, self.public_key):
            roles = sorted(kind.publishers)
            raise NotTrusted(
                f"the key {self.public_key} is not trusted as {' or '.join(roles)} in run {self.run!r} and may not publish "
                f"{kind.__name__}; use a key that is, or start a run with this one under trust.{' or trust.'.join(roles)}"
            )

    async def report_dead(
        self, source: str, sequence: int, subject: str, consumer: str, reason: str, deliveries: int
    ) -> int:
        """Publish a DeadLetter for a message that its consumer gives up on."""
        return await self.publish(
            DeadLetter(
                source=source,
                sequence=sequence,
                original_subject=subject[:4096],
                consumer=consumer,
                reason=reason[:4096],
                deliveries=deliveries,
            )
        )

    async def records(
        self, *kinds: type[E], after: int = 0, live: bool = True, **tokens: Any
    ) -> AsyncGenerator[Record[E], None]:
        """Records of these events (of one stream) in order, after a sequence; endless unless live=False.

        tokens: only subjects with these fields, e.g. worker="U...". live=False ends at the stream's end as
        it is at the start. Messages that cannot be believed are skipped, the same ones for every reader.
        Raises NoStream, BusError.
        """
        stream = streams.name_of(self.run, _stream_of(kinds, tokens))
        subjects = {f"{self.run}.{kind.pattern(**tokens)}" for kind in kinds}
        async with aclosing(self._on_subjects(stream, subjects, kinds, after, live)) as records:
            async for record in records:
                yield cast(Record[E], record)

    async def read(
        self, *kinds: type[E], after: int = 0, **tokens: Any
    ) -> AsyncGenerator[tuple[int, E], None]:
        """(sequence, event) of these events in order, after a sequence, without end; see `records`."""
        async with aclosing(self.records(*kinds, after=after, live=True, **tokens)) as records:
            async for record in records:
                yield record.sequence, record.event

    async def get(self, kind: type[E], sequence: int, **tokens: Any) -> Record[E] | None:
        """The record at a sequence; None when there is none, or it is no believable event of this kind."""
        stream = streams.name_of(self.run, _stream_of((kind,), tokens))
        message = await store.by_sequence(self.connection, stream, sequence)
        record = message and self._believe(message, (kind,), await self.trust())
        return cast("Record[E] | None", record)

    async def last(self, *kinds: type[E], **tokens: Any) -> Record[E] | None:
        """The last believable record of these kinds on one subject (or several, for tokens not given), or None.

        The kinds share their subjects, as TaskGranted and TaskClosed do.
        """
        stream = streams.name_of(self.run, _stream_of(kinds, tokens))
        trust = await self.trust()
        message = await store.last_on(self.connection, stream, f"{self.run}.{kinds[0].pattern(**tokens)}")
        if message is None:
            return None
        found = cast("Record[E] | None", self._believe(message, kinds, trust))
        if found is None:  # something else lies on top
            async with aclosing(self.records(*kinds, after=0, live=False, **tokens)) as records:
                async for record in records:
                    found = record
        return found

    async def end(self, stream: str) -> int:
        """The last sequence in a stream (`ROLLOUTS`), 0 while it is empty. Raises NoStream."""
        return await fold.last_sequence(self.connection, streams.name_of(self.run, stream))

    async def wait_for_run(self, timeout: float | None = None) -> Record[RunCreated]:
        """The run's first event, waiting for it at most `timeout` seconds.

        Raises NoStream, whose text and `runs` list the runs that the server does have.
        """
        deadline = time.monotonic() + timeout if timeout is not None else float("inf")
        for delay in delays(0.02, 0.5):
            record = await self._find_run()
            if record is not None:
                self._trust = Trust.of(record.event, record.signer)
                return record
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(delay)
        runs = [run for run in await streams.runs(self.connection) if run != self.run]
        there = f"runs there: {', '.join(runs)}" if runs else "it has none; start one with cairn train"
        raise NoStream(f"no run {self.run!r} on {self.connection.address}; {there}", runs)

    async def trust(self) -> Trust:
        """Who may say what, as the run's first event says; waits for it a few seconds. Raises NoStream."""
        if self._trust is None:
            record = await self._find_run()
            if record is None and self._claimed:
                return Trust(trainer=(self.public_key,))
            created = record or await self.wait_for_run(PATIENCE_SECONDS)
            self._trust = Trust.of(created.event, created.signer)
        return self._trust

    async def claim(self) -> Trust:
        """The trainer's way in: the run is ours, or does not exist yet. Raises NotTrusted when it is another's."""
        self._claimed = True
        trust = await self.trust()
        if not trust.allows(RunCreated, self.public_key):
            raise NotTrusted(
                f"run {self.run!r} was created by another trainer ({', '.join(trust.roles['trainer'])}); "
                "use its key, or another name for the run"
            )
        return trust

    async def _find_run(self) -> Record[RunCreated] | None:
        stream, subject = streams.name_of(self.run, RunCreated.stream), f"{self.run}.{RunCreated.pattern()}"
        try:
            async with aclosing(fold.messages(self.connection, stream, {subject}, 0, live=False)) as messages:
                async for message in messages:
                    believed = Trust(trainer=self._anchor or (message.headers.get(KEY, ""),))
                    record = self._believe(message, (RunCreated,), believed)
                    if record is not None and cast(RunCreated, record.event).run == self.run:
                        return cast(Record[RunCreated], record)
        except (NoStream, *TRANSIENT):
            pass
        return None

    async def _on_subjects(
        self, stream: str, subjects: set[str], kinds: tuple[type[Event], ...], after: int, live: bool
    ) -> AsyncGenerator[Record[Event], None]:
        trust = await self.trust()
        async with aclosing(fold.messages(self.connection, stream, subjects, after, live)) as messages:
            async for message in messages:
                if (record := self._believe(message, kinds, trust)) is not None:
                    yield record

    def _believe(
        self, message: Message, kinds: tuple[type[Event], ...], trust: Trust
    ) -> Record[Event] | None:
        try:
            return unseal(message, self.run, trust) if kind_of(message)[0] in kinds else None
        except WireError as error:
            log.warning(
                "skipped a message", subject=message.subject, sequence=message.sequence, reason=str(error)
            )
            return None


def _stream_of(kinds: tuple[type[Event], ...], tokens: Mapping[str, Any]) -> str:
    found = {str(tokens["writes"]).upper() if kind is WriterStarted else kind.stream for kind in kinds}
    if len(found) != 1:
        raise BusError(
            f"events of one stream are read together, these are of {', '.join(sorted(found)) or 'none'}"
        )
    return found.pop()
