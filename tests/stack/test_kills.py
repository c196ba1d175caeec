"""Any process killed with -9, anywhere: the run finishes, and its streams are as if nothing had happened."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from bus.server import Server
from schemas import BatchFormed, PolicyPublished, Proof, Rollouts, RunCreated, StepCompleted
from tests.stack import invariants
from tests.stack.local import configure
from tests.stack.processes import Processes, processes
from tests.stack.watch import coming, seen, until

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
    await until(lambda: any(checkpoints.glob(".unfinished*")))
    run.kill("trainer")


async def test_everything_else_killed_one_after_the_other(tmp_path: Path) -> None:
    """One process at every step, while those killed before are still coming back."""
    with Server(tmp_path / "nats") as server:
        config = configure(server.url, tmp_path, run={"name": "all-killed", "steps": 9})
        async with processes(config, tmp_path, server, workers=2, relays=2) as run:
            for victim in ("worker-1", "validator", "relay-1", "origin", "evaluator", "relay-2", "worker-2"):
                await coming(run.bus, StepCompleted)
                run.kill(victim)
            await coming(run.bus, StepCompleted)
            server.kill()
            server.start()
            await run.finished()
        history = await invariants.check(config)
    assert not history.closes("rejected", "dead")
    assert {0, config.run.steps} <= {record.event.version for record in history.evals}


async def test_a_worker_killed_or_stopped_answers_or_returns_each_grant_once(
    nats_server: Server, tmp_path: Path
) -> None:
    config = configure(nats_server.url, tmp_path, run={"name": "worker-killed", "steps": 6})
    async with processes(config, tmp_path, nats_server) as run:
        for moment in (Proof, Rollouts, Proof, Rollouts):
            await coming(run.bus, moment)
            run.kill("worker-1")
        await coming(run.bus, Proof)
        with run.let_go("worker-1") as stopped:
            stopped.terminate()
            assert await stopped.wait() == 0
        run.stack.start("worker-1", *run.stack.members["worker-1"].arguments)
        await run.finished()
    history = await invariants.check(config)
    answers = Counter(record.subject for record in history.rollouts.values())
    assert max(answers.values()) == 1
    given_back = {(event.task, event.attempt) for event in history.closes("returned")}
    assert given_back
    assert not given_back & {(r.event.task, r.event.attempt) for r in history.rollouts.values()}
    assert {"the worker was restarted", "the worker stops"} == {r.event.reason for r in history.returned}
    assert not history.closes("expired", "rejected", "void")


async def test_a_trainer_believed_dead_wakes_up_and_writes_nothing(
    nats_server: Server, tmp_path: Path
) -> None:
    """Stopped for a while, as a machine that sleeps; meanwhile another one trains."""
    config = configure(nats_server.url, tmp_path, run={"name": "zombie", "steps": 8})
    async with processes(config, tmp_path, nats_server) as run:
        await seen(run.bus, StepCompleted)
        with run.let_go("trainer") as zombie:
            zombie.send_signal(signal.SIGSTOP)
            member = run.stack.start("trainer", *run.stack.members["trainer"].arguments)
            member.log = tmp_path / "second.log"
            await coming(run.bus, StepCompleted)
            zombie.send_signal(signal.SIGCONT)
            code = await zombie.wait()
        lines = (tmp_path / "logs" / "trainer.log").read_text().splitlines()
        await run.finished()
    await invariants.check(config)
    assert code == 1
    assert lines[-1].startswith("cairn: another trainer of run zombie has started")
    assert "Traceback" not in "".join(lines)
