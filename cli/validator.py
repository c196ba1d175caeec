"""`cairn validator`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from cli.options import attach, folder


@click.command("validator")
@attach
@click.option("--threads", type=int, default=0, help="CPU threads of torch; 0 leaves it to torch.")
@click.option("--directory", type=click.Path(path_type=Path), default=None,
              help="Where weights are kept.  [default: a temporary folder]")  # fmt: skip
def command(
    url: str, run: str, keys: Path | None, name: str | None, threads: int, directory: Path | None
) -> None:
    """Judge the rollouts of a run, until it has ended or Ctrl-C. Several validators share the work.

    Its key must be among trust.validator of the run's configuration (cairn keys show).

    \b
    Example:
      cairn validator --url nats://trainer.example:4222 --run demo
    """
    from validator.start import serve

    with folder(directory) as weights:
        asyncio.run(serve(url, run, keys, name or "validator", threads, weights))
