"""Reading by sequence: in order, complete, through every kind of loss."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bus import Bus, BusError, NoStream, Record
from bus.server import Server
from bus.testing import Run, new_run
from schemas import Control, TaskClosed, TaskGranted, Verdict, WorkRequested, WorkReturned
from tests.bus.proxy import Proxy
from tests.schemas.examples import EXAMPLES


async def publish(bus: Bus, count: int, first: int = 0) -> None:
    for at in range(first, first + count):
        await bus.publish(Control(action="pause", reason=str(at)))


async def collect(bus: Bus, count: int, into: list[Record[Control]]) -> None:
    async for record in bus.records(Control):
        into.append(record)
        if len(into) == count:
            return


async def test_read_begins_after_a_sequence_and_goes_on_for_ever(run: Run) -> None:
    async with run.connect("operator") as bus:
        await publish(bus, 3)
        seen: list[tuple[int, str]] = []
        later = asyncio.create_task(publish(bus, 2, first=3))
        async for sequence, control in bus.read(Control, after=1):
            seen.append((sequence, control.reason))
            if len(seen) == 4:
                break
        await later
        assert seen == [(2, "1"), (3, "2"), (4, "3"), (5, "4")]


async def test_several_types_of_one_stream_and_a_filter_on_tokens(run: Run) -> None:
    async with run.connect("worker") as one, run.connect("worker", "two") as two:
        for bus in (one, two):
            await bus.publish(WorkRequested(worker="self", groups=1))
            await bus.publish(WorkReturned(worker="self", task="1", attempt=0, reason="late"))
        both = [record async for record in one.records(WorkRequested, WorkReturned, live=False)]
        assert [type(record.event) for record in both] == [WorkRequested, WorkReturned] * 2
        mine = [record async for record in one.records(WorkReturned, live=False, worker=two.public_key)]
        assert [record.signer for record in mine] == [two.public_key]
        with pytest.raises(BusError, match="events of one stream are read together"):
            await anext(one.records(WorkRequested, TaskGranted))
        with pytest.raises(ValueError, match="no subject token colour"):
            await anext(one.records(WorkRequested, colour="red"))


async def test_live_false_ends_at_the_end_even_of_an_empty_or_filtered_stream(run: Run) -> None:
    async with run.connect("worker") as bus:
        assert [record async for record in bus.records(TaskClosed, live=False)] == []
        for _ in range(600):  # more than two pulls
            await bus.publish(WorkRequested(worker="self", groups=1))
        assert len([record async for record in bus.records(WorkRequested, live=False)]) == 600
        assert len([record async for record in bus.records(WorkRequested, after=599, live=False)]) == 1
        assert [record async for record in bus.records(WorkRequested, after=600, live=False)] == []
        assert [record async for record in bus.records(WorkReturned, live=False)] == []
        assert [record async for record in bus.records(WorkRequested, live=False, worker="other")] == []


async def test_a_waiting_reader_gets_an_event_within_milliseconds(run: Run) -> None:
    async with run.connect("operator") as bus, run.connect("worker") as reader:
        records = reader.records(Control)
        delays = []
        await publish(bus, 1)
        await anext(records)
        for at in range(20):
            waiting = asyncio.ensure_future(anext(records))
            await asyncio.sleep(0.01)
            started = time.perf_counter()
            await publish(bus, 1, first=at)
            await waiting
            delays.append(time.perf_counter() - started)
        await records.aclose()
        assert sorted(delays)[10] < 0.05


async def test_reading_survives_a_server_that_is_killed(tmp_path: Path) -> None:
    with Server(tmp_path / "store") as server:
        run = await new_run(server.url, tmp_path / "keys")
        async with run.connect("operator") as bus, run.connect("worker") as reader:
            seen: list[Record[Control]] = []
            reading = asyncio.create_task(collect(reader, 90, seen))
            await publish(bus, 30)
            with capture_logs():
                for round in (1, 2):
                    server.kill()
                    publishing = asyncio.create_task(publish(bus, 30, first=30 * round))
                    await asyncio.sleep(0.3)
                    started = time.monotonic()
                    server.start()
                    await publishing
                    assert time.monotonic() - started < 10
                await asyncio.wait_for(reading, 10)
            assert [record.event.reason for record in seen] == [str(at) for at in range(90)]
            assert [record.sequence for record in seen] == list(range(1, 91))


async def test_reading_survives_lost_connections_and_consumers(run: Run) -> None:
    async with (
        Proxy(run.url) as proxy,
        run.connect("operator") as bus,
        Bus.connect(proxy.url, run.name, run.identity("worker")) as reader,
    ):
        seen: list[Record[Control]] = []
        reading = asyncio.create_task(collect(reader, 400, seen))
        with capture_logs():
            for at in range(4):
                await publish(bus, 100, first=100 * at)
                if at % 2:
                    proxy.cut()
                else:
                    stream = f"{run.name}_CONTROL"
                    for consumer in await bus.connection.js.consumers_info(stream):
                        await bus.connection.js.delete_consumer(stream, consumer.name)
            await asyncio.wait_for(reading, 10)
        assert [record.sequence for record in seen] == list(range(1, 401))


async def test_a_reader_that_stops_leaves_no_consumer(run: Run) -> None:
    async with run.connect("operator") as bus:
        await publish(bus, 1)
        async for _ in bus.records(Control, live=False):
            pass
        records = bus.records(Control)
        await anext(records)
        await records.aclose()
        async with asyncio.timeout(
            20
        ):  # the server deletes them in its own time, long before they would expire
            while await bus.connection.js.consumers_info(f"{run.name}_CONTROL"):
                pass  # each question is a round trip


async def test_what_cannot_be_believed_is_skipped_with_its_reason(run: Run) -> None:
    async with run.connect("operator") as bus, run.connect("operator", "stranger") as stranger:
        await publish(bus, 1)
        stored = await bus.connection.request(f"$JS.API.DIRECT.GET.{run.name}_CONTROL", b'{"seq": 1}')
        headers = {name: value for name, value in (stored.headers or {}).items() if name.startswith("Cairn-")}
        bad: list[tuple[bytes, dict[str, str]]] = [
            (b"junk", {"Cairn-Schema": "Control/1.0"}),
            (b"junk", headers),
            (stored.data, {**headers, "Cairn-Key": stranger.public_key}),
            (stored.data, {}),
        ]
        for payload, bad_headers in bad:
            await stranger.connection.request(f"{run.name}.control", payload, bad_headers or None)
        await publish(bus, 1, first=1)
        with capture_logs() as logs:
            seen = [record.sequence async for record in bus.records(Control, live=False)]
            assert await bus.get(Control, 2) is None
        assert seen == [1, 6]
        assert [entry["sequence"] for entry in logs] == [2, 3, 4, 5, 2]
        assert all(entry["reason"] and entry["log_level"] == "warning" for entry in logs)


async def test_get_last_and_end(run: Run) -> None:
    async with run.connect("worker") as bus:
        assert await bus.end("REQUESTS") == 0
        for groups in (1, 2):
            await bus.publish(WorkRequested(worker="self", groups=groups))
        assert await bus.end("REQUESTS") == 2
        record = await bus.get(WorkRequested, 1)
        assert record is not None
        assert record.event.groups == 1
        assert abs(record.timestamp - time.time()) < 60
        assert await bus.get(WorkRequested, 3) is None
        assert await bus.get(WorkReturned, 1) is None
        last = await bus.last(WorkRequested, worker=bus.public_key)
        assert last is not None
        assert (last.sequence, last.event.groups) == (2, 2)
        [first, second] = [each async for each in bus.records(WorkRequested, live=False)]
        assert (first, second) == (record, last)
        assert await bus.last(Verdict, worker="w", task="1", attempt=0, slice=0, ordinal=0) is None


async def test_a_stream_or_run_that_does_not_exist_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bus.client.PATIENCE_SECONDS", 0.1)
    async with Bus.connect(run.url, "elsewhere") as bus:
        with pytest.raises(NoStream, match="there is no stream elsewhere_TASKS"):
            await bus.end("TASKS")
        with pytest.raises(NoStream, match="no run 'elsewhere' on") as error:
            await anext(bus.records(Control))
        assert run.name in error.value.runs


async def test_an_anchor_decides_whose_run_it_is(run: Run) -> None:
    trainer, stranger = run.identity("trainer").public_key, run.identity("worker").public_key
    async with Bus.connect(run.url, run.name, anchor=(trainer,)) as bus:
        assert (await bus.wait_for_run(1)).signer == trainer
    async with Bus.connect(run.url, run.name, anchor=(stranger,)) as bus:
        with capture_logs(), pytest.raises(NoStream):
            await bus.wait_for_run(0)


async def test_a_later_run_created_changes_nothing(run: Run) -> None:
    async with run.connect("trainer") as bus:
        first = await bus.wait_for_run(1)
        await bus.publish(EXAMPLES["RunCreated"].replace(run=run.name))
    async with run.connect("worker") as worker:
        assert await worker.wait_for_run(1) == first
