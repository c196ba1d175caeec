"""`cairn calibrate`."""

from __future__ import annotations

from pathlib import Path

import click

from cli.options import overrides
from schemas.config import load

BATCHES = (1, 8, 32)
"""Groups generated together: batching changes the order of sums, and so the last bits."""


@click.command("calibrate", context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--threads", type=int, default=0, help="CPU threads of torch; 0 leaves it to torch.")
@click.pass_context
def command(context: click.Context, config: Path, threads: int) -> None:
    """Measure how far honest completions lie from a validator's prefill, and print the bands as JSON.

    Put them under [audit.bands] of the run's configuration.

    \b
    Example:
      cairn calibrate configs/demo.toml --policy.model ./model
    """
    resolved = load(config, overrides(context.args))
    import torch

    from cli.calibration import measure

    if threads:
        torch.set_num_threads(threads)
    click.echo(measure(resolved, BATCHES).model_dump_json())
