"""The streams of a run, declared once: their subjects follow from the events, their limits are here.

Limits retention, because replay needs the past; a full stream refuses new messages instead of dropping old
ones. NODES alone forgets: a heartbeat is worth nothing once the next is there.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import get_args

import nats.js.errors
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig

from bus.connection import NO_JETSTREAM, TRANSIENT, Connection
from bus.errors import BusError
from bus.retry import delays
from bus.wire import MAX_MESSAGE
from schemas import EVENTS, RunCreated, WriterStarted
from schemas.config import BusSection

DUPLICATE_SECONDS = 120.0
"""How long a stream remembers message ids; behind it, every consumer is idempotent by event id."""
HEARTBEATS_KEPT = 8
"""Of each node."""
HEARTBEAT_BYTES = 64 << 20
"""Of all nodes; the oldest go first."""

WRITER_STREAMS: tuple[str, ...] = tuple(
    name.upper() for name in get_args(WriterStarted.model_fields["writes"].annotation)
)
"""Streams with one writer, the trainer."""

NAME_IN_USE, NO_STORAGE, NOT_ENABLED = 10058, (10047, 10023), (10039, 10076)


def _subjects() -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for event in EVENTS.values():
        if event is not WriterStarted:
            found.setdefault(event.stream, set()).add(event.pattern())
    for stream in WRITER_STREAMS:
        found[stream].add(WriterStarted.pattern(writes=stream.lower()))
    return {stream: tuple(sorted(patterns)) for stream, patterns in sorted(found.items())}


SUBJECTS = _subjects()
"""Stream -> its subjects below the run's prefix, e.g. TASKS: `tasks.*.*.*` and `tasks.writer`."""


def name_of(run: str, stream: str) -> str:
    """The stream's name on the server, e.g. `demo_TASKS`."""
    return f"{run}_{stream}"


def declare(run: str, stream: str, limits: BusSection) -> StreamConfig:
    """The server's configuration of one stream."""
    config = StreamConfig(
        name=name_of(run, stream),
        subjects=[f"{run}.{pattern}" for pattern in SUBJECTS[stream]],
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        discard=DiscardPolicy.NEW,
        max_bytes=limits.max_bytes,
        max_msg_size=MAX_MESSAGE,
        num_replicas=limits.replicas,
        duplicate_window=DUPLICATE_SECONDS,
        allow_direct=True,
    )
    if stream == "NODES":
        return config.evolve(
            discard=DiscardPolicy.OLD,
            max_msgs_per_subject=HEARTBEATS_KEPT,
            max_bytes=min(limits.max_bytes, HEARTBEAT_BYTES),
        )
    return config


async def create(connection: Connection, run: str, limits: BusSection) -> None:
    """Make every stream of the run, or bring it up to date; running it again changes nothing. Raises BusError."""
    await asyncio.gather(*(_create(connection, declare(run, stream, limits)) for stream in SUBJECTS))


async def runs(connection: Connection) -> list[str]:
    """The runs that the server holds, by name; none while it does not answer. Raises BusError without JetStream."""
    suffix = "_" + RunCreated.stream
    names: list[str] = []
    with contextlib.suppress(*TRANSIENT):
        while True:
            query = {"subject": f"*.{RunCreated.pattern()}", "offset": len(names)}
            page = (await connection.api("STREAM.NAMES", query)).get("streams")
            if not page:
                break
            names += page
    return sorted(name.removesuffix(suffix) for name in names if name.endswith(suffix))


async def _create(connection: Connection, config: StreamConfig) -> None:
    for delay in delays():
        try:
            await _create_or_update(connection, config)
            return
        except (nats.js.errors.APIError, *TRANSIENT) as error:
            code = getattr(error, "err_code", None)
            if code in NO_STORAGE:
                raise BusError(
                    f"the server has no room to reserve {config.max_bytes} bytes for {config.name}; "
                    "lower bus.max_bytes or raise max_file_store of nats-server"
                ) from None
            if code in NOT_ENABLED:
                raise BusError(f"{connection.address}: {NO_JETSTREAM}") from None
            denied = connection.reason(f"stream.create.{config.name}")
            if denied or delay > 1 or not isinstance(error, TRANSIENT):  # some five attempts
                raise BusError(f"the server did not create stream {config.name}: {denied or error}") from None
        await asyncio.sleep(delay)


async def _create_or_update(connection: Connection, config: StreamConfig) -> None:
    try:
        await connection.api(f"STREAM.CREATE.{config.name}", config.as_dict())
    except nats.js.errors.BadRequestError as error:
        if error.err_code != NAME_IN_USE:
            raise
        await connection.api(f"STREAM.UPDATE.{config.name}", config.as_dict())
