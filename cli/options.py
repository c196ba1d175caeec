"""Options that several subcommands share."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from schemas.config import ConfigError
from schemas.event import PART

Command = TypeVar("Command", bound=Callable[..., Any])

OVERRIDDEN: dict[str, Any] = {"ignore_unknown_options": True}
"""Context settings of a command with `configuration`."""


def token(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Callback of an option whose value becomes a part of subjects."""
    if value is not None and not re.search(PART, value):
        raise click.BadParameter(
            f"{value!r} has other characters than letters, digits, - and _, or more than 64"
        )
    return value


keys = click.option(
    "--keys",
    type=click.Path(path_type=Path),
    envvar="CAIRN_KEYS",
    default=None,
    help="Folder of this machine's keys, made when missing.  [env: CAIRN_KEYS; default: ~/.config/cairn/keys]",
)
threads = click.option(
    "--threads", type=click.IntRange(0), default=0, help="CPU threads of torch; 0 leaves it to torch."
)
directory = click.option(
    "--directory",
    type=click.Path(path_type=Path),
    default=None,
    help="Where weights are kept.  [default: a temporary folder]",
)


def attach(function: Command) -> Command:
    """--url, --run, --keys, --name: what every process that joins a run needs."""
    for option in (
        click.option("--name", default=None, help="For people; the default is the kind of process."),
        keys,
        click.option("--run", envvar="CAIRN_RUN", default="run", show_default=True, show_envvar=True, callback=token,
                     help="Name of the run."),
        click.option("--url", envvar="CAIRN_URL", default="nats://127.0.0.1:4222", show_default=True, show_envvar=True,
                     help="NATS server, or several with commas."),
    ):  # fmt: skip
        function = option(function)
    return function


def _first(context: click.Context, parameter: click.Parameter, value: Path) -> Path:
    if str(value).startswith("-"):  # options that the command does not know are arguments to click
        raise click.UsageError(
            f"CONFIG comes first, then overrides like --batch.groups 8; there is no option {value}"
        )
    return value


def configuration(function: Command) -> Command:
    """CONFIG and what overrides it: parameters `config` and `changes`, for `overrides`."""
    changes = click.argument("changes", nargs=-1, type=click.UNPROCESSED, metavar="[--TABLE.KEY VALUE]...")
    return click.argument("config", type=click.Path(path_type=Path), callback=_first)(changes(function))


@contextmanager
def folder(chosen: Path | None) -> Iterator[Path]:
    """The folder that the user chose, or a temporary one that goes with the process."""
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)  # an error now and not with the first weights
        yield chosen
        return
    with tempfile.TemporaryDirectory(prefix="cairn-") as temporary:
        yield Path(temporary)


def overrides(arguments: Sequence[str]) -> dict[str, str]:
    """["--batch.groups", "8", "--lag.max_lag=0"] -> {"batch.groups": "8", "lag.max_lag": "0"}; raises ConfigError."""
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if not re.fullmatch(r"--\w+(\.[\w-]+)+", name):
            raise ConfigError(f"{name} is no option; overrides look like --batch.groups 8")
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise ConfigError(f"{name} needs a value: {name} VALUE or {name}=VALUE")
            value = rest.pop(0)
        found[name[2:]] = value
    return found
