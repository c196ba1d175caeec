"""`cairn train`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from bus.identity import Identity, key_file
from cli import options
from schemas.config import load

LOCAL_ROLES = ("validator", "evaluator", "operator")
"""Roles whose keys a run on one machine finds in one folder."""


@click.command("train", context_settings=options.OVERRIDDEN)
@options.configuration
@click.option("--directory", type=click.Path(path_type=Path), default=None,
              help="State that outlives the process: secret, checkpoints.  [default: runs/NAME]")  # fmt: skip
@options.keys
@click.option("--trust-local", is_flag=True,
              help="Trust the keys of validator, evaluator and operator in the folder of keys, made when missing.")  # fmt: skip
@options.threads
@click.option("--dry-run", is_flag=True, help="Print the resolved configuration and stop.")
def command(
    config: Path,
    changes: tuple[str, ...],
    directory: Path | None,
    keys: Path | None,
    trust_local: bool,
    threads: int,
    dry_run: bool,
) -> None:
    """Run the trainer of CONFIG, a TOML file. A run that was interrupted goes on where it was.

    Any key of the file can be given on the command line, after CONFIG.

    \b
    Examples:
      cairn train configs/demo.toml --dry-run
      cairn train configs/demo.toml --batch.groups 8 --lag.max_lag=0
    """
    overrides = options.overrides(changes)
    if trust_local:
        overrides |= {f"trust.{role}": json.dumps([public_key(role, keys)]) for role in LOCAL_ROLES}
    resolved = load(config, overrides)
    if dry_run:
        click.echo(resolved.model_dump_json(indent=2))
        return
    import torch

    from trainer.start import serve

    if threads:
        torch.set_num_threads(threads)
    asyncio.run(serve(resolved, directory or Path("runs") / resolved.run.name, keys))


def public_key(role: str, keys: Path | None) -> str:
    return Identity.load_or_create(key_file(role, role, keys)).public_key
