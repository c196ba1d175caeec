"""A small run as real processes, which tests kill at moments that they see on the bus."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from bus import Bus
from bus.server import Server
from cli.local import LocalRun
from cli.stack import Stack
from schemas.config import Config


class Processes:
    """stack: the processes by name. bus: the test's own look at the run. server: the run's nats-server."""

    def __init__(self, stack: Stack, bus: Bus, server: Server, folder: Path) -> None:
        self.stack, self.bus, self.server, self.folder = stack, bus, server, folder

    def signal(self, name: str, number: signal.Signals) -> None:
        pid = self.stack.members[name].pid
        assert pid is not None, f"{name} does not run"
        os.kill(pid, number)

    def kill(self, name: str) -> None:
        """kill -9; the stack starts it again."""
        self.signal(name, signal.SIGKILL)

    @contextmanager
    def let_go(self, name: str) -> Iterator[asyncio.subprocess.Process]:
        """A process that the stack neither waits for nor starts again from now on; it ends with the block."""
        member = self.stack.members[name]
        assert member.process is not None
        assert member.watching is not None
        member.watching.cancel()
        try:
            yield member.process
        finally:
            if member.process.returncode is None:
                member.process.kill()

    async def finished(self) -> None:
        """Wait until trainer and evaluator have ended well."""
        await self.stack.ended("trainer")
        await self.stack.ended("evaluator")


@asynccontextmanager
async def processes(
    config: Config, folder: Path, server: Server, workers: int = 1, relays: int = 1, seconds: float = 500.0
) -> AsyncIterator[Processes]:
    """Start the run of `config`; everything ends with the block, which may take `seconds`."""
    file = folder / "run.toml"
    file.write_text("")
    run = LocalRun(
        folder,
        config.run.name,
        server.url,
        file,
        dict(_dotted(config)),
        workers=workers,
        relays=relays,
        batch=4,
    )
    async with asyncio.timeout(seconds), Stack(folder / "logs") as stack:
        run.start(stack)
        async with Bus.connect(server.url, config.run.name, name="test") as bus:
            await bus.wait_for_run(timeout=120)
            yield Processes(stack, bus, server, folder)


def _dotted(config: Config) -> Iterator[tuple[str, str]]:
    """Every setting but those that a LocalRun chooses itself."""

    def walk(path: str, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for name, value in values.items():
            if isinstance(value, dict):
                yield from walk(f"{path}{name}.", value)
            else:
                yield f"{path}{name}", json.dumps(value)

    dumped = config.model_dump(mode="json")
    del dumped["bus"]["url"], dumped["relay"]["origin"], dumped["trust"]
    return walk("", dumped)
