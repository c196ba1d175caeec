from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cli import stack
from cli.stack import Member, Stack, StackFailed
from tests.cli.test_parent import running

WAITS = ("relay", "--url", "nats://127.0.0.1:1")
"""A cheap command that runs until it is ended: there is no server."""


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_KEYS", str(tmp_path / "keys"))


async def started(member: Member, text: str = "waiting for the server") -> int:
    """Wait until the process works; its process id."""
    async with asyncio.timeout(30):
        while member.pid is None or not member.log.exists() or text not in member.log.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return member.pid


async def gone(pid: int) -> None:
    async with asyncio.timeout(15):
        while running(pid):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_process_that_ends_well_is_not_started_again(tmp_path: Path) -> None:
    async with Stack(tmp_path / "logs") as together:
        member = together.start("keys", "keys", "show", "worker")
        await together.ended("keys")
        assert (member.restarts, member.pid) == (0, None)
    assert member.log.read_text().startswith("U")


async def test_a_process_that_is_killed_is_started_again(tmp_path: Path) -> None:
    async with Stack(tmp_path / "logs") as together:
        member = together.start("relay", *WAITS)
        first = await started(member)
        member.log.unlink()
        with capture_logs() as logs:
            os.kill(first, signal.SIGKILL)
            second = await started(member)
        assert second != first
        assert member.restarts == 1
        assert logs == [
            {"event": "restarting", "log_level": "warning", "process": "relay", "code": -signal.SIGKILL}
        ]
    await gone(second)


async def test_all_are_ended_with_the_stack_and_may_tidy_up(tmp_path: Path) -> None:
    async with Stack(tmp_path / "logs") as together:
        members = [together.start(f"relay-{at}", *WAITS, "--name", f"relay-{at}") for at in range(2)]
        pids = [await started(member) for member in members]
    assert [member.process.returncode for member in members if member.process] == [0, 0]
    for pid in pids:
        await gone(pid)


async def test_one_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "STOP_SECONDS", 0.2)
    async with Stack(tmp_path / "logs") as together:
        member = together.start("relay", *WAITS)
        pid = await started(member)
        os.kill(pid, signal.SIGSTOP)
    assert member.process is not None
    assert member.process.returncode == -signal.SIGKILL


async def test_one_that_keeps_dying_ends_the_wait_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack, "RESTARTS", 1)
    (tmp_path / "file").touch()
    async with Stack(tmp_path / "logs") as together:
        together.start("relay", *WAITS)
        together.start("bad", "keys", "show", "worker", "--keys", str(tmp_path / "file"))
        with (
            capture_logs(),
            pytest.raises(StackFailed, match=r"bad keeps dying \(exit code 1\): cannot use the key file"),
        ):
            await together.ended("relay")


async def test_a_wrong_configuration_is_not_tried_again(tmp_path: Path) -> None:
    async with Stack(tmp_path / "logs") as together:
        member = together.start("trainer", "train", "missing.toml")
        with pytest.raises(StackFailed, match=r"^trainer: cannot read missing\.toml"):
            await together.ended("trainer")
        assert member.restarts == 0


def test_what_wrote_nothing_says_so(tmp_path: Path) -> None:
    assert Member("x", (), tmp_path / "none.log").last_line() == "it wrote nothing"
