"""Rewards in a child process with a wall-clock limit: an environment that hangs or crashes takes nothing with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import struct
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import msgpack

from schemas.config import ConfigError

LENGTH = struct.Struct(">I")
LOAD_SECONDS = 600.0


@dataclass(frozen=True)
class Scored:
    """The reward of one completion and the environment's metrics."""

    reward: float
    metrics: dict[str, float]


@dataclass(frozen=True)
class ScoringFailed:
    """This completion could not be judged, which is not a reward of 0; the reason is for people."""

    reason: str


class Scorer:
    """Scores completions of one environment in one child process. Use as an async context manager.

    seconds: wall-clock limit for the reward and metrics of one completion. A child that exceeds it or dies is
    killed with its process group and started again for the completions that remain.
    """

    def __init__(self, name: str, arguments: Mapping[str, Any] | None = None, seconds: float = 10.0) -> None:
        self._environment = [name, dict(arguments or {})]
        self._seconds = seconds
        self._child: Process | None = None
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Start the child. Raises ConfigError when the environment cannot be loaded."""
        await self._start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._kill()

    async def score(self, index: int, texts: Sequence[str]) -> list[Scored | ScoringFailed]:
        """Outcomes of the completions `texts` of task `index`, in their order. Calls may overlap: they queue."""
        outcomes: list[Scored | ScoringFailed] = []
        async with self._turn:
            while len(outcomes) < len(texts):
                child = self._child or await self._start()
                try:
                    await self._answer(child, index, texts[len(outcomes) :], outcomes)
                except TimeoutError:
                    outcomes.append(ScoringFailed(f"took longer than {self._seconds:g} s"))
                    await self._kill()
                except (asyncio.IncompleteReadError, ConnectionError):
                    code = await child.wait()
                    outcomes.append(ScoringFailed(f"the scoring process died with exit code {code}"))
                    await self._kill()
                except (
                    BaseException
                ):  # cancelled: replies that nobody reads would be taken for the next call's
                    await self._kill()
                    raise
        return outcomes

    async def _answer(
        self, child: Process, index: int, texts: Sequence[str], outcomes: list[Scored | ScoringFailed]
    ) -> None:
        """One request; its replies are appended as they come, so that the one that fails is known."""
        await _send(child, [index, list(texts)])
        for _ in texts:
            reply = await asyncio.wait_for(_receive(child), self._seconds)
            outcomes.append(ScoringFailed(reply) if isinstance(reply, str) else Scored(*reply))

    async def _start(self) -> Process:
        command = [sys.executable, "-P", "-m", "environments.scoring_child"]
        child = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, start_new_session=True
        )
        self._child = child
        try:
            await _send(child, [*self._environment, os.getpid()])
            problem = await asyncio.wait_for(_receive(child), LOAD_SECONDS)
        except (asyncio.IncompleteReadError, ConnectionError):
            problem = (
                f"environment {self._environment[0]!r}: its process died while loading; see its output above"
            )
        except BaseException:
            await self._kill()
            raise
        if problem is not None:
            await self._kill()
            raise ConfigError(problem)
        return child

    async def _kill(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        assert child.stdin
        child.stdin.close()
        await child.wait()


async def _send(child: Process, message: Any) -> None:
    assert child.stdin
    child.stdin.write(pack(message))
    await child.stdin.drain()


async def _receive(child: Process) -> Any:
    assert child.stdout
    (length,) = LENGTH.unpack(await child.stdout.readexactly(LENGTH.size))
    return unpack(await child.stdout.readexactly(length))


def pack(message: Any) -> bytes:
    """One message with its length in front. Lone surrogates survive: a model may write anything."""
    body: bytes = msgpack.packb(message, unicode_errors="surrogatepass")
    return LENGTH.pack(len(body)) + body


def unpack(body: bytes) -> Any:
    return msgpack.unpackb(body, unicode_errors="surrogatepass")
