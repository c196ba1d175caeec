"""From an event to an acknowledged place in its stream, once, whatever happens on the way.

A publish whose ack never came may have been stored: it is sent again under the same message id, and what
the server then calls a duplicate is read back and compared, because a message id can be occupied by
someone else's message. Publishes for a subject that is written once carry an expected sequence of 0.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import nats.errors
import structlog

from bus import store
from bus.connection import TRANSIENT, Connection
from bus.envelope import MESSAGE_ID, Record, Sealed
from bus.errors import AlreadyPublished, BusError, StreamFull
from bus.retry import delays
from bus.streams import name_of

log = structlog.get_logger()

WINDOW = 64
"""Publishes that may await their acks at once: the server answers more with errors, and memory is bounded."""
NO_STREAM_ATTEMPTS = 8
"""Unanswered publishes on a good connection before that is an error; some fifteen seconds."""

EXPECTED_STREAM = "Nats-Expected-Stream"
EXPECTED_LAST = "Nats-Expected-Last-Sequence"
EXPECTED_LAST_ON_SUBJECT = "Nats-Expected-Last-Subject-Sequence"

WRONG_LAST = (10071, 10164)
"""Wrong last sequence; the same, while another is in process (three replicas)."""
STORE_FAILED = 10077

Existing = Callable[[], Awaitable[tuple[Record[Any] | None, int]]]
"""-> the first valid record on a subject, and the last sequence on it (0: none)."""


class WrongLast(Exception):
    """The server holds another last sequence than the expected one."""


class Publisher:
    """Publishes of one bus, at most WINDOW at a time."""

    def __init__(self, connection: Connection, run: str) -> None:
        self._connection = connection
        self._run = run
        self._window = asyncio.Semaphore(WINDOW)

    async def publish(self, sealed: Sealed) -> int:
        """Store the event; returns its sequence. Raises BusError."""
        message_id = sealed.headers[MESSAGE_ID]
        while True:
            sequence, duplicate = await self.send(sealed, {MESSAGE_ID: message_id})
            if not duplicate:
                return sequence
            stored = await store.by_sequence(self._connection, self.stream(sealed), sequence)
            if stored is None or sealed.is_in(stored):  # None: stored, and purged since
                return sequence
            log.warning("another message holds this message id", subject=sealed.subject, sequence=sequence)
            message_id = f"{sealed.headers[MESSAGE_ID]}.{secrets.token_hex(8)}"

    async def publish_once(self, sealed: Sealed, existing: Existing) -> int:
        """Store the event unless a valid one is on its subject. Raises AlreadyPublished, BusError.

        A message there that nobody may believe is passed over: it must not block the true one.
        """
        expected, duplicate = 0, False
        while True:
            try:
                sequence, duplicate = await self.send(sealed, {EXPECTED_LAST_ON_SUBJECT: str(expected)})
                if not duplicate:
                    return sequence
            except WrongLast:
                pass
            record, expected = await existing()
            if record is not None:
                stored = await store.by_sequence(self._connection, self.stream(sealed), record.sequence)
                if sealed.is_in(stored):
                    return record.sequence
                raise AlreadyPublished(record)
            if duplicate:
                raise BusError(f"{sealed.subject} is stored, but no reader of run {self._run} believes it")

    async def send(self, sealed: Sealed, headers: dict[str, str]) -> tuple[int, bool]:
        """One publish, sent again until it is acked -> (sequence, whether the server calls it a duplicate).

        Raises WrongLast, StreamFull, BusError.
        """
        all_headers = {**sealed.headers, **headers, EXPECTED_STREAM: self.stream(sealed)}
        unanswered = 0
        async with self._window:
            for delay in delays():
                await self._connection.ready()
                try:
                    reply = await self._connection.request(sealed.subject, sealed.payload, all_headers)
                    return _parse(sealed, reply.data)
                except (TimeoutError, nats.errors.NoRespondersError):
                    unanswered += 1
                    self._check_unanswered(sealed, unanswered)
                except TRANSIENT:
                    unanswered = 0
                except nats.errors.Error as error:
                    raise BusError(f"cannot publish on {sealed.subject}: {error}") from None
                except _TryAgain as error:
                    log.warning("the server asks to publish later", subject=sealed.subject, reason=str(error))
                await asyncio.sleep(delay)
        raise AssertionError("unreachable")

    def stream(self, sealed: Sealed) -> str:
        return name_of(self._run, sealed.stream)

    def _check_unanswered(self, sealed: Sealed, unanswered: int) -> None:
        """A denied permission and a subject without a stream look alike: no answer."""
        if denied := self._connection.reason(sealed.subject):
            raise BusError(f"the server does not let this node publish on {sealed.subject}: {denied}")
        if unanswered >= NO_STREAM_ATTEMPTS:
            raise BusError(
                f"no stream takes {sealed.subject}: the run {self._run} has not been created on this server, "
                "or JetStream is off"
            )


class _TryAgain(Exception):
    """The server is busy or has no leader at the moment."""


def _parse(sealed: Sealed, data: bytes) -> tuple[int, bool]:
    ack = json.loads(data)
    error = ack.get("error")
    if error is None:
        return int(ack["seq"]), bool(ack.get("duplicate"))
    code, text = error.get("err_code", 0), error.get("description", "")
    if code in WRONG_LAST:
        raise WrongLast(text)
    if code == STORE_FAILED and "maximum" in text:
        raise StreamFull(
            f"stream {sealed.stream} is full ({text}) and refuses {sealed.subject}; "
            "raise bus.max_bytes and start the trainer again"
        )
    if error.get("code") in (429, 503):
        raise _TryAgain(text)
    raise BusError(f"the server refuses {sealed.subject}: {text}")
