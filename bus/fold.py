"""Reading a stream by sequence, in order and without gaps: how every component rebuilds its state.

The consumer at the server is a throw-away: whenever it, the connection or the server is lost, the next one
begins right after the last message that was seen.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager

import nats.js.errors
import structlog
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from bus.connection import TRANSIENT, Connection
from bus.envelope import Message
from bus.errors import BusError, NoStream
from bus.pull import Lost, Pull, create_consumer
from bus.retry import delays

log = structlog.get_logger()

BATCH = 256
IDLE_SECONDS = 60.0
"""After so long without a request the server forgets the consumer; the reader then opens another."""


async def messages(
    connection: Connection, stream: str, subjects: Iterable[str], after: int, live: bool
) -> AsyncGenerator[Message, None]:
    """The messages on `subjects` after a sequence, in order; endless if `live`, else to the end as it is now.

    Raises NoStream when there is no such stream at the start.
    """
    end = 0 if live else await last_sequence(connection, stream)
    subjects = sorted(set(subjects))
    waits = enumerate(delays(0.02))
    while live or after < end:
        try:
            async with _consumer(connection, stream, subjects, after) as (name, pending):
                if not live and not pending:
                    return
                async with Pull(connection, stream, name, BATCH) as pull:
                    while live or after < end:
                        for message in await pull.take(BATCH):
                            if not live and message.sequence > end:
                                return
                            after = message.sequence
                            yield message
                            if not live and not message.pending:
                                return
                        waits = enumerate(delays(0.02))
        except (Lost, nats.js.errors.NotFoundError, *TRANSIENT) as error:
            attempt, delay = next(waits)
            if attempt == 6:  # some two seconds
                log.warning("waiting for a stream", stream=stream, reason=str(error) or type(error).__name__)
            await asyncio.sleep(delay)
        except nats.js.errors.APIError as error:
            raise BusError(f"the server does not let us read {stream}: {error.description}") from None


async def last_sequence(connection: Connection, stream: str) -> int:
    """The last sequence in a stream, 0 for an empty one. Raises NoStream when there is no such stream."""
    for delay in delays():
        try:
            return int((await connection.api(f"STREAM.INFO.{stream}"))["state"]["last_seq"])
        except nats.js.errors.NotFoundError:
            raise NoStream(f"there is no stream {stream} on this server") from None
        except TRANSIENT:
            await asyncio.sleep(delay)
    raise AssertionError("unreachable")


@asynccontextmanager
async def _consumer(
    connection: Connection, stream: str, subjects: list[str], after: int
) -> AsyncIterator[tuple[str, int]]:
    """A consumer of one reader -> its name and how many messages there are for it by now."""
    config = ConsumerConfig(
        name=f"read-{secrets.token_hex(8)}",
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=after + 1,
        ack_policy=AckPolicy.NONE,
        filter_subjects=subjects,
        inactive_threshold=IDLE_SECONDS,
        mem_storage=True,
        num_replicas=1,
    )
    info = await create_consumer(connection, stream, config)
    try:
        yield info["name"], info["num_pending"]
    finally:
        await connection.send(f"$JS.API.CONSUMER.DELETE.{stream}.{info['name']}")
