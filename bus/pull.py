"""Messages of one consumer as they come: a pull request stays open at the server, nobody polls.

nats-py's `fetch` lingers for its whole timeout when fewer messages are there than were asked for, and is
never issued again after a reconnect. Here one request is outstanding at a time; the server answers it
with messages the moment they are stored, with heartbeats while there are none, and with a status at its
end. Whatever goes wrong ends in `Lost`, and the caller opens the next pull.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from typing import Any, Self

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.api import ConsumerConfig

from bus.connection import TRANSIENT, Connection
from bus.envelope import Message

EXPIRES_SECONDS = 30.0
HEARTBEAT_SECONDS = 5.0
MAX_BYTES = 8 << 20
"""Of one request; the server disconnects a client that has 64 MB unread."""

_NANO = 1_000_000_000
_ENDED = ("Batch Completed", "Message Size Exceeds MaxBytes")


class Lost(Exception):
    """The request is gone: connection, server or consumer. What was not taken comes again."""


class Pull:
    """An open pull on one consumer (an async context manager).

    batch: messages asked for at once, so the most that wait here for `take`.
    """

    def __init__(self, connection: Connection, stream: str, consumer: str, batch: int) -> None:
        self._connection = connection
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._batch = batch
        self._queue: deque[Message] = deque()
        self._outstanding = 0
        self._lost = ""
        self._wake = asyncio.Event()
        self._subscription: Subscription | None = None
        self._inbox = connection.client.new_inbox()

    async def __aenter__(self) -> Self:
        self._connection.interrupted.add(self._interrupt)
        self._subscription = await self._connection.client.subscribe(self._inbox, cb=self._receive)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._connection.interrupted.discard(self._interrupt)
        if self._subscription is not None:
            with contextlib.suppress(nats.errors.Error, *TRANSIENT):
                await self._subscription.unsubscribe()

    @property
    def waiting(self) -> tuple[Message, ...]:
        """Messages that have arrived and were not taken yet."""
        return tuple(self._queue)

    async def take(self, limit: int) -> list[Message]:
        """At least one message, at most `limit`, waiting only for the first. Raises Lost."""
        while not self._queue:
            if self._lost:
                raise Lost(self._lost)
            if not self._outstanding:
                await self._request()
            self._wake.clear()
            try:
                async with asyncio.timeout(2.5 * HEARTBEAT_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                raise Lost("no heartbeat") from None
        return [self._queue.popleft() for _ in range(min(limit, len(self._queue)))]

    async def _request(self) -> None:
        request = {
            "batch": self._batch,
            "max_bytes": MAX_BYTES,
            "expires": int(EXPIRES_SECONDS * _NANO),
            "idle_heartbeat": int(HEARTBEAT_SECONDS * _NANO),
        }
        self._outstanding = self._batch
        await self._connection.send(self._subject, json.dumps(request).encode(), reply=self._inbox)

    async def _receive(self, message: Msg) -> None:
        if message.reply.startswith("$JS.ACK."):
            self._queue.append(delivered(message))
            self._outstanding -= 1
        else:
            self._status(message.headers or {})
        self._wake.set()

    def _status(self, headers: dict[str, str]) -> None:
        status, text = headers.get("Status"), headers.get("Description", "")
        if status == "100":  # heartbeat
            return
        self._outstanding = 0
        if status not in ("404", "408") and not text.startswith(_ENDED):
            self._lost = text or f"status {status}"

    def _interrupt(self) -> None:
        self._lost = "disconnected"
        self._wake.set()


async def create_consumer(connection: Connection, stream: str, config: ConsumerConfig) -> dict[str, Any]:
    """Make a named consumer, or find it as it is -> the server's description. Raises APIError, TRANSIENT."""
    request = {"stream_name": stream, "config": config.as_dict()}
    return await connection.api(f"CONSUMER.CREATE.{stream}.{config.name}", request)


def delivered(message: Msg) -> Message:
    """What a consumer delivered; its place in the stream is spelled in the reply subject."""
    tokens = message.reply.split(".")
    first = 2 if len(tokens) == 9 else 4  # newer servers put a domain and an account before the stream
    stream, _, deliveries, sequence, _, timestamp, pending = tokens[first : first + 7]
    return Message(
        stream=stream,
        sequence=int(sequence),
        subject=message.subject,
        headers=message.headers or {},
        payload=message.data,
        timestamp=int(timestamp),
        deliveries=int(deliveries),
        pending=int(pending),
        reply=message.reply,
    )
