"""Trainers, relays and servers that go and come back, in one process: seconds, where test_kills takes minutes."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from bus import Bus, Fenced, Identity, Writer, key_file
from bus.server import Server
from schemas import (
    BatchFormed,
    LineageStarted,
    PolicyPublished,
    Proof,
    StepCompleted,
    TaskGranted,
    Verdict,
)
from schemas.errors import mendable
from tests.stack import invariants
from tests.stack.local import configure, finished, local
from tests.stack.watch import coming, seen
from trainer.recovery import completed


async def test_of_two_trainers_the_older_ends(nats_server: Server, tmp_path: Path) -> None:
    config = configure(nats_server.url, tmp_path, run={"name": "two", "steps": 5})
    async with local(config, tmp_path) as running, Bus.connect(nats_server.url, "two", name="test") as bus:
        older = running.trainer()
        running.relays()
        running.validator()
        running.worker()
        await bus.wait_for_run(timeout=30)
        await seen(bus, StepCompleted)
        running.trainer()
        with pytest.raises((Fenced, ExceptionGroup)) as raised:
            await older
        await finished(running)
    assert str(mendable(raised.value)).startswith("another trainer of run two has started")
    await invariants.check(config)


@pytest.mark.parametrize("moment", [TaskGranted, BatchFormed, StepCompleted, PolicyPublished])
async def test_a_trainer_that_is_started_again_goes_on(
    nats_server: Server,
    tmp_path: Path,
    moment: type[TaskGranted | BatchFormed | StepCompleted | PolicyPublished],
) -> None:
    name = f"again-{moment.__name__}"
    config = configure(nats_server.url, tmp_path, run={"name": name, "steps": 4})
    async with local(config, tmp_path) as running, Bus.connect(nats_server.url, name, name="test") as bus:
        running.trainer()
        running.relays()
        running.validator()
        running.worker()
        await bus.wait_for_run(timeout=30)
        for _ in range(2):
            await coming(bus, moment)
            await running.end("trainer")
            running.trainer()
        await finished(running)
    await invariants.check(config)


async def test_other_weights_than_those_told_of_begin_a_new_lineage(
    nats_server: Server, tmp_path: Path
) -> None:
    """As on a machine that does not compute the same twice: here the test tells of another digest."""
    config = configure(
        nats_server.url, tmp_path, run={"name": "lineage", "steps": 4}, checkpoint={"every": 9}
    )
    trainer = Identity.load_or_create(key_file("trainer", "trainer", tmp_path / "keys"))
    async with local(config, tmp_path) as running, Bus.connect(nats_server.url, "lineage", trainer) as bus:
        running.trainer()
        running.relays()
        running.validator()
        running.worker()
        await bus.wait_for_run(timeout=30)
        batch = (await seen(bus, BatchFormed, lambda event: event.step == 1)).event
        await running.end("trainer")
        told = completed(batch, before="0" * 64, after="f" * 64, skipped="", metrics={})
        await (await Writer.open(bus)).publish(told)
        running.trainer()
        await seen(bus, LineageStarted)
        await coming(bus, StepCompleted)
        await running.end("trainer")
        running.trainer()
        await finished(running)
        history = await invariants.read(bus)
    assert [record.event.lineage for record in history.lineages] == [1]
    assert [record.event.step for record in history.batches] == [0, 1, 2, 3]
    versions = [record.event.version for record in history.policies]
    assert versions == sorted(set(versions))
    invariants.every_grant_is_closed_once(history)
    invariants.nothing_is_trained_twice(history)
    assert any(event.detail == "a new lineage began" for event in history.closes("cancelled"))


async def test_a_trainer_killed_before_its_first_event_begins_the_run(tmp_path: Path) -> None:
    """Streams and the epochs of a writer are there, but no RunCreated."""
    with Server(tmp_path / "nats") as server:
        config = configure(server.url, tmp_path, run={"name": "unborn"})
        trainer = Identity.load_or_create(key_file("trainer", "trainer", tmp_path / "keys"))
        async with Bus.connect(server.url, "unborn", trainer) as bus:
            await bus.create_streams(config.bus)
            await Writer.open(bus)
        async with local(config, tmp_path) as running:
            running.worker()
            running.relays()
            running.validator()
            running.trainer()
            await finished(running)
        await invariants.check(config)


async def test_the_server_killed_again_and_again(tmp_path: Path) -> None:
    with Server(tmp_path / "nats") as server:
        config = configure(server.url, tmp_path, run={"name": "server-killed", "steps": 4})
        async with local(config, tmp_path) as running, Bus.connect(server.url, "server-killed") as bus:
            running.trainer()
            running.relays()
            running.validator()
            running.worker()
            await bus.wait_for_run(timeout=30)
            for moment in (TaskGranted, Proof, Verdict, BatchFormed, StepCompleted):
                await seen(bus, moment)
                server.kill()
                server.start()
            await finished(running)
        await invariants.check(config)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # aiohttp, stopped while it opens a chunk
async def test_relays_go_and_come_back(nats_server: Server, tmp_path: Path) -> None:
    config = configure(nats_server.url, tmp_path, run={"name": "relays", "steps": 4})
    async with local(config, tmp_path) as running, Bus.connect(nats_server.url, "relays", name="test") as bus:
        running.trainer()
        running.relays()
        running.validator()
        running.worker()
        await bus.wait_for_run(timeout=30)
        await seen(bus, StepCompleted)
        await running.end("origin")
        await running.end("relay")
        running.relay()  # on another port
        await seen(bus, StepCompleted, lambda event: event.step == 1)  # for which version 0 suffices
        running.origin()
        await finished(running)
    history = await invariants.check(config)
    assert not history.closes("void", "dead")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # aiohttp, stopped while it opens a chunk
@pytest.mark.parametrize("seed", range(6))
async def test_anything_stopped_at_any_time(tmp_path: Path, seed: int) -> None:
    """What and when is drawn from the seed; a fault that is found so gets a test of its own."""
    chance = random.Random(seed)
    with Server(tmp_path / "nats") as server:
        config = configure(
            server.url, tmp_path, run={"name": f"any-{seed}", "steps": 8}, sampling={"seconds": 9.0}
        )
        async with local(config, tmp_path) as running:
            starts = {
                "trainer": running.trainer, "validator": running.validator, "worker": running.worker,
                "origin": running.origin, "relay": running.relay,
            }  # fmt: skip
            for start in starts.values():
                start()
            for _ in range(12):
                await asyncio.sleep(chance.uniform(0.0, 0.6))
                name = chance.choice([*starts, "trainer", "trainer", "server"])
                if running.tasks["trainer"].done():
                    break
                if name == "server":
                    server.kill()
                    server.start()
                else:
                    await running.end(name)
                    starts[name]()
            await finished(running)
        await invariants.check(config)
