"""Grants that are not answered: returned, expired, taken over; each is closed once and its task is not lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from bus import Bus, Fenced, Identity, Writer, key_file
from bus.server import Server
from schemas import (
    BatchFormed,
    LineageStarted,
    PolicyPublished,
    StepCompleted,
    TaskGranted,
    WorkRequested,
)
from tests.stack import invariants
from tests.stack.local import configure, finished, local
from tests.stack.watch import coming, seen
from trainer.recovery import completed


async def test_a_worker_that_stops_returns_what_it_has_not_answered(
    nats_server: Server, tmp_path: Path
) -> None:
    config = configure(nats_server.url, tmp_path, run={"name": "stops"})
    async with local(config, tmp_path) as running, Bus.connect(nats_server.url, "stops", name="test") as bus:
        running.trainer()
        running.relays()
        running.validator()
        running.worker()
        await bus.wait_for_run(timeout=30)
        await seen(bus, TaskGranted)
        await running.end("worker")
        running.worker("other")
        await finished(running)
        stopped = running.key("worker", "worker")
    history = await invariants.check(config)
    assert {event.worker for event in history.closes("returned")} == {stopped}
    assert not history.closes("expired", "dead")
    given = {
        (record.event.task, record.event.attempt)
        for record in history.granted
        if record.event.worker == stopped
    }
    answered = {(record.event.task, record.event.attempt) for record in history.rollouts.values()}
    returned = {(record.event.task, record.event.attempt) for record in history.returned}
    assert given == given & (answered | returned)
    assert not answered & returned


async def test_a_grant_that_expires_is_granted_again(nats_server: Server, tmp_path: Path) -> None:
    config = configure(nats_server.url, tmp_path, run={"name": "expires"}, sampling={"seconds": 3.0})
    silent = Identity.create()
    request = WorkRequested(worker=silent.public_key, groups=2, seconds=60.0)
    async with local(config, tmp_path) as running, Bus.connect(nats_server.url, "expires", silent) as bus:
        running.trainer()
        running.relays()
        await bus.wait_for_run(timeout=30)
        await bus.publish(request)
        await seen(bus, TaskGranted, lambda event: event.worker == silent.public_key)
        await bus.publish(request.replace(groups=0))
        running.validator()
        running.worker()
        await finished(running)
    history = await invariants.check(config)
    expired = [event for event in history.closes("expired") if event.worker == silent.public_key]
    again = {
        record.event.task: record.event.worker for record in history.granted if record.event.attempt == 1
    }
    assert expired
    assert all(again[event.task] != silent.public_key for event in expired)


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
        with pytest.raises(ExceptionGroup) as raised:
            await older
        await finished(running)
    assert raised.group_contains(Fenced, match="another trainer of run two has started")
    await invariants.check(config)


@pytest.mark.parametrize("moment", [TaskGranted, BatchFormed, StepCompleted, PolicyPublished])
async def test_a_trainer_that_is_started_again_goes_on(
    nats_server: Server,
    tmp_path: Path,
    moment: type[TaskGranted | BatchFormed | StepCompleted | PolicyPublished],
) -> None:
    """Not killed with -9, as tests/stack/test_kills.py does, but in seconds."""
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


async def test_relays_go_and_come_back(nats_server: Server, tmp_path: Path) -> None:
    config = configure(nats_server.url, tmp_path, run={"name": "relays", "steps": 4})
    async with local(config, tmp_path) as running, Bus.connect(nats_server.url, "relays", name="test") as bus:
        running.trainer()
        running.relays()
        running.validator()
        running.worker()
        await bus.wait_for_run(timeout=30)
        await seen(bus, PolicyPublished)
        await running.end("relay")
        running.relay()  # on another port
        await running.end("origin")
        await coming(bus, StepCompleted)
        running.origin()
        await finished(running)
    history = await invariants.check(config)
    assert not history.closes("void", "dead")
