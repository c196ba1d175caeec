"""The command `cairn`: one thin file a subcommand, loaded when called, so that roles without torch never pay for it."""

from __future__ import annotations

import importlib
import sys
from typing import NoReturn

import click

from bus import logs
from cli import parent
from schemas.errors import mendable

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


def main() -> NoReturn:
    """Entry point. What a user can mend is one line on stderr; exit code 2 for usage and configuration, 1 otherwise."""
    parent.watch()
    logs.configure()
    try:
        sys.exit(cairn(prog_name="cairn", standalone_mode=False))
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(0)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "cairn"
        _fail(f"{command}: {error.format_message().rstrip('.')}; see {command} --help", error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except Exception as error:
        told = mendable(error)
        if told is None:
            raise
        _fail(f"cairn: {told}", told.exit_code)


def _fail(text: str, code: int) -> NoReturn:
    click.echo(" ".join(text.split()), err=True)  # one line, whatever a library wrapped into it
    sys.exit(code)


if __name__ == "__main__":
    main()
