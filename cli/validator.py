"""`cairn validator`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from cli import options


@click.command("validator")
@options.attach
@options.threads
@options.directory
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

    with options.folder(directory) as weights:
        asyncio.run(serve(url, run, keys, name or "validator", threads, weights))
