"""`cairn demo`: composes the public commands on this machine, shows the run, and says what happened."""

from __future__ import annotations

import asyncio
import importlib.resources
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import structlog
from rich.console import Console

from bus import Bus
from bus.server import Server
from bus.tasks import beside
from cli import live, summary
from cli.local import LocalRun
from cli.stack import Stack, StackFailed
from cli.stages import output_of, stage
from cli.view import RunView
from schemas.config import load
from schemas.errors import CairnError

BAR = 0.9
"""Exact match on the held-out prompts that the last policy has to reach."""
METRIC = "exact"
RUN = "demo"
SERVER_SECONDS = 1.0

log = structlog.get_logger()


@click.command("demo")
@click.option(
    "--steps",
    type=click.IntRange(1),
    default=None,
    help="Training steps.  [default: as in configs/demo.toml]",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Of the model, the words and the shuffles.",
)
@click.option(
    "--cheat/--no-cheat",
    default=True,
    show_default=True,
    help="One worker that generates with another model.",
)
@click.option("--run-dir", type=click.Path(path_type=Path), default=None,
              help="Keep event store, keys, logs and checkpoints here; an interrupted run goes on.  [default: a temporary folder]")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Only the JSON object on stdout.")
def command(steps: int | None, seed: int, cheat: bool, run_dir: Path | None, as_json: bool) -> None:
    """A tiny model learns to reverse words through the whole stack: bus, relays, workers, validator, trainer.

    The exit code is 0 only when the last policy gets at least 90 % of the held-out words right.

    \b
    Examples:
      cairn demo
      cairn demo --steps 10 --seed 3 --no-cheat --json
      cairn demo --run-dir runs/mine       keeps every event for later inspection
    """
    with _folder(run_dir) as folder:
        try:
            result = asyncio.run(demo(folder, steps, seed, cheat))
        except asyncio.CancelledError:  # by a signal
            kept = f"; the same command with --run-dir {run_dir} goes on from here" if run_dir else ""
            click.echo(f"cairn: stopped{kept}", err=True)
            sys.exit(130)
    if not as_json:
        summary.show(result, METRIC, Console())
    click.echo(json.dumps(result.figures))
    reached = result.figures["reward_last"] or 0.0
    if reached < BAR:
        raise CairnError(
            f"the last policy gets {reached:.1%} of the held-out words right, below the bar of {BAR:.0%}"
        )


async def demo(folder: Path, steps: int | None, seed: int, cheat: bool) -> summary.Result:
    """Make the model, run everything to the end of the run, and read what happened."""
    started = time.monotonic()
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    console = Console(stderr=True)
    overrides = {"run.seed": str(seed)} | ({"run.steps": str(steps)} if steps else {})
    with importlib.resources.as_file(importlib.resources.files("configs") / "demo.toml") as config:
        with stage(console, "a tiny model, warmed up until it answers badly") as tell:
            model = json.dumps(await output_of(tell, "tiny", str(config), "--seed", str(seed)))
        with stage(console, "how far honest rollouts lie from a validator's prefill") as tell:
            bands = await output_of(tell, "calibrate", str(config), f"--policy.model={model}")
        overrides |= {"policy.model": model}
        overrides |= {f"audit.bands.{name}": str(value) for name, value in json.loads(bands).items()}
        with Server(folder / "nats") as server:
            run = LocalRun(folder, RUN, server.url, config, overrides, cheats=int(cheat))
            view = await watch(run, server, console, load(config, overrides).run.steps)
    cheats = {run.key("worker", f"cheat-{number}") for number in range(1, run.cheats + 1)}
    return summary.Result(summary.figures(view, cheats, METRIC, time.monotonic() - started, seed), view)


async def watch(run: LocalRun, server: Server, console: Console, steps: int) -> RunView:
    """Start the processes, show the run, wait for the trainer and for the last evaluation, read the streams."""
    view = RunView()
    console.print(f"to attach a program: CAIRN_URL={run.url} CAIRN_RUN={run.run}", soft_wrap=True)
    async with Bus.connect(run.url, run.run, name="demo") as bus, Stack(run.folder / "logs") as stack:
        run.start(stack)
        async with live.shown(view, console, steps, list(stack.members)):
            await beside(_ended(stack), _follow(bus, view), _keep(server))
            return await summary.read(bus)


async def _ended(stack: Stack) -> None:
    await stack.ended("trainer")
    await stack.ended("evaluator")


async def _keep(server: Server) -> None:
    """Start nats-server again when it has died, as the stack does with the processes."""
    while True:
        await asyncio.sleep(SERVER_SECONDS)
        if server.pid is None:
            log.warning("restarting", process="nats-server")
            server.start()


async def _follow(bus: Bus, view: RunView) -> None:
    await bus.wait_for_run()
    await live.follow(bus, view)


@contextmanager
def _folder(chosen: Path | None) -> Iterator[Path]:
    """The run's folder: the user's, which stays, or a temporary one, which stays only when a process failed."""
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="cairn-demo-"))
    try:
        yield folder
    except StackFailed:
        click.echo(f"cairn: the run's folder was kept: {folder}", err=True)
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
