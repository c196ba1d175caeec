"""`cairn control`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import click

from bus import Bus
from bus.identity import Identity, key_file
from cli import options
from schemas import Control


@click.command("control")
@click.argument("action", type=click.Choice(["pause", "resume", "stop"]))
@click.option("--reason", default="", help="For people, kept in the event.")
@options.attach
def command(
    action: Literal["pause", "resume", "stop"],
    reason: str,
    url: str,
    run: str,
    keys: Path | None,
    name: str | None,
) -> None:
    """Pause, resume or stop a run. pause: nothing more is granted; stop: the run ends after the current step.

    The operator's key must be among trust.operator of the run's configuration.

    \b
    Example:
      cairn control pause --run demo --reason "moving the GPUs"
    """

    async def tell() -> int:
        identity = Identity.load_or_create(key_file("operator", name or "", keys))
        async with Bus.connect(url, run, identity=identity, name="control") as bus:
            await bus.wait_for_run(timeout=1)
            return await bus.publish(Control(action=action, reason=reason))

    click.echo(f"{action} is event {asyncio.run(tell())} of CONTROL")
