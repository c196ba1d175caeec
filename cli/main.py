"""The command `cairn`: one thin file a subcommand, loaded when called, so that roles without torch never pay for it."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from bus import logs
from bus.errors import BusError
from cli import parent
from relay.errors import RelayError
from schemas.config import ConfigError

COMMANDS = {
    "demo": "a tiny model learns through the whole stack on this machine",
    "train": "run the trainer of a TOML configuration",
    "worker": "generate rollouts for a run",
    "validator": "judge the rollouts of a run",
    "relay": "carry policies to workers over HTTP",
    "evaluator": "measure the policies of a run on held-out tasks",
    "control": "pause, resume or stop a run",
    "keys": "make and show the keys of this machine",
    "calibrate": "measure the bands within which honest rollouts lie",
    "tiny": "make the tiny model of the demo",
}


class Lazy(click.Group):
    """Imports a subcommand's module when it is asked for; --help reads the table above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="cairn")
def cairn() -> None:
    """Reinforcement learning of language models over machines that nobody has to trust.

    \b
    Examples:
      cairn demo                       see everything work, in five minutes
      cairn train configs/demo.toml    the trainer of a run
      cairn COMMAND --help             examples for each command
    """


def main() -> Any:
    """Entry point. A fault that the user can mend is one line on stderr; exit code 2 for usage, 1 otherwise."""
    parent.watch()
    logs.configure()
    try:
        return cairn(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except (ConfigError, BusError, RelayError, OSError, ExceptionGroup) as error:
        known = first_known(error)
        if known is None:
            raise
        click.echo(f"cairn: {known}", err=True)
        sys.exit(1)


def first_known(error: BaseException) -> BaseException | None:
    """The error that a user can read: itself, or the first such one within a group."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := first_known(inner))), None)
    return error if isinstance(error, ConfigError | BusError | RelayError | OSError) else None


if __name__ == "__main__":
    main()
