"""A process of a local stack lives no longer than the one that started it, whatever that one died of."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from typing import IO

PARENT = "CAIRN_PARENT"
"""Environment variable: the process id that this process is tied to."""
POLL_SECONDS = 0.5


async def spawn(
    *arguments: str, stdout: int | IO[bytes], stderr: int | IO[bytes]
) -> asyncio.subprocess.Process:
    """Start `cairn ARGUMENTS` as a child that is tied to this process. Ctrl-C reaches only us: we end it."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.main", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, PARENT: str(os.getpid()), "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )


def watch() -> None:
    """If CAIRN_PARENT names the parent process, end this process soon after it has gone."""
    parent = int(os.environ.get(PARENT, "0"))
    if parent:
        threading.Thread(target=_wait_for_end, args=(parent,), name="parent-watch", daemon=True).start()


def _wait_for_end(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os._exit(1)  # nothing to tidy: every component may be killed at any moment
