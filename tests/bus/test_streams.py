"""The declaration of streams: complete, repeatable, bounded."""

from __future__ import annotations

import asyncio
import random

import pytest
from structlog.testing import capture_logs

from bus import Bus, BusError, StreamFull, streams
from bus.testing import Run
from schemas import EVENTS, Heartbeat, Proof, WorkRequested, WriterStarted
from schemas.config import BusSection
from tests.schemas.examples import EXAMPLES


def test_every_event_has_exactly_one_stream() -> None:
    for name, event in EXAMPLES.items():
        places = [
            stream
            for stream, patterns in streams.SUBJECTS.items()
            if _matches(event.subject_below(), patterns)
        ]
        assert places == [event.destination()], name
    assert set(EXAMPLES) == set(EVENTS)
    for stream in streams.WRITER_STREAMS:
        subject = WriterStarted.model_validate({"epoch": 1, "writes": stream.lower()}).subject_below()
        assert _matches(subject, streams.SUBJECTS[stream])


def _matches(subject: str, patterns: tuple[str, ...]) -> bool:
    parts = subject.split(".")
    return any(
        len(parts) == len(wanted)
        and all(want in ("*", part) for part, want in zip(parts, wanted, strict=True))
        for wanted in (pattern.split(".") for pattern in patterns)
    )


async def test_making_the_streams_again_changes_nothing_and_limits_can_be_raised(run: Run) -> None:
    async with run.connect("trainer") as bus:
        before = await bus.end("RUN")
        await bus.create_streams(run.config().bus)
        await bus.create_streams(BusSection(max_bytes=65 << 20))
        info = await bus.connection.js.stream_info(streams.name_of(run.name, "TASKS"))
        assert info.config.max_bytes == 65 << 20
        assert await bus.end("RUN") == before


async def test_a_full_stream_refuses_and_says_what_to_do(run: Run) -> None:
    async with run.connect("trainer") as trainer, run.connect("worker") as worker:
        await trainer.create_streams(BusSection(max_bytes=1 << 20))
        proofs = tuple(random.randbytes(258) for _ in range(1000))
        slices = [
            Proof(
                worker=worker.public_key,
                task="1",
                attempt=0,
                slice=at,
                indices=tuple(range(1000)),
                proofs=proofs,
            )
            for at in range(6)
        ]
        with pytest.raises(StreamFull, match=r"PROOFS is full .* raise bus\.max_bytes"):
            await asyncio.gather(*map(worker.publish, slices))
        assert await worker.get(Proof, 1) is not None


async def test_a_limit_that_the_server_cannot_hold_is_one_clear_line(run: Run) -> None:
    async with run.connect("trainer") as bus:
        with pytest.raises(BusError, match=r"no room to reserve .* lower bus\.max_bytes"):
            await bus.create_streams(BusSection(max_bytes=1 << 50))


async def test_heartbeats_are_forgotten_other_events_are_not(run: Run) -> None:
    async with run.connect("worker") as bus:
        kept = streams.HEARTBEATS_KEPT
        for at in range(3 * kept):
            await bus.publish(Heartbeat(kind="worker", node="self", state=str(at)))
            await bus.publish(WorkRequested(worker="self", groups=1))
        beats = [record.event.state async for record in bus.records(Heartbeat, live=False)]
        assert beats == [str(at) for at in range(2 * kept, 3 * kept)]
        assert len([record async for record in bus.records(WorkRequested, live=False)]) == 3 * kept


async def test_the_runs_of_a_server_are_listed(run: Run) -> None:
    async with Bus.connect(run.url, "elsewhere") as bus:
        assert run.name in await streams.runs(bus.connection)
        with (
            capture_logs(),
            pytest.raises(BusError, match=rf"no run 'elsewhere' .* runs there: .*{run.name}"),
        ):
            await bus.wait_for_run(0.1)
