"""`cairn relay`."""

from __future__ import annotations

from pathlib import Path

import click

from cli.options import attach, log_to_stderr
from schemas.config import ConfigError


@click.command("relay")
@attach
@click.option("--origin", is_flag=True, help="Be the origin: take uploads from the run's trainer.")
@click.option("--parent", default=None, help="URL of the relay or origin above this one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0: a free one.", show_default=True)
@click.option("--advertise", default=None, help="URL under which others reach this relay.  [default: http://HOST:PORT]")
@click.option("--directory", type=click.Path(path_type=Path), default=None,
              help="Where chunks are kept.  [default: a temporary folder]")  # fmt: skip
def command(
    url: str, run: str, keys: Path | None, name: str | None, origin: bool, parent: str | None,
    host: str, port: int, advertise: str | None, directory: Path | None,
) -> None:  # fmt: skip
    """Carry policies from the trainer to the workers over HTTP. Needs no torch and little CPU.

    \b
    Examples:
      cairn relay --origin --port 7070
      cairn relay --parent http://trainer.example:7070 --host 0.0.0.0 --port 7071 --advertise http://relay.example:7071
    """
    if origin == bool(parent):
        raise ConfigError("a relay needs a parent, and an origin has none: give either --origin or --parent URL")
    log_to_stderr()
    from relay.node import serve

    serve(url, run, keys, name or ("origin" if origin else "relay"), parent, host, port, advertise, directory)
