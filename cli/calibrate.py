"""`cairn calibrate`."""

from __future__ import annotations

from pathlib import Path

import click

from cli import options
from schemas.config import load

BATCHES = (1, 8, 32)
"""Groups generated together: batching changes the order of sums, and so the last bits."""


@click.command("calibrate", context_settings=options.OVERRIDDEN)
@options.configuration
@options.threads
def command(config: Path, changes: tuple[str, ...], threads: int) -> None:
    """Measure how far honest completions lie from a validator's prefill, and print the bands as JSON.

    Put them under [audit.bands] of the run's configuration.

    \b
    Example:
      cairn calibrate configs/demo.toml --policy.model ./model
    """
    resolved = load(config, options.overrides(changes))
    import torch

    from cli.calibration import measure

    if threads:
        torch.set_num_threads(threads)

    def say(batch: int) -> None:
        click.echo(f"groups generated together: {batch}", err=True)

    click.echo(measure(resolved, BATCHES, say).model_dump_json())
