"""The processes of a local stack: started together, restarted when they die, ended together."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from cli import parent
from schemas.config import ConfigError
from schemas.errors import CairnError

log = structlog.get_logger()

RESTARTS = 5
STOP_SECONDS = 10.0


@dataclass
class Member:
    """One process: the arguments of `cairn`, its log, how often it was restarted, and the task that watches it."""

    name: str
    arguments: Sequence[str]
    log: Path
    restarts: int = 0
    process: asyncio.subprocess.Process | None = None
    watching: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process and self.process.returncode is None else None

    def last_line(self) -> str:
        """What the log says at its end, for an error message."""
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        return lines[-1].removeprefix("cairn: ") if lines else "it wrote nothing"

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if the process runs."""
        if self.process and self.pid:
            self.process.send_signal(number)


class StackFailed(CairnError):
    """A process of the stack keeps dying; the message has the last line of its log."""


class Stack:
    """Use as an async context manager; leaving it ends every process. logs: folder of their output."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self.members: dict[str, Member] = {}

    async def __aenter__(self) -> Self:
        self.logs.mkdir(parents=True, exist_ok=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def start(self, name: str, *arguments: str) -> Member:
        """Run `cairn ARGUMENTS` as `name` until it ends by itself; a crash restarts it, up to RESTARTS times."""
        member = Member(name, arguments, self.logs / f"{name}.log")
        self.members[name] = member
        member.watching = asyncio.create_task(self._keep(member), name=name)
        return member

    async def ended(self, name: str) -> None:
        """Wait until a member has ended well; raises StackFailed as soon as any member has given up."""
        wanted = self.members[name].watching
        assert wanted is not None
        while not wanted.done():
            watching = [member.watching for member in self.members.values() if member.watching]
            await asyncio.wait(
                [task for task in watching if not task.done()], return_when=asyncio.FIRST_COMPLETED
            )
            for task in watching:
                if task.done():
                    task.result()
        wanted.result()

    async def stop(self) -> None:
        """SIGTERM to all, then SIGKILL to those that take too long."""
        for member in self.members.values():
            if member.watching:
                member.watching.cancel()
            member.signal(signal.SIGTERM)
        running = [member.process.wait() for member in self.members.values() if member.process and member.pid]
        if running:
            await asyncio.wait([asyncio.ensure_future(wait) for wait in running], timeout=STOP_SECONDS)
        for member in self.members.values():
            member.signal(signal.SIGKILL)
            if member.process:
                await member.process.wait()

    async def _keep(self, member: Member) -> None:
        while True:
            with member.log.open("ab") as output:
                member.process = await parent.spawn(*member.arguments, stdout=output, stderr=output)
            code = await member.process.wait()
            if code == 0:
                return
            if code == ConfigError.exit_code:  # the same again next time
                raise StackFailed(f"{member.name}: {member.last_line()}")
            if member.restarts == RESTARTS:
                raise StackFailed(
                    f"{member.name} keeps dying (exit code {code}): {member.last_line()}; see {member.log}"
                )
            log.warning("restarting", process=member.name, code=code)
            await asyncio.sleep(min(0.2 * 2**member.restarts, 5.0))
            member.restarts += 1
