"""`cairn train`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from cli.options import overrides
from schemas.config import load


@click.command(
    "train",
    context_settings={
        "ignore_unknown_options": True,
        "allow_extra_args": True,
        "allow_interspersed_args": True,
    },
)
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--directory", type=click.Path(path_type=Path), default=None,
              help="State that outlives the process: secret, checkpoints.  [default: runs/NAME]")  # fmt: skip
@click.option(
    "--keys", type=click.Path(path_type=Path), envvar="CAIRN_KEYS", default=Path("~/.config/cairn/keys")
)
@click.option("--threads", type=int, default=0, help="CPU threads of torch; 0 leaves it to torch.")
@click.option("--dry-run", is_flag=True, help="Print the resolved configuration and stop.")
@click.pass_context
def command(
    context: click.Context, config: Path, directory: Path | None, keys: Path, threads: int, dry_run: bool
) -> None:
    """Run the trainer of CONFIG, a TOML file. A run that was interrupted goes on where it was.

    \b
    Any key of the file can be given on the command line:
      cairn train configs/demo.toml --dry-run
      cairn train configs/demo.toml --batch.groups 8 --lag.max_lag=0
    """
    resolved = load(config, overrides(context.args))
    if dry_run:
        click.echo(resolved.model_dump_json(indent=2))
        return
    import torch

    from trainer.start import serve

    if threads:
        torch.set_num_threads(threads)
    asyncio.run(serve(resolved, directory or Path("runs") / resolved.run.name, keys.expanduser()))
