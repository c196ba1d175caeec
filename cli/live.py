"""The live view of a run in the terminal: reward, lag, tokens, verdicts, and who waits for what."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from bus import Bus, Record
from cli.view import STREAMS, RunView

BARS = " ▁▂▃▄▅▆▇█"
REFRESH_SECONDS = 0.5
PLAIN_SECONDS = 10.0


async def follow(bus: Bus, view: RunView) -> None:
    """Fold every stream that the view knows, for ever."""

    async def one(kind: type[Any]) -> None:
        record: Record[Any]
        async for record in bus.records(kind, after=0):
            view.apply(record)

    async with asyncio.TaskGroup() as tasks:
        for kind in STREAMS:
            tasks.create_task(one(kind))


@asynccontextmanager
async def shown(view: RunView, console: Console, steps: int) -> AsyncIterator[None]:
    """Show the view while the body runs: live in a terminal, a line now and then elsewhere."""
    drawing = asyncio.create_task(
        _live(view, console, steps) if console.is_terminal else _plain(view, console, steps)
    )
    try:
        yield
    finally:
        drawing.cancel()
        await asyncio.wait([drawing])


async def _live(view: RunView, console: Console, steps: int) -> None:
    with Live(render(view, steps), console=console, refresh_per_second=4, transient=True) as live:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            live.update(render(view, steps))


async def _plain(view: RunView, console: Console, steps: int) -> None:
    while True:
        await asyncio.sleep(PLAIN_SECONDS)
        console.print(line(view, steps))


def line(view: RunView, steps: int) -> str:
    """One line for logs."""
    last = view.steps[-1].metrics if view.steps else {}
    waits = [f"{view.name(node)} {beat.state}" for node, (beat, _) in view.nodes.items() if beat.waiting]
    return (
        f"step {len(view.steps)}/{steps}  reward {last.get('reward', 0):.3f}  lag {last.get('lag_mean', 0):.1f}  "
        f"{view.tokens_per_second():.0f} tokens/s  accepted {view.accepted()}  rejected {view.rejected()}"
        + (f"  waiting: {'; '.join(waits[:3])}" if waits else "")
    )


def render(view: RunView, steps: int) -> RenderableType:
    return Panel(Group(_training(view, steps), _nodes(view)), title="cairn", border_style="cyan")


def _training(view: RunView, steps: int) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column()
    rewards = [step.metrics.get("reward", 0.0) for step in view.steps]
    table.add_row("step", f"{len(view.steps)} of {steps}")
    table.add_row("reward", f"{spark(rewards)}  {rewards[-1]:.3f}" if rewards else "no step yet")
    for version, done in sorted(view.evals.items())[-4:]:
        measured = "  ".join(f"{name} {value:.3f}" for name, value in done.metrics.items())
        table.add_row(f"policy {version}", f"{measured}  ({done.samples} held-out prompts)")
    table.add_row("lag", "  ".join(f"{lag}: {count}" for lag, count in sorted(view.lags.items())) or "-")
    table.add_row("tokens", f"{view.tokens_per_second():.0f}/s accepted")
    verdicts = view.outcomes
    counts = {outcome: sum(n for (_, o), n in verdicts.items() if o == outcome) for _, outcome in verdicts}
    table.add_row(
        "verdicts", "  ".join(f"{outcome} {count}" for outcome, count in sorted(counts.items())) or "-"
    )
    for node, reason in view.slashed.items():
        table.add_row("[red]slashed", f"[red]{view.name(node)}: {reason}")
    return table


def _nodes(view: RunView) -> Table:
    table = Table("node", "kind", "does or waits", "for", box=None, pad_edge=False, header_style="dim")
    now = time.time()
    for node, (beat, at) in sorted(view.nodes.items(), key=lambda item: (item[1][0].kind, item[1][0].name)):
        silent = now - at > 10
        style = "red" if silent else "yellow" if beat.waiting else "green"
        state = f"silent for {now - at:.0f} s" if silent else beat.state
        seconds = beat.seconds + max(0.0, now - at)
        table.add_row(view.name(node), beat.kind, f"[{style}]{state}", f"{seconds:.0f} s")
    return table


def spark(values: list[float], width: int = 40) -> str:
    """A curve in one line of block characters, from the least to the largest value."""
    if not values:
        return ""
    step = max(1, len(values) // width)
    means = [sum(values[at : at + step]) / len(values[at : at + step]) for at in range(0, len(values), step)]
    low, span = min(means), max(max(means) - min(means), 1e-9)
    return "".join(BARS[1 + int((value - low) / span * (len(BARS) - 2))] for value in means)
