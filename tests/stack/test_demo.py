"""`cairn demo` as people run it: it learns although its trainer is killed, goes on where it was, and leaves nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from bus import Bus
from bus.server import Server
from schemas import StepCompleted, TaskGranted
from schemas.config import parse
from tests.stack import invariants
from tests.stack.watch import coming, seen, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

GONE_SECONDS = 10.0
Demo = asyncio.subprocess.Process


@asynccontextmanager
async def demo(*arguments: str, seconds: float = 300.0, **environment: str) -> AsyncIterator[Demo]:
    """The command as a process, which ends with the block; the block may take `seconds`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.main", "demo", *arguments),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
    )
    try:
        async with asyncio.timeout(seconds):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def bus_of(folder: Path) -> AsyncIterator[Bus]:
    """The bus of the demo that runs in this folder, once there is one."""

    def ports() -> list[Path]:
        return [file for file in (folder / "nats").glob("*.ports") if file.read_text()]

    await until(lambda: bool(ports()), 120)
    url = json.loads(ports()[0].read_text())["nats"][0]
    async with Bus.connect(url, "demo", name="test") as bus:
        await bus.wait_for_run(timeout=120)
        yield bus


def commands(parent: int) -> dict[int, str]:
    """Process id -> command line of every process below this one."""
    every: dict[int, tuple[int, str]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            status = (path / "stat").read_text().rpartition(")")[2].split()
            every[int(path.name)] = (int(status[1]), (path / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it ended meanwhile
            continue

    def below(process: int) -> Iterator[int]:
        for child, (its_parent, _) in every.items():
            if its_parent == process:
                yield child
                yield from below(child)

    return {child: every[child][1] for child in below(parent)}


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def gone(processes: dict[int, str]) -> None:
    """Within ten seconds none of them is left."""
    with suppress(TimeoutError):
        await until(lambda: not any(map(alive, processes)), GONE_SECONDS)
    assert [command for process, command in processes.items() if alive(process)] == []


async def test_killed_it_leaves_no_process_and_started_again_it_goes_on(tmp_path: Path) -> None:
    arguments = ("--run-dir", str(tmp_path), "--steps", "6", "--json")
    async with demo(*arguments) as process, bus_of(tmp_path) as bus:
        await seen(bus, StepCompleted, lambda event: event.step == 2)
        processes = commands(process.pid)
        process.kill()
        await gone(processes)
    assert sum("scoring_child" in command for command in processes.values()) == 2
    assert sum("nats-server" in command for command in processes.values()) == 1
    async with demo(*arguments) as process, bus_of(tmp_path) as bus:
        await coming(bus, TaskGranted)
        (server,) = [pid for pid, command in commands(process.pid).items() if "nats-server" in command]
        os.kill(server, signal.SIGKILL)
        output, _ = await process.communicate()
    assert process.returncode == 1, "six steps do not reach the bar"
    assert json.loads(output.decode().splitlines()[-1])["steps"] == 6
    with Server(tmp_path / "nats") as server_again:
        async with Bus.connect(server_again.url, "demo", name="test") as bus:
            config = parse((await bus.wait_for_run(timeout=10)).event.config)
        bus_section = config.bus.model_copy(update={"url": server_again.url})
        await invariants.check(config.model_copy(update={"bus": bus_section}))


async def test_interrupted_it_leaves_no_process(tmp_path: Path) -> None:
    async with (
        demo("--run-dir", str(tmp_path), "--steps", "50", "--json") as process,
        bus_of(tmp_path) as bus,
    ):
        await seen(bus, StepCompleted)
        processes = commands(process.pid)
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(GONE_SECONDS):
            output, _ = await process.communicate()
        await gone(processes)
    assert process.returncode == 130
    assert not output


async def test_killed_while_it_makes_its_model_it_leaves_no_process(tmp_path: Path) -> None:
    """With a home of its own, so that no model is there yet."""
    async with demo("--json", HOME=str(tmp_path)) as process:
        await until(lambda: any(" tiny " in command for command in commands(process.pid).values()))
        processes = commands(process.pid)
        process.kill()
        await gone(processes)


async def test_it_learns_although_its_trainer_is_killed(tmp_path: Path) -> None:
    arguments = ("--run-dir", str(tmp_path), "--json")
    async with demo(*arguments, seconds=800.0) as process, bus_of(tmp_path) as bus:
        await seen(bus, StepCompleted, lambda event: event.step == 15)
        (trainer,) = [pid for pid, command in commands(process.pid).items() if "cli.main train " in command]
        os.kill(trainer, signal.SIGKILL)
        output, _ = await process.communicate()
    figures = json.loads(output.decode().splitlines()[-1])
    assert process.returncode == 0, figures
    assert figures["reward_first"] <= 0.5
    assert figures["reward_last"] >= 0.9
    assert figures["honest_rejected"] == figures["cheat_trained"] == 0
    assert figures["max_lag_seen"] <= 2
