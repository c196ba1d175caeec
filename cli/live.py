"""The live view of a run in the terminal: reward, lag, tokens, verdicts, and who waits for what.

Names, states and reasons come from strangers: they are shown as plain text, short, without control characters.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from bus import Bus, Record
from bus.logs import printable
from bus.tasks import cancel, together
from cli.view import STREAMS, RunView
from schemas import Heartbeat

BARS = " ▁▂▃▄▅▆▇█"
REFRESH_SECONDS = 0.5
PLAIN_SECONDS = 10.0
SILENT_SECONDS = 10.0
"""A node that has said nothing for so long is shown as silent; heartbeats come every two."""
NODES = 40
"""Rows; anyone may send heartbeats, and a terminal is small."""
TEXT_LENGTH = 80
WIDE = 100
"""Columns of a terminal that has room for each node's figures."""


async def follow(bus: Bus, view: RunView) -> None:
    """Fold every stream that the view knows, for ever."""

    async def one(kind: type[Any]) -> None:
        record: Record[Any]
        async for record in bus.records(kind, after=0):
            view.apply(record)

    await together(*(one(kind) for kind in STREAMS))


@asynccontextmanager
async def shown(view: RunView, console: Console, steps: int, expected: Sequence[str]) -> AsyncIterator[None]:
    """Show the view while the body runs: live in a terminal, a line now and then elsewhere.

    steps: in all. expected: names of processes that are being started.
    """
    draw = _live if console.is_terminal else _plain
    drawing = asyncio.create_task(draw(view, console, steps, expected))
    try:
        yield
    finally:
        await cancel(drawing)


async def _live(view: RunView, console: Console, steps: int, expected: Sequence[str]) -> None:
    started = time.time()

    def panel() -> RenderableType:
        return render(view, steps, expected, started, time.time(), console.width)

    with Live(panel(), console=console, auto_refresh=False, transient=True) as live:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            live.update(panel(), refresh=True)


async def _plain(view: RunView, console: Console, steps: int, expected: Sequence[str]) -> None:
    console.print(f"starting {', '.join(expected)}", soft_wrap=True)
    while True:
        await asyncio.sleep(PLAIN_SECONDS)
        console.print(Text(line(view, steps)), soft_wrap=True)


def line(view: RunView, steps: int) -> str:
    """One line for logs."""
    parts = [
        f"step {view.done()}/{steps}",
        f"reward {view.steps[-1].metrics['reward']:.3f}" if view.steps else "no step yet",
        f"lag {max(view.lags, default=0)}",
        f"{view.tokens_per_second():.0f} tokens/s",
        f"{view.accepted()} accepted",
        f"{view.rejected()} rejected",
    ]
    waits = [
        f"{view.name(node)} {_clean(beat.state)}" for node, (beat, _) in view.nodes.items() if beat.waiting
    ]
    return "  ".join(parts) + (f"  ({'; '.join(waits[:3])})" if waits else "")


def render(
    view: RunView, steps: int, expected: Sequence[str], started: float, now: float, width: int = 150
) -> RenderableType:
    """The whole view. started, now: seconds since 1970. width: of the terminal, in columns."""
    parts = Group(_training(view, steps), Text(), _nodes(view, expected, started, now, width >= WIDE))
    return Panel(parts, title=f"cairn  {duration(now - started)}", border_style="cyan")


def _training(view: RunView, steps: int) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    rewards = [step.metrics["reward"] for step in view.steps]
    table.add_row("step", f"{view.done()} of {steps}")
    table.add_row("reward", f"{spark(rewards)}  {rewards[-1]:.3f}" if rewards else "no step yet")
    for version, done in sorted(view.evals.items())[-4:]:
        measured = "  ".join(f"{_clean(name)} {value:.3f}" for name, value in done.metrics.items())
        table.add_row(f"policy {version}", Text(f"{measured}  ({done.samples} held-out prompts)"))
    table.add_row("lag", lags(view) or "-")
    table.add_row("tokens", f"{view.tokens_per_second():.0f}/s accepted, {view.tokens_total} in all")
    table.add_row("verdicts", Text(verdicts(view) or "-"))
    for node, reason in list(view.slashed.items())[:5]:
        table.add_row(Text("slashed", "red"), Text(f"{view.name(node)}: {_clean(reason)}", "red"))
    if view.control is not None and view.control.action != "resume":
        told = f"by an operator: {view.control.action}  {_clean(view.control.reason)}"
        table.add_row(Text("control", "yellow"), Text(told, "yellow"))
    return table


