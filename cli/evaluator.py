"""`cairn evaluator`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from cli import options


@click.command("evaluator")
@options.attach
@options.threads
@options.directory
def command(
    url: str, run: str, keys: Path | None, name: str | None, threads: int, directory: Path | None
) -> None:
    """Measure the policies of a run on its held-out tasks; ends after the run's last policy.

    Its key must be among trust.evaluator of the run's configuration (cairn keys show).

    \b
    Example:
      cairn evaluator --url nats://trainer.example:4222 --run demo
    """
    from workers.start import serve_evaluator

    with options.folder(directory) as weights:
        asyncio.run(serve_evaluator(url, run, keys, name or "evaluator", threads, weights))
