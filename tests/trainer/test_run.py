"""The first event of a run: made once, and no reason to go on under other conditions."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from bus import NotTrusted
from bus.server import Server
from bus.testing import Run
from schemas import RunEnded
from schemas.config import ConfigError
from tests.schemas.examples import EXAMPLES
from trainer.run import create_or_resume
from trainer.secret import Secret

SECRET = Secret(b"s" * 32)


@pytest.fixture
async def new(nats_server: Server, tmp_path: Path) -> AsyncIterator[Run]:
    """A run that has not begun."""
    run = Run(nats_server.url, tmp_path / "keys", f"test-{secrets.token_hex(4)}")
    yield run
    await run.delete()


async def begin(
    started: Run, /, secret: Secret = SECRET, trainer: str = "test", **tables: dict[str, Any]
) -> bool:
    async with started.connect("trainer", trainer) as bus:
        return await create_or_resume(bus, started.config(**tables), secret)


async def end(run: Run, reason: str, steps: int) -> None:
    async with run.connect("trainer") as bus:
        ended = EXAMPLES["RunEnded"].replace(reason=reason, steps=steps)
        assert isinstance(ended, RunEnded)
        await bus.publish(ended)


async def test_a_run_is_created_once(new: Run) -> None:
    assert await begin(new)
    assert await begin(new)
    async with new.connect("node") as bus:
        created = (await bus.wait_for_run(timeout=5)).event
        assert created.commitment == SECRET.commitment
        assert created.config["run"]["name"] == new.name
        assert "torch" in created.software
        assert await bus.end("RUN") == 2  # WriterStarted, RunCreated


async def test_what_decides_what_the_numbers_mean_does_not_change(new: Run) -> None:
    await begin(new)
    with pytest.raises(
        ConfigError,
        match=r"with other values of batch\.groups, loss\.kl; restore them or choose another run\.name",
    ):
        await begin(new, loss={"kl": 0.5}, batch={"groups": 3})


async def test_what_only_says_how_it_runs_may_change(new: Run) -> None:
    await begin(new)
    assert await begin(new, relay={"chunk_bytes": 4096}, run={"name": new.name, "steps": 7})


async def test_another_secret_is_refused(new: Run) -> None:
    await begin(new)
    with pytest.raises(
        ConfigError, match=r"the secret of run .* is another one; point run\.secret to its file"
    ):
        await begin(new, secret=Secret(b"t" * 32))


async def test_another_trainer_is_refused(new: Run) -> None:
    await begin(new)
    with pytest.raises(NotTrusted, match="was created by another trainer"):
        await begin(new, trainer="other")


@pytest.mark.parametrize("reason", ["finished", "stopped"])
async def test_a_run_that_has_ended_is_left_alone(new: Run, reason: str) -> None:
    await begin(new)
    await end(new, reason, steps=100)
    with capture_logs() as logs:
        assert not await begin(new)
    assert [entry["event"] for entry in logs] == ["the run has ended already"]


async def test_more_steps_than_a_run_that_has_finished(new: Run) -> None:
    await begin(new)
    await end(new, "finished", steps=100)
    with pytest.raises(
        ConfigError, match=r"has ended after 100 steps, 101 are wanted; choose another run\.name"
    ):
        await begin(new, run={"name": new.name, "steps": 101})
