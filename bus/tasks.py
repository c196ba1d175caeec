"""Tasks side by side, none left behind: everything that is started here has ended when the call returns."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

log = structlog.get_logger()


async def together(*work: Coroutine[Any, Any, None]) -> None:
    """Run all side by side; the first error stops the others and is raised as it is."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        await cancel(*tasks)


async def beside(main: Coroutine[Any, Any, None], *helpers: Coroutine[Any, Any, None]) -> None:
    """Run `main` to its end with helpers beside it, which end with it; the first error of any is raised."""
    leading = asyncio.create_task(main)
    tasks = [leading, *(asyncio.create_task(each) for each in helpers)]
    try:
        waiting = set(tasks)
        while not leading.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        leading.result()
    finally:
        await cancel(*tasks)


async def cancel(*work: asyncio.Future[Any]) -> None:
    """Cancel and wait; again, because nats-py swallows a cancellation that meets it while it flushes."""
    pending = {each for each in work if not each.done()}
    while pending:
        for each in pending:
            each.cancel()
        _, pending = await asyncio.wait(pending, timeout=1.0)
    for each in work:
        if not each.cancelled() and (error := each.exception()) is not None:
            log.debug("ended with an error while stopping", error=repr(error))
