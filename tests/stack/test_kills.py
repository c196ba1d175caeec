"""Any process killed with -9, anywhere: the run finishes, and its streams are as if nothing had happened."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from bus.server import Server
from schemas import BatchFormed, PolicyPublished, RunCreated, StepCompleted
from tests.stack import invariants
from tests.stack.local import configure
from tests.stack.processes import Processes, processes
from tests.stack.watch import coming, seen

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


async def test_the_trainer_killed_at_every_kind_of_moment(nats_server: Server, tmp_path: Path) -> None:
    config = configure(
        nats_server.url,
        tmp_path,
        run={"name": "trainer-killed", "steps": 8},
        batch={"groups": 4, "group_size": 8, "tokens": 64},
        optimizer={"steps_per_batch": 4},
        checkpoint={"every": 2},
    )
    async with processes(config, tmp_path, nats_server, workers=2) as run:
        await before_its_first_policy(run)
        await after_a_batch_without_its_step(run)
        await after_a_step_without_its_policy(run)
        await during_a_checkpoint(run)
        await run.finished()
    await invariants.check(config)


async def before_its_first_policy(run: Processes) -> None:
    await seen(run.bus, RunCreated)
    run.kill("trainer")
    await seen(run.bus, StepCompleted)


async def after_a_batch_without_its_step(run: Processes) -> None:
    batch = (await coming(run.bus, BatchFormed)).event
    run.kill("trainer")
    done = await run.bus.last(StepCompleted)
    assert done is not None
    assert done.event.step == batch.step - 1
    await seen(run.bus, StepCompleted, lambda event: event.step == batch.step)


async def after_a_step_without_its_policy(run: Processes) -> None:
    """The origin stands still meanwhile, so that no policy can leave."""
    run.signal("origin", signal.SIGSTOP)
    step = (await coming(run.bus, StepCompleted)).event
    run.kill("trainer")
    run.signal("origin", signal.SIGCONT)
    last = await run.bus.last(PolicyPublished)
    assert last is not None
    assert last.event.version < step.version
    await seen(run.bus, PolicyPublished, lambda event: event.version == step.version)


async def during_a_checkpoint(run: Processes) -> None:
    checkpoints = run.folder / "trainer" / "checkpoints"
    while not list(checkpoints.glob(".unfinished*")):  # noqa: ASYNC110 (a file system tells nothing)
        await asyncio.sleep(0.001)
    run.kill("trainer")
