"""The codec: everything that goes out comes back; nothing that comes in can hurt."""

from __future__ import annotations

import contextlib
import math
import struct
from typing import Any

import msgpack
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from bus import wire
from bus.errors import WireError
from schemas import EVENTS, Completion, Control, Event, Heartbeat, Rollouts, Segment, Span, WorkRequested
from tests.schemas.examples import EXAMPLES, PROOF, WORKER


def pack(values: Any) -> bytes:
    return zstandard.compress(msgpack.packb(values))


def rollouts(lengths: list[int], seed: int = 0) -> Rollouts:
    rng = np.random.default_rng(seed)
    return Rollouts(
        worker=WORKER,
        task="7",
        attempt=0,
        slice=0,
        slices=1,
        completions=tuple(
            Completion(
                index=index,
                segments=(Segment(source="model", ids=rng.integers(0, 150_000, length)),),
                logprobs=-rng.exponential(size=length),
                spans=(Span(policy_version=1, policy_digest="a" * 64, start=0, stop=length),),
                finish="stop",
            )
            for index, length in enumerate(lengths)
        ),
        answer=bytes(32),
        proof=wire.digest(PROOF),
    )


@pytest.mark.parametrize("event", EXAMPLES.values(), ids=EXAMPLES.keys())
def test_every_event_comes_back_equal_and_encodes_to_the_same_bytes(event: Event) -> None:
    payload = wire.encode(event)
    decoded = wire.decode(type(event), payload)
    assert decoded == event
    assert wire.encode(decoded) == payload


@given(st.lists(st.integers(1, 200), min_size=1, max_size=5), st.integers(0, 2**32))
@settings(deadline=None, max_examples=30)
def test_rollouts_of_any_shape_come_back(lengths: list[int], seed: int) -> None:
    event = rollouts(lengths, seed)
    assert wire.decode(Rollouts, wire.encode(event)) == event


@given(st.sampled_from(sorted(EVENTS)), st.data())
@settings(deadline=None, max_examples=300)
def test_mutated_bytes_are_decoded_or_refused_and_nothing_else(name: str, data: st.DataObject) -> None:
    kind = EVENTS[name]
    packed = bytearray(msgpack.packb(EXAMPLES[name].model_dump()))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(packed) - 1))
        packed[at] = data.draw(st.integers(0, 255))
    whole = zstandard.compress(bytes(packed[: data.draw(st.integers(1, len(packed)))]))
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    for payload in (whole, cut):
        with contextlib.suppress(WireError):
            assert isinstance(wire.decode(kind, payload), kind)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_with_a_reason(payload: bytes) -> None:
    with pytest.raises(WireError, match=r"\w"):
        wire.decode(Rollouts, payload)


def test_a_frame_that_declares_too_much_is_refused_before_decompression() -> None:
    bomb = zstandard.compress(bytes(64 << 20))
    assert len(bomb) < 10_000
    with pytest.raises(WireError, match="does not declare a size"):
        wire.decode(Control, bomb)


def test_a_frame_without_a_declared_size_is_refused() -> None:
    compressor = zstandard.ZstdCompressor(write_content_size=False)
    with pytest.raises(WireError, match="does not declare a size"):
        wire.decode(Control, compressor.compress(msgpack.packb({"action": "pause"})))


def test_a_frame_that_lies_about_its_size_is_refused() -> None:
    frame = bytearray(zstandard.compress(b"x" * 100))
    at = frame.index(100)  # frame content size, one byte
    frame[at] = 50
    with pytest.raises(WireError, match="not one zstd frame"):
        wire.decode(Control, bytes(frame))


def test_a_second_frame_is_refused() -> None:
    payload = wire.encode(EXAMPLES["Control"])
    with pytest.raises(WireError, match="not one zstd frame"):
        wire.decode(Control, payload + payload)


def test_too_many_compressed_bytes_are_refused_unread() -> None:
    with pytest.raises(WireError, match="compressed bytes"):
        wire.decode(Control, bytes(wire.MAX_PAYLOAD + 1))


@pytest.mark.parametrize(
    "nested", [b"\x91" * 40 + b"\xc0", b"\x91" * 5000 + b"\xc0", b"\x81\xa1a" * 2000 + b"\xc0"]
)
def test_deep_nesting_is_refused(nested: bytes) -> None:
    with pytest.raises(WireError, match=r"nested|not a map"):
        wire.decode(Control, zstandard.compress(b"\x81\xa1a" + nested))


def test_a_long_array_is_refused_before_it_is_allocated() -> None:
    header = b"\xdd" + struct.pack(">I", 1 << 31)
    with pytest.raises(WireError, match="within bounds"):
        wire.decode(Control, zstandard.compress(header))


def test_millions_of_empty_containers_are_refused() -> None:
    inner = b"\xdc" + struct.pack(">H", 10_000) + b"\x80" * 10_000
    payload = zstandard.compress(b"\xdc" + struct.pack(">H", 100) + inner * 100)
    with pytest.raises(WireError, match="arrays and maps"):
        wire.decode(Control, payload)


def test_a_key_that_appears_twice_is_refused() -> None:
    twice = b"\x82\xa6action\xa5pause\xa6action\xa4stop"
    with pytest.raises(WireError, match="twice"):
        wire.decode(Control, zstandard.compress(twice))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_numbers_are_refused_anywhere(value: float) -> None:
    beat = EXAMPLES["Heartbeat"].model_dump()
    with pytest.raises(WireError, match="finite"):
        wire.decode(Heartbeat, pack({**beat, "capacity": {"tokens_per_s": value}}))
    answer = EXAMPLES["Rollouts"].model_dump()
    answer["completions"][0]["logprobs"] = np.full(4, value, "<f4").tobytes()
    with pytest.raises(WireError, match="finite"):
        wire.decode(Rollouts, pack(answer))


@pytest.mark.parametrize(
    ("field", "value"), [("groups", "3"), ("groups", 3.0), ("groups", True), ("name", b"x")]
)
def test_types_are_not_converted(field: str, value: object) -> None:
    with pytest.raises(WireError, match=field):
        wire.decode(WorkRequested, pack({**EXAMPLES["WorkRequested"].model_dump(), field: value}))


def test_timestamps_and_other_extensions_are_refused() -> None:
    with pytest.raises(WireError, match="within bounds"):
        wire.decode(Control, pack(msgpack.Timestamp(1)))


def test_an_unknown_field_is_refused_unless_the_sender_is_newer() -> None:
    values = {**EXAMPLES["Rollouts"].model_dump(), "mood": "good"}
    values["completions"][0]["mood"] = "better"
    with pytest.raises(WireError, match="mood"):
        wire.decode(Rollouts, pack(values), minor=Rollouts.schema_version[1])
    newer = wire.decode(Rollouts, pack(values), minor=Rollouts.schema_version[1] + 1)
    assert newer == EXAMPLES["Rollouts"]


def test_an_event_that_no_reader_would_take_is_not_sent() -> None:
    with pytest.raises(WireError, match="after compression"):
        wire.encode(rollouts([200_000]))


def test_one_completion_of_128k_tokens_fits() -> None:
    assert len(wire.encode(rollouts([131_072]))) <= wire.MAX_PAYLOAD


@pytest.mark.parametrize(
    "header", ["", "Control", "Control/1", "Control/2.0", "Nothing/1.0", "../x/1.0", "C" * 99 + "/1.0"]
)
def test_schema_headers_that_are_refused(header: str) -> None:
    with pytest.raises(WireError):
        wire.parse_schema(header)


def test_a_newer_minor_version_is_read() -> None:
    assert wire.parse_schema("Control/1.7") == (Control, 7)