def lags(view: RunView) -> str:
    """Groups in batches by lag."""
    return ", ".join(f"{count} groups at {lag}" for lag, count in sorted(view.lags.items()))


def verdicts(view: RunView) -> str:
    """Completions by outcome, and the checks that failed."""
    outcomes: dict[str, int] = {}
    for (_, outcome), count in view.outcomes.items():
        outcomes[outcome] = outcomes.get(outcome, 0) + count
    reasons: dict[str, int] = {}
    for (_, check), count in view.reasons.items():
        reasons[check] = reasons.get(check, 0) + count
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    worst = sorted(reasons, key=lambda check: -reasons[check])[:3]
    return told + (f"  (failed: {', '.join(map(_clean, worst))})" if worst else "")


def _nodes(view: RunView, expected: Sequence[str], started: float, now: float, wide: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0), expand=True)
    table.add_column("node", min_width=9, no_wrap=True)  # fixed, so that nothing jumps
    table.add_column("does or waits", ratio=1, no_wrap=True)
    table.add_column("for", min_width=9, justify="right", no_wrap=True)
    for heading in ("tokens/s", "accepted", "rejected") if wide else ():
        table.add_column(heading, min_width=8, justify="right", no_wrap=True)
    earlier = {beat.name for beat, at in view.nodes.values() if at < started} & set(
        expected
    )  # their last life
    nodes = sorted(
        (item for item in view.nodes.items() if item[1][0].name not in earlier),
        key=lambda item: (item[1][0].kind, item[1][0].name, item[0]),
    )
    for node, (beat, at) in nodes[:NODES]:
        state, style, seconds = _state(beat, now - at)
        table.add_row(
            Text(view.name(node)),
            Text(state, style),
            duration(seconds),
            *(_figures(view, node, beat) if wide else ()),
        )
    if len(nodes) > NODES:
        table.add_row(f"and {len(nodes) - NODES} more")
    heard = {beat.name for _, (beat, _) in nodes}
    for name in (name for name in expected if name not in heard):
        table.add_row(name, Text("starting", "dim"), duration(now - started))
    return table


def _figures(view: RunView, node: str, beat: Heartbeat) -> tuple[str, str, Text]:
    """Tokens a second as a worker says, and what was judged of it."""
    rate, accepted, rejected = beat.capacity.get("tokens_per_s"), view.accepted(node), view.rejected(node)
    judged = accepted or rejected
    return (
        f"{rate:.0f}" if rate else "",
        str(accepted) if judged else "",
        Text(str(rejected) if judged else "", "red" if rejected else ""),
    )


def _state(beat: Heartbeat, age: float) -> tuple[str, str, float]:
    """What to say of a node whose last heartbeat is `age` seconds old: text, style, and since how many seconds."""
    if beat.state == "stopped":
        return beat.state, "dim", beat.seconds + max(0.0, age)
    if age > SILENT_SECONDS:
        return "silent", "red", age
    alarm = f"  ({_clean(beat.alarms[0])})" if beat.alarms else ""
    style = "red" if alarm else "yellow" if beat.waiting else "green"
    return _clean(beat.state) + alarm, style, beat.seconds + max(0.0, age)


def _clean(text: str) -> str:
    return printable(text[:TEXT_LENGTH])


def duration(seconds: float) -> str:
    """12 s, 3:25 min, 1:02 h."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"


def spark(values: Sequence[float], width: int = 40) -> str:
    """A curve in one line of block characters, from the least to the largest value."""
    if not values:
        return ""
    step = -(-len(values) // width)
    means = [sum(values[at : at + step]) / len(values[at : at + step]) for at in range(0, len(values), step)]
    low, span = min(means), max(max(means) - min(means), 1e-9)
    return "".join(BARS[1 + int((value - low) / span * (len(BARS) - 2))] for value in means)
