"""`cairn evaluator`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from cli.options import attach, folder


@click.command("evaluator")
@attach
@click.option("--threads", type=int, default=0, help="CPU threads of torch; 0 leaves it to torch.")
@click.option("--directory", type=click.Path(path_type=Path), default=None,
              help="Where weights are kept.  [default: a temporary folder]")  # fmt: skip
def command(
    url: str, run: str, keys: Path | None, name: str | None, threads: int, directory: Path | None
) -> None:
    """Measure the policies of a run on its held-out tasks; ends after the run's last policy.

    \b
    Example:
      cairn evaluator --url nats://trainer.example:4222 --run demo
    """
    from workers.start import serve_evaluator

    with folder(directory) as weights:
        asyncio.run(serve_evaluator(url, run, keys, name or "evaluator", threads, weights))
