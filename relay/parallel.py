"""Shapes of concurrency: many items a few at a time, one piece of work for many askers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from bus.tasks import together

Item = TypeVar("Item")


async def for_each(items: Iterable[Item], at_once: int, work: Callable[[Item], Awaitable[None]]) -> None:
    """Run `work(item)` for every item, at most `at_once` at a time; the first error stops all and is raised."""
    pending = iter(items)

    async def worker() -> None:
        for item in pending:
            await work(item)

    await together(*(worker() for _ in range(at_once)))


class SingleFlight:
    """All who ask for the same key while its work runs wait for that one run and share its outcome.

    The work goes on when its askers leave: what is half fetched for one is wanted by the next.
    """

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[None]] = {}

    async def run(self, key: str, work: Callable[[], Awaitable[None]]) -> None:
        """Join the run of `key`, or start it; raises what the work raises."""
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(_call(work))
            task.add_done_callback(lambda done: self._finished(key, done))
        await asyncio.shield(task)

    def _finished(self, key: str, task: asyncio.Task[None]) -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # seen: the askers may all have left

    async def close(self) -> None:
        """Cancel what runs and wait for its end."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _call(work: Callable[[], Awaitable[None]]) -> None:
    await work()
