"""Handlers: nodes of one kind divide the messages of a stream among them through a shared durable consumer.

A message is acked once everything that its handler returned is stored, so it is handled at least once,
and what it causes has the same id each time. While a handler works its messages are kept from being given
to another; when it fails they come again later, and after `deliveries` failures, or when a message cannot
be believed, a DeadLetter says so and the message is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import nats.js.errors
import structlog
from nats.js.api import AckPolicy, ConsumerConfig

from bus.client import Bus
from bus.connection import TRANSIENT
from bus.envelope import Message, Record, kind_of, unseal
from bus.errors import BusError, WireError
from bus.pull import Lost, Pull, create_consumer
from bus.retry import delays
from bus.streams import name_of
from schemas import Event

log = structlog.get_logger()

Handler = Callable[[Any], Awaitable[Event | Iterable[Event] | None]]

ACK, NAK, TERM, PROGRESS = b"+ACK", b"-NAK", b"+TERM", b"+WPI"


@dataclass(frozen=True)
class Subscription:
    """What a handler takes.

    durable: name of the shared consumer. function: takes an event, or a list of them when batch > 1, and
    returns what is to be published; with `records` it gets Records instead. ack_wait: seconds after which the messages of a node that died are
    given to another. deliveries: attempts before a message is a dead letter.
    """

    kind: type[Event]
    durable: str
    function: Handler
    batch: int = 1
    ack_wait: float = 30.0
    deliveries: int = 5
    records: bool = False


async def handle(bus: Bus, subscription: Subscription) -> None:
    """Take messages and handle them, for ever. Raises BusError when results cannot be published at all."""
    await _Worker(bus, subscription).run()


class _Worker:
    def __init__(self, bus: Bus, subscription: Subscription) -> None:
        self._bus = bus
        self._subscription = subscription
        self._stream = name_of(bus.run, subscription.kind.stream)
        self._held: dict[str, Message] = {}  # by reply subject: taken, and not settled yet

    async def run(self) -> None:
        waits = delays()
        while True:
            try:
                await self._ensure_consumer()
                async with Pull(
                    self._bus.connection, self._stream, self._subscription.durable, self._subscription.batch
                ) as pull:
                    while True:
                        await self._handle(await pull.take(self._subscription.batch), pull)
                        waits = delays()
            except (Lost, nats.js.errors.NotFoundError, *TRANSIENT):
                await asyncio.sleep(next(waits))
            except nats.js.errors.APIError as error:
                raise BusError(
                    f"the server refuses the consumer {self._subscription.durable} of {self._stream}: {error.description}"
                ) from None

    async def _ensure_consumer(self) -> None:
        config = ConsumerConfig(
            name=self._subscription.durable,
            durable_name=self._subscription.durable,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self._subscription.ack_wait,
            filter_subjects=[f"{self._bus.run}.{self._subscription.kind.pattern()}"],
        )
        await create_consumer(self._bus.connection, self._stream, config)

    async def _handle(self, messages: list[Message], pull: Pull) -> None:
        self._held.update((message.reply, message) for message in messages)
        keeping = asyncio.create_task(self._keep(pull))
        try:
            good = [
                (message, record) for message in messages if (record := await self._open(message)) is not None
            ]
            if good and not await self._call(good) and len(good) > 1:
                for one in good:  # one message must not take the others of its batch with it
                    await self._call([one])
        except BaseException:  # we are being stopped: others may have them at once
            for message in (*self._held.values(), *pull.waiting):
                await self._settle(message, NAK)
            raise
        finally:
            keeping.cancel()

    async def _open(self, message: Message) -> Record[Event] | None:
        """What to handle; None when the message is settled without it."""
        subscription = self._subscription
        try:
            if kind_of(message)[0] is not subscription.kind:
                await self._settle(message, ACK)
                return None
            record = unseal(message, self._bus.run, await self._bus.trust())
        except WireError as error:
            await self._bury(message, str(error))
            return None
        if message.deliveries > subscription.deliveries:
            await self._bury(message, "its handler died each time")
            return None
        return record

    async def _call(self, good: list[tuple[Message, Record[Event]]]) -> bool:
        """Handle, publish the results, ack. False when the handler failed and the messages are still held."""
        subscription = self._subscription
        try:
            given = [record if subscription.records else record.event for _, record in good]
            result = await subscription.function(given if subscription.batch > 1 else given[0])
            results = [] if result is None else [result] if isinstance(result, Event) else list(result)
        except BusError:
            raise
        except Exception as error:
            if len(good) == 1:
                await self._failed(good[0][0], error)
            return False
        await asyncio.gather(*(self._bus.publish(event) for event in results))
        for message, _ in good:
            await self._settle(message, ACK)
        return True

    async def _failed(self, message: Message, error: Exception) -> None:
        log.warning(
            "a handler failed",
            handler=self._subscription.durable,
            subject=message.subject,
            sequence=message.sequence,
            delivery=message.deliveries,
            error=f"{type(error).__name__}: {error}",
            exc_info=error,
        )
        if message.deliveries >= self._subscription.deliveries:
            await self._bury(message, f"{type(error).__name__}: {error}")
        else:
            delay = min(30.0, 0.2 * 2 ** (message.deliveries - 1))
            await self._settle(message, NAK + b" " + json.dumps({"delay": int(delay * 1e9)}).encode())

    async def _bury(self, message: Message, reason: str) -> None:
        subscription = self._subscription
        await self._bus.report_dead(
            subscription.kind.stream,
            message.sequence,
            message.subject,
            subscription.durable,
            reason,
            message.deliveries,
        )
        log.warning("dead letter", subject=message.subject, sequence=message.sequence, reason=reason)
        await self._settle(message, TERM)

    async def _settle(self, message: Message, answer: bytes) -> None:
        self._held.pop(message.reply, None)
        await self._bus.connection.send(message.reply, answer)

    async def _keep(self, pull: Pull) -> None:
        """Tell the server that the messages are being worked on, those that still wait here too."""
        while True:
            await asyncio.sleep(self._subscription.ack_wait / 3)
            for message in (*self._held.values(), *pull.waiting):
                with contextlib.suppress(*TRANSIENT):
                    await self._bus.connection.send(message.reply, PROGRESS)
