"""Waiting for what happens in a run: on the bus, and where there is no bus."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import TypeVar

from bus import Bus, Record
from schemas import Event

E = TypeVar("E", bound=Event)


async def seen(
    bus: Bus, kind: type[E], wanted: Callable[[E], bool] = lambda _: True, after: int = 0
) -> Record[E]:
    """The first such event after a sequence, as soon as it is stored."""
    async with aclosing(bus.records(kind, after=after)) as records:
        async for record in records:
            if wanted(record.event):
                return record
    raise AssertionError("the stream has no end")


async def coming(bus: Bus, kind: type[E]) -> Record[E]:
    """The next event of a kind, from now on."""
    return await seen(bus, kind, after=await bus.end(kind.stream))


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """For files and processes, which tell nobody. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
