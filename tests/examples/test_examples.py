"""The programs of examples/ as they are, beside a small live run."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import environments
from bus import Bus
from bus.server import Server
from environments import Scorer
from schemas import Control, Score
from schemas.config import Config
from tests.stack.local import Local, configure, finished, local, read

EXAMPLES = Path(__file__).parents[2] / "examples"
SUMS = f"{EXAMPLES / 'sums.py'}:Sums"


@asynccontextmanager
async def program(name: str, config: Config, keys: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """An example, started as a user would."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, EXAMPLES / name),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={
            **os.environ,
            "CAIRN_URL": config.bus.url,
            "CAIRN_RUN": config.run.name,
            "CAIRN_KEYS": str(keys),
            "PYTHONUNBUFFERED": "1",
        },
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


def start(running: Local) -> None:
    running.trainer()
    running.relays()
    running.validator()
    running.worker()


async def test_variety_scores_the_rollouts_of_a_run(nats_server: Server, tmp_path: Path) -> None:
    config = configure(nats_server.url, tmp_path, run={"name": "varied", "steps": 100_000})
    async with (
        local(config, tmp_path) as running,
        program("variety.py", config, tmp_path / "keys") as variety,
    ):
        start(running)
        await first_score(config, running.key("filter", "variety"))
        async with Bus.connect(config.bus.url, "varied", running.identity("operator", "operator")) as bus:
            await bus.publish(Control(action="stop"))
        await finished(running)
        _, errors = await variety.communicate()
    assert variety.returncode == 0, errors.decode()


async def first_score(config: Config, ranker: str) -> None:
    """Wait for it, and look at it as whoever uses scores does: by the key that counts."""
    async with Bus.connect(config.bus.url, config.run.name) as bus:
        await bus.wait_for_run(timeout=60)
        async with aclosing(bus.read(Score, ranker=ranker)) as scores:
            _, score = await anext(scores)
    assert len(score.scores) == config.batch.group_size
    assert all(0 < value <= 1 for value in score.scores)


async def test_watch_pauses_a_run_and_tells_its_policies(nats_server: Server, tmp_path: Path) -> None:
    config = configure(nats_server.url, tmp_path, run={"name": "demo", "steps": 1})
    async with local(config, tmp_path) as running:
        start(running)
        async with Bus.connect(config.bus.url, "demo", running.identity("operator", "operator")) as bus:
            await bus.wait_for_run(timeout=60)
            async with program("watch.py", config, tmp_path / "keys") as watch:
                assert watch.stdout is not None
                sequence, version = (await watch.stdout.readline()).split()
                assert int(sequence) > 0
                assert int(version) == 0
                async with aclosing(bus.read(Control)) as commands:
                    _, command = await anext(commands)
                assert command.action == "pause"
                await bus.publish(Control(action="resume"))
                assert (await watch.stdout.readline()).split()[1] == b"1"
        await finished(running)


async def test_sums_are_an_environment() -> None:
    sums = environments.load(SUMS)
    index = sums.tasks().index((12, 30))
    assert sums.prompt(sums.tasks()[index]) == "12+30="
    async with Scorer(SUMS) as scorer:
        rewards = await scorer.score(index, ["42", " 42\n", "43", ""])
    assert [scored.reward for scored in rewards] == [1.0, 1.0, 0.0, 0.0]  # type: ignore[union-attr]


async def test_sums_are_asked_and_judged_in_a_run(nats_server: Server, tmp_path: Path) -> None:
    environment = {"name": SUMS, "arguments": {}}
    config = configure(nats_server.url, tmp_path, run={"name": "sums"}, environment=environment)
    async with local(config, tmp_path) as running:
        start(running)
        async with asyncio.timeout(60):
            while not (await read(config)).accepted():  # noqa: ASYNC110
                await asyncio.sleep(0.2)


def test_the_readme_shows_the_program_as_it_is() -> None:
    shown = re.search(
        r"```python\n# variety\.py\n(.*?)```", (EXAMPLES.parent / "README.md").read_text(), re.DOTALL
    )
    assert shown is not None
    _, _, program = (EXAMPLES / "variety.py").read_text().partition('"""\n\n')
    assert _plain(shown[1]) == _plain(program)


def _plain(code: str) -> list[str]:
    """Its lines, without empty ones and with single spaces: layout is each page's own."""
    return [" ".join(line.split()) for line in code.splitlines() if line.strip()]
