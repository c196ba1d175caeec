"""The whole stack on this machine, every proof and check on and everything audited, measured from its own streams."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Any

from bus import Bus, Record
from bus.server import Server
from bus.tasks import beside
from cli.local import LocalRun
from cli.stack import Stack
from schemas import EvalCompleted, PolicyPublished, StepCompleted, TaskGranted, Verdict
from schemas.config import load

RUN = "benchmark"
ENDLESS = 1_000_000
"""Steps; the clock ends the run."""


async def measure(
    config: Path, overrides: dict[str, str], seconds: float, every: int, bar: float
) -> dict[str, Any]:
    """Run until an evaluation meets the bar, for at most `seconds` after the first grant.

    Returns the figures of `read`, and restarts: of processes that died, which should be none.
    """
    overrides = overrides | {
        "run.steps": str(ENDLESS),
        "audit.share": "1.0",
        "evaluation.every": str(every),
    }
    settings = load(config, overrides)
    with tempfile.TemporaryDirectory(prefix="cairn-benchmark-") as name:
        folder = Path(name)
        with Server(folder / "nats") as server:
            run = LocalRun(folder, RUN, server.url, config, overrides)
            async with Stack(folder / "logs") as stack, Bus.connect(server.url, RUN, name="benchmark") as bus:
                run.start(stack)
                await beside(_until(bus, bar, seconds), stack.ended("trainer"))
                figures = await read(bus, bar, settings.batch.groups * settings.batch.group_size)
                return figures | {"restarts": sum(member.restarts for member in stack.members.values())}


async def read(bus: Bus, bar: float, batch: int) -> dict[str, Any]:
    """Figures of what the streams hold so far.

    rollouts_per_s: completions judged (accepted or rejected) between the first and the last step, a second.
    trained_per_s: those trained on. seconds_to_bar: from the first grant to the publication of the first policy that
    met the bar; unlike a loop's, it holds the time that evaluations took, because they run beside the training.
    Raises RuntimeError for fewer than two steps.
    """
    steps = await _records(bus, StepCompleted)
    if len(steps) < 2:
        raise RuntimeError(f"the stack made {len(steps)} step(s), too few for a rate; give more --seconds")
    evals = [record.event for record in await _records(bus, EvalCompleted)]
    published = {record.event.version: record.timestamp for record in await _records(bus, PolicyPublished)}
    granted = (await _records(bus, TaskGranted))[0].timestamp
    first, last = steps[0].timestamp, steps[-1].timestamp
    outcomes = [
        judgement.outcome
        for record in await _records(bus, Verdict)
        if first < record.timestamp <= last
        for judgement in record.event.judgements
    ]
    met = [done.version for done in evals if done.metrics["exact"] >= bar]
    judged = sum(outcome in ("accepted", "rejected") for outcome in outcomes)
    return {
        "rollouts_per_s": judged / (last - first),
        "trained_per_s": batch * (len(steps) - 1) / (last - first),
        "seconds_to_bar": published[min(met)] - granted if met else None,
        "steps": len(steps),
        "rejected": outcomes.count("rejected"),
        "exact": {done.version: done.metrics["exact"] for done in evals},
    }


async def _until(bus: Bus, bar: float, seconds: float) -> None:
    """Wait until the bar is met, or `seconds` after the first grant."""
    await bus.wait_for_run()
    async for _ in bus.records(TaskGranted, after=0):
        break
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            async for record in bus.records(EvalCompleted, after=0):
                if record.event.metrics["exact"] >= bar:
                    return


async def _records(bus: Bus, kind: type[Any]) -> list[Record[Any]]:
    return [record async for record in bus.records(kind, after=0, live=False)]
