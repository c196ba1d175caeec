"""`cairn keys`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from bus.identity import Identity, key_file

ROLES = ("trainer", "validator", "evaluator", "operator", "ranker", "relay", "worker")


@click.group("keys")
def command() -> None:
    """Make and show keys. A key is made at its first use, in a file that only its owner can read.

    \b
    Examples:
      cairn keys show validator            the public key for trust.validator
      cairn keys show validator second --keys ./keys
    """


@command.command("show")
@click.argument("role", type=click.Choice(ROLES))
@click.argument("name", required=False)
@click.option(
    "--keys", type=click.Path(path_type=Path), envvar="CAIRN_KEYS", default=None, help="Folder of the keys."
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def show(role: str, name: str | None, keys: Path | None, as_json: bool) -> None:
    """Print the public key of ROLE (and NAME, by default the role's own), made when it is missing."""
    path = key_file(role, name or role, keys)
    public = Identity.load_or_create(path).public_key
    click.echo(json.dumps({"role": role, "public_key": public, "file": str(path)}) if as_json else public)
