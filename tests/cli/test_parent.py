from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import asyncio, subprocess, sys
from cli import parent

async def main():
    child = await parent.spawn(*sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(child.pid, flush=True)
    await child.wait()

asyncio.run(main())
"""


async def test_a_child_ends_with_its_parent_whatever_that_died_of(tmp_path: Path) -> None:
    waits = ("relay", "--url", "nats://127.0.0.1:1", "--keys", tmp_path)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, *waits, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    child = int(await process.stdout.readline())
    os.kill(child, 0)  # it is there
    process.kill()
    await process.wait()
    async with asyncio.timeout(15):
        while running(child):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def running(pid: int) -> bool:
    """Whether it runs; one that has ended and that nobody waited for does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
