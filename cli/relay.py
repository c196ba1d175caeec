"""`cairn relay`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from bus import Component
from cli import options
from relay.node import RelayNode
from relay.sources import relay_url


def _url(context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        return relay_url(value) if value else ""
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("relay")
@options.attach
@click.option("--origin", is_flag=True, help="Be the origin: take uploads from the run's trainer.")
@click.option(
    "--parent",
    default="",
    callback=_url,
    help="URL of the relay above this one.  [default: the run's origin]",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0: a free one.", show_default=True)
@click.option(
    "--advertise",
    default="",
    callback=_url,
    help="URL under which others reach this relay.  [default: http://HOST:PORT]",
)
@click.option("--directory", type=click.Path(path_type=Path), default=None,
              help="Where chunks are kept.  [default: a temporary folder]")  # fmt: skip
def command(
    url: str, run: str, keys: Path | None, name: str | None, origin: bool, parent: str,
    host: str, port: int, advertise: str, directory: Path | None,
) -> None:  # fmt: skip
    """Carry policies from the trainer to the workers over HTTP. Needs no torch and little CPU.

    \b
    Examples:
      cairn relay --origin --port 7070
      cairn relay --parent http://trainer.example:7070 --host 0.0.0.0 --port 7071 --advertise http://relay.example:7071
    """
    if origin and parent:
        raise click.UsageError("an origin has no parent: give either --origin or --parent URL")
    kind = "origin" if origin else "relay"
    component = Component(kind="relay", name=name or kind, url=url, run=run, keys=keys, ends_with_run=False)
    with options.folder(directory) as chunks:
        node = RelayNode(chunks, host=host, port=port, parent=parent, origin=origin, url=advertise)
        component.task(node.serve)
        asyncio.run(component.serve())
