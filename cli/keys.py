"""`cairn keys`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from bus.identity import Identity, key_file
from cli import options


@click.group("keys")
def command() -> None:
    """Make and show keys. A key is made at its first use, in a file that only its owner can read.

    \b
    Examples:
      cairn keys show validator            the public key for trust.validator
      cairn keys show validator second --keys ./keys
      cairn keys show filter variety       of Component(kind="filter", name="variety")
    """


@command.command("show")
@click.argument("kind", callback=options.token)
@click.argument("name", required=False)
@options.keys
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def show(kind: str, name: str | None, keys: Path | None, as_json: bool) -> None:
    """Print the public key of a process, made when it is missing.

    KIND is trainer, validator, evaluator, operator, worker, relay, or what a program of your own calls itself;
    NAME is what its --name says, by default the kind again.

    \b
    Example:
      cairn keys show validator
    """
    path = key_file(kind, name or "", keys)
    public = Identity.load_or_create(path).public_key
    click.echo(json.dumps({"kind": kind, "public_key": public, "file": str(path)}) if as_json else public)
