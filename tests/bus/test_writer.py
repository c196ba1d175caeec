"""The fenced writer: in order, many at once, never two of them."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from bus import Bus, BusError, Fenced, Identity, NotTrusted, Writer
from bus.publish import WINDOW
from bus.streams import WRITER_STREAMS
from bus.testing import Run
from schemas import Control, RunCreated, TaskClosed, WriterStarted
from tests.bus.proxy import Proxy
from tests.schemas.examples import EXAMPLES


def closed(task: int) -> TaskClosed:
    return TaskClosed(worker="w", task=str(task), attempt=0, reason="dead")


async def tasks(bus: Bus) -> list[int]:
    return [int(record.event.task) async for record in bus.records(TaskClosed, live=False)]


async def test_epochs_rise_and_stand_in_every_stream(run: Run) -> None:
    async with run.connect("trainer") as bus:
        assert [(await Writer.open(bus)).epoch for _ in range(2)] == [1, 2]
        for stream in WRITER_STREAMS:
            records = [
                each.event async for each in bus.records(WriterStarted, live=False, writes=stream.lower())
            ]
            assert [event.epoch for event in records] == [1, 2]


async def test_many_at_once_keep_their_order(run: Run) -> None:
    async with run.connect("trainer") as bus:
        writer = await Writer.open(bus)
        count = 5 * WINDOW
        sequences = await asyncio.gather(*(writer.publish(closed(task)) for task in range(count)))
        assert sequences == list(range(2, count + 2))
        assert await tasks(bus) == list(range(count))


async def test_a_zombie_is_fenced_before_it_writes_one_more_event(run: Run) -> None:
    async with run.connect("trainer") as old_bus, run.connect("trainer") as new_bus:
        zombie = await Writer.open(old_bus)
        await zombie.publish(closed(0))
        await Writer.open(new_bus)
        results = await asyncio.gather(
            *(zombie.publish(closed(task)) for task in range(1, 9)), return_exceptions=True
        )
        assert {type(result) for result in results} == {Fenced}
        with pytest.raises(Fenced, match=r"another trainer .* has started \(epoch 2, this one has 1\)"):
            await zombie.publish(EXAMPLES["StepCompleted"])
        assert await tasks(new_bus) == [0]


async def test_what_an_earlier_life_stored_takes_a_place_of_its_own(run: Run) -> None:
    async with run.connect("trainer") as bus:
        await (await Writer.open(bus)).publish(closed(0))
        assert await (await Writer.open(bus)).publish(closed(0)) == 4
        assert await tasks(bus) == [0, 0]


async def test_a_writer_with_nothing_to_write_notices_too_that_it_was_replaced(run: Run) -> None:
    async with run.connect("trainer") as old_bus, run.connect("trainer") as new_bus:
        watching = asyncio.create_task((await Writer.open(old_bus)).watch())
        await Writer.open(new_bus)
        with pytest.raises(Fenced, match=r"another trainer .* has started \(epoch 2, this one has 1\)"):
            await watching


async def test_two_that_open_at_the_same_moment_never_both_write(run: Run) -> None:
    async with run.connect("trainer") as one, run.connect("trainer") as two:
        opened = await asyncio.gather(Writer.open(one), Writer.open(two), return_exceptions=True)
        writers = [each for each in opened if isinstance(each, Writer)]
        assert all(isinstance(each, Fenced) for each in opened if each not in writers)
        written = await asyncio.gather(*(each.publish(closed(0)) for each in writers), return_exceptions=True)
        assert sum(isinstance(each, int) for each in written) <= 1


async def test_acks_that_were_lost_are_read_back(run: Run) -> None:
    async with (
        Proxy(run.url) as proxy,
        run.connect("trainer") as watcher,
        Bus.connect(proxy.url, run.name, run.identity("trainer")) as bus,
    ):
        writer = await Writer.open(bus)
        await writer.publish(closed(0))
        proxy.deaf = True
        publishing = [asyncio.create_task(writer.publish(closed(task))) for task in range(1, 100)]
        async for record in watcher.records(TaskClosed):
            if record.event.task == "1":
                break
        proxy.deaf = False
        with capture_logs():
            proxy.cut()
            sequences = await asyncio.gather(*publishing)
        assert sequences == list(range(3, 102))
        assert await tasks(watcher) == list(range(100))


async def test_foreign_messages_are_stepped_over(run: Run) -> None:
    async with run.connect("trainer") as bus, run.connect("stranger") as stranger:
        writer = await Writer.open(bus)
        for subject in ("tasks.w.1.0", "tasks.writer"):
            headers = {"Cairn-Schema": "WriterStarted/1.0"}
            await stranger.connection.request(f"{run.name}.{subject}", b"junk", headers)
        with capture_logs() as logs:
            sequences = await asyncio.gather(*(writer.publish(closed(task)) for task in range(10)))
        assert sequences == list(range(4, 14))
        assert "a foreign message" in {entry["event"] for entry in logs}
        with capture_logs():
            assert await tasks(bus) == list(range(10))


async def test_a_cancelled_publish_does_not_stop_the_others(run: Run) -> None:
    async with run.connect("trainer") as bus:
        writer = await Writer.open(bus)
        publishing = [asyncio.create_task(writer.publish(closed(task))) for task in range(20)]
        await asyncio.sleep(0)
        publishing[0].cancel()
        results = await asyncio.gather(*publishing, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError] + [int] * 19
        assert await tasks(bus) == list(range(20))


async def test_only_the_trainer_writes(run: Run) -> None:
    async with run.connect("trainer", "stranger") as bus:
        with pytest.raises(NotTrusted, match="was created by another trainer"):
            await Writer.open(bus)


async def test_what_has_no_single_writer_is_refused(run: Run) -> None:
    async with run.connect("trainer") as bus:
        writer = await Writer.open(bus)
        with pytest.raises(NotTrusted, match="may not publish Control"):
            await writer.publish(Control(action="pause"))
        with pytest.raises(BusError, match=r"STANDINGS, which has no single writer; bus\.publish it"):
            await writer.publish(EXAMPLES["Credited"])


async def test_a_run_can_be_created_through_the_writer(run: Run) -> None:
    async with Bus.connect(run.url, f"{run.name}-2", Identity.create()) as bus:
        await bus.create_streams(run.config().bus)
        writer = await Writer.open(bus)
        await writer.publish(RunCreated(run=bus.run, config={}, commitment=bytes(32)))
        assert (await bus.wait_for_run(0)).signer == bus.public_key
        await writer.publish(closed(1))
        assert await tasks(bus) == [1]
    await Run(run.url, run.keys, bus.run).delete()
