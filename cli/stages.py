"""What has to be done before a run can begin, shown stage by stage; a stage may be another `cairn` command."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from cli import parent
from schemas.config import ConfigError
from schemas.errors import CairnError

TAIL = 20
"""Last lines of a failed command that are shown when they are no clear message."""

Tell = Callable[[str], None]


@contextmanager
def stage(console: Console, what: str) -> Iterator[Tell]:
    """Show `what` while the body runs, with the details that it tells: a spinner in a terminal, else lines."""
    started = time.monotonic()
    if not console.is_terminal:
        console.print(Text(what))
        yield lambda detail: console.print(Text(f"  {detail}"), soft_wrap=True)
        return
    with console.status(Text(what)) as status:
        yield lambda detail: status.update(Text(what).append(f"  {detail}", style="dim"))
    console.print(Text("✓ ", "green") + Text(what) + Text(f"  {time.monotonic() - started:.0f} s", "dim"))


async def output_of(tell: Tell, *arguments: str) -> str:
    """The last line that `cairn ARGUMENTS` prints on stdout; it is told each line of its stderr.

    Raises CairnError with the command's own message when it fails.
    """
    process = await parent.spawn(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    said: deque[str] = deque(maxlen=TAIL)
    reading = asyncio.create_task(process.stdout.read())
    try:
        async for line in process.stderr:
            said.append(line.decode(errors="replace").rstrip())
            tell(said[-1])
        output, code = (await reading).decode(), await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
        await asyncio.gather(reading, process.wait())
    if code:
        last = said[-1] if said else ""
        if not last.startswith("cairn"):
            raise RuntimeError(f"cairn {' '.join(arguments)} failed (exit code {code}):\n" + "\n".join(said))
        raise (ConfigError if code == ConfigError.exit_code else CairnError)(last.partition(": ")[2])
    return output.strip().splitlines()[-1]
