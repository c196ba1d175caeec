"""`cairn worker`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from cli import options


@click.command("worker")
@options.attach
@click.option(
    "--batch", type=click.IntRange(1), default=8, show_default=True, help="Groups generated at once."
)
@options.threads
@options.directory
@click.option(
    "--dishonest",
    is_flag=True,
    help="Generate with another model and claim the granted one (for trying the validator).",
)
def command(
    url: str,
    run: str,
    keys: Path | None,
    name: str | None,
    batch: int,
    threads: int,
    directory: Path | None,
    dishonest: bool,
) -> None:
    """Generate rollouts for a run, until it has ended or Ctrl-C.

    \b
    Examples:
      cairn worker --url nats://trainer.example:4222 --run demo
      cairn worker --run demo --name laptop --batch 2 --threads 4
    """
    from workers.start import serve

    with options.folder(directory) as weights:
        asyncio.run(serve(url, run, keys, name or "worker", batch, threads, weights, dishonest))
