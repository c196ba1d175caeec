"""The codec: `zstd(msgpack(event))`, decoded only within bounds, because the bytes may come from anyone.

Every bound is checked before the allocation that it limits: the compressed size, the size that the frame
declares (zstandard's own limit does not hold for frames that declare one), lengths and the number of
containers while unpacking; then nesting, non-finite floats, and the model with strict types.
"""

from __future__ import annotations

import math
import re
import threading
from typing import Any, TypeVar

import msgpack
import zstandard
from blake3 import blake3
from pydantic import ValidationError

from bus.errors import WireError
from schemas import EVENTS, Event

ENCODING = "zstd+msgpack"
MAX_MESSAGE = 1 << 20
"""Bytes of one stored message, headers included: the default limit of nats-server."""
MAX_PAYLOAD = MAX_MESSAGE - 4096
"""Bytes after compression."""
MAX_UNPACKED = 4 << 20
"""Bytes before compression."""
MAX_ITEMS = 1 << 14
"""Entries of one array or map."""
MAX_CONTAINERS = 1 << 17
"""Arrays and maps of one message: an empty one costs one byte on the wire and 64 in memory."""
MAX_DEPTH = 32
"""Arrays and maps inside one another. The unpacker itself stops at 1024."""

_SCHEMA = re.compile(r"([A-Za-z]{1,64})/([0-9]{1,4})\.([0-9]{1,4})")

E = TypeVar("E", bound=Event)


class _Zstd(threading.local):
    """Contexts are reused because making one costs more than a small message; they are not thread-safe."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=3, write_checksum=False)
        self.decompressor = zstandard.ZstdDecompressor()


_zstd = _Zstd()


def schema_header(kind: type[Event]) -> str:
    """The schema header, e.g. `Rollouts/1.0`."""
    return f"{kind.__name__}/{kind.schema_version[0]}.{kind.schema_version[1]}"


def parse_schema(header: str) -> tuple[type[Event], int]:
    """The schema header -> the event's class and the sender's minor version. Raises WireError."""
    match = _SCHEMA.fullmatch(header)
    if match is None:
        raise WireError(f"malformed schema header {header[:80]!r}")
    kind = EVENTS.get(match[1])
    if kind is None:
        raise WireError(f"unknown event {match[1]}")
    if int(match[2]) != kind.schema_version[0]:
        raise WireError(f"{match[1]} version {match[2]}, this program reads version {kind.schema_version[0]}")
    return kind, int(match[3])


def encode(event: Event) -> bytes:
    """The wire bytes of an event; equal events give equal bytes. Raises WireError when it is too large."""
    packed: bytes = msgpack.packb(event.model_dump(), use_bin_type=True)
    if len(packed) > MAX_UNPACKED:
        raise WireError(f"{type(event).__name__} has {len(packed)} bytes, at most {MAX_UNPACKED} are allowed")
    payload = _zstd.compressor.compress(packed)
    if len(payload) > MAX_PAYLOAD:
        raise WireError(
            f"{type(event).__name__} has {len(payload)} bytes after compression, at most {MAX_PAYLOAD} are allowed"
        )
    return payload


def decode(kind: type[E], payload: bytes, minor: int = 0) -> E:
    """Wire bytes -> event of this kind.

    A field that this program does not know is refused, unless the sender's minor version is newer than
    ours: then it is dropped. Raises WireError.
    """
    values = _unpack(_decompress(payload))
    if not isinstance(values, dict):
        raise WireError("the message is not a map")
    _check(values, MAX_DEPTH)
    newer = minor > kind.schema_version[1]
    try:
        return kind.from_wire(values, newer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])[:80]
        raise WireError(f"{kind.__name__} {where}: {first['msg'][:200]}") from None


def digest(event: Event) -> str:
    """BLAKE3 of the event's wire bytes in hex, as `Record.digest` of the reader: how one event names another."""
    return blake3(encode(event)).hexdigest()


def _decompress(payload: bytes) -> bytes:
    if len(payload) > MAX_PAYLOAD:
        raise WireError(f"{len(payload)} compressed bytes, at most {MAX_PAYLOAD} are allowed")
    try:
        declared = zstandard.get_frame_parameters(payload).content_size
        if declared > MAX_UNPACKED:  # also when the frame declares none: that reads as 2^64 - 1
            raise WireError(f"the frame does not declare a size of at most {MAX_UNPACKED} bytes")
        unpacked = _zstd.decompressor.decompress(payload, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise WireError(f"not one zstd frame: {error}") from None
    if len(unpacked) != declared:
        raise WireError(f"{len(unpacked)} bytes decompressed, {declared} declared")
    return unpacked


def _unpack(data: bytes) -> Any:
    containers = 0

    def count() -> None:
        nonlocal containers
        containers += 1
        if containers > MAX_CONTAINERS:
            raise WireError(f"more than {MAX_CONTAINERS} arrays and maps")

    def array(items: list[Any]) -> list[Any]:
        count()
        return items

    def mapping(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        count()
        values = dict(pairs)
        if len(values) != len(pairs):
            raise WireError("a key appears twice in one map")
        return values

    try:
        return msgpack.unpackb(
            data,
            list_hook=array,
            object_pairs_hook=mapping,
            max_array_len=MAX_ITEMS,
            max_map_len=MAX_ITEMS,
            max_ext_len=0,
        )
    except WireError:
        raise
    except msgpack.StackError:
        raise WireError("nested too deeply") from None
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise WireError(f"not msgpack within bounds: {error}") from None


def _check(values: dict[Any, Any] | list[Any], depth: int) -> None:
    if not depth:
        raise WireError(f"nested more than {MAX_DEPTH} deep")
    for value in values.values() if isinstance(values, dict) else values:
        kind = type(value)
        if kind is dict or kind is list:
            _check(value, depth - 1)
        elif kind is float and not math.isfinite(value):
            raise WireError("a number is not finite")
