"""Single messages, read back from a stream by sequence or subject."""

from __future__ import annotations

import asyncio
import contextlib
import json
from datetime import datetime

import nats.errors
import nats.js.errors
from nats.aio.msg import Msg

from bus.connection import TRANSIENT, Connection
from bus.envelope import Message
from bus.errors import NoStream
from bus.retry import delays

NO_MESSAGE = 10037


async def by_sequence(connection: Connection, stream: str, sequence: int) -> Message | None:
    """The message at a sequence, None when there is none. Raises NoStream when there is no such stream."""
    return await _get(connection, stream, {"seq": sequence})


async def last_on(connection: Connection, stream: str, subject: str) -> Message | None:
    """The last message on a subject (or pattern), None when there is none."""
    return await _get(connection, stream, {"last_by_subj": subject})


async def _get(connection: Connection, stream: str, query: dict[str, object]) -> Message | None:
    """Ask any replica; that a message is missing is believed only from the stream's leader."""
    request = json.dumps(query).encode()
    for delay in delays(0.02):
        try:
            reply = await connection.request(f"$JS.API.DIRECT.GET.{stream}", request)
            if "Nats-Sequence" in (reply.headers or {}):
                return _message(stream, reply)
            await connection.api(f"STREAM.MSG.GET.{stream}", query)
        except nats.js.errors.NotFoundError as error:
            if error.err_code == NO_MESSAGE:
                return None
            raise NoStream(f"there is no stream {stream} on this server") from None
        except nats.errors.NoRespondersError:  # no stream, or none of its servers is up
            await _stream_must_exist(connection, stream)
        except TRANSIENT:
            pass
        await asyncio.sleep(delay)
    raise AssertionError("unreachable")


async def _stream_must_exist(connection: Connection, stream: str) -> None:
    with contextlib.suppress(*TRANSIENT):
        try:
            await connection.api(f"STREAM.INFO.{stream}")
        except nats.js.errors.NotFoundError:
            raise NoStream(f"there is no stream {stream} on this server") from None


def _message(stream: str, reply: Msg) -> Message:
    headers = reply.headers or {}
    return Message(
        stream=stream,
        sequence=int(headers["Nats-Sequence"]),
        subject=headers["Nats-Subject"],
        headers=headers,
        payload=reply.data or b"",
        timestamp=nanoseconds(headers["Nats-Time-Stamp"]),
    )


def nanoseconds(time: str) -> int:
    """RFC 3339 with up to nine fractional digits -> nanoseconds since 1970."""
    whole, _, fraction = time.removesuffix("Z").partition(".")
    return int(datetime.fromisoformat(whole + "+00:00").timestamp()) * 10**9 + int(fraction.ljust(9, "0")[:9])
