"""What `cairn demo` says before it starts anything, and, slowly, a short demo as a person runs it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bus.server import Server
from cli import demo
from tests.cli.conftest import Cairn

KEYS = [
    *("steps", "reward_first", "reward_last", "rollouts_accepted", "rollouts_rejected", "rollouts_trained"),
    *("honest_rejected", "cheat_trained", "max_lag_seen", "policy_bytes_full", "policy_bytes_sent"),
    *("tokens_per_s", "seconds", "seed"),
]


@pytest.mark.parametrize("arguments", [["--steps", "0"], ["--steps", "many"], ["--seed", "-1"]])
def test_a_bad_number(cairn: Cairn, arguments: list[str]) -> None:
    cairn("demo", *arguments).fails_with(2, f"cairn demo: Invalid value for '{arguments[0]}'")


def test_a_folder_that_cannot_be_one(cairn: Cairn, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cairn("demo", "--run-dir", tmp_path / "file").fails_with(1, "file: File exists; choose another place")


async def test_the_server_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "SERVER_SECONDS", 0.01)
    with Server(tmp_path) as server, capture_logs() as logs:
        keeping = asyncio.create_task(demo._keep(server))
        first, url = server.pid, server.url
        assert first is not None
        os.kill(first, signal.SIGKILL)
        async with asyncio.timeout(10):
            while server.pid in (None, first):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        keeping.cancel()
        assert server.url == url
    assert logs == [{"event": "restarting", "log_level": "warning", "process": "nats-server"}]


def test_the_folder_of_a_run_that_went_well_is_gone() -> None:
    with demo._folder(None) as folder:
        (folder / "x").touch()
    assert not folder.exists()


def test_the_folder_of_a_failed_run_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(demo.StackFailed), demo._folder(None) as folder:
        raise demo.StackFailed("x keeps dying")
    assert capsys.readouterr().err == f"cairn: the run's folder was kept: {folder}\n"
    folder.rmdir()


@asynccontextmanager
async def in_a_terminal(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """`cairn demo ARGUMENTS` whose stderr is a terminal -> process, and the other end of the terminal."""
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.main", "demo", *arguments),
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "150", "LINES": "45"},
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        os.close(ours)


def read_until(terminal: int, text: str = "") -> str:
    """What the terminal shows until it shows `text`, or, without one, until its end."""
    seen = ""
    while not text or text not in seen:
        try:
            seen += os.read(terminal, 1 << 16).decode(errors="replace")
        except OSError:  # the other end is closed
            break
    return seen


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_short_demo(tmp_path: Path) -> None:
    """stdout has one JSON object, the terminal the view; the bar is missed and said to be."""
    async with in_a_terminal("--steps", "2", "--json", "--run-dir", str(tmp_path)) as (process, terminal):
        output, shown = await asyncio.gather(process.communicate(), asyncio.to_thread(read_until, terminal))
        assert process.returncode == 1
        figures = json.loads(output[0])
        assert list(figures) == KEYS
        assert (figures["steps"], figures["honest_rejected"], figures["cheat_trained"]) == (2, 0, 0)
        assert figures["rollouts_trained"] == 2 * 32 * 16
        for text in ("warmed up", "starting", "training step 1", "cheat-1", "exact", "below the bar of 90%"):
            assert text in shown
        assert "Traceback" not in shown
        assert "Writing model shards" not in shown


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_ctrl_c_ends_everything(tmp_path: Path) -> None:
    async with in_a_terminal("--run-dir", str(tmp_path)) as (process, terminal):
        await asyncio.to_thread(read_until, terminal, "training step 1")
        assert len(processes_of(tmp_path)) >= 10
        process.send_signal(signal.SIGINT)
        rest = await asyncio.to_thread(read_until, terminal)
        assert await process.wait() == 130
        assert f"stopped; the same command with --run-dir {tmp_path} goes on from here" in rest
        assert "Traceback" not in rest
        assert processes_of(tmp_path) == []


def processes_of(folder: Path) -> list[int]:
    """Those whose command line names the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(folder) in (process / "cmdline").read_text():
                found.append(int(process.name))
    return found
