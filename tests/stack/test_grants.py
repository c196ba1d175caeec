"""Grants that are not answered: each is closed once, and its task is not lost."""

from __future__ import annotations

from pathlib import Path

from bus import Bus, Identity
from bus.server import Server
from schemas import TaskGranted, WorkRequested
from tests.stack import invariants
from tests.stack.local import configure, finished, local
from tests.stack.watch import seen


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
