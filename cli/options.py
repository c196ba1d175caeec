"""Options that several subcommands share."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from schemas.config import ConfigError

Command = TypeVar("Command", bound=Callable[..., Any])


def attach(function: Command) -> Command:
    """--url, --run, --keys, --name: what every process that joins a run needs."""
    for option in (
        click.option("--name", default=None, help="For people; the default is the kind of process."),
        click.option("--keys", type=click.Path(path_type=Path), envvar="CAIRN_KEYS", default=None,
                     help="Folder of this machine's keys, made when missing.  [env: CAIRN_KEYS; default: ~/.config/cairn/keys]"),
        click.option("--run", envvar="CAIRN_RUN", default="run", show_default=True, show_envvar=True, help="Name of the run."),
        click.option("--url", envvar="CAIRN_URL", default="nats://127.0.0.1:4222", show_default=True, show_envvar=True,
                     help="NATS server, or several with commas."),
    ):  # fmt: skip
        function = option(function)
    return function


@contextmanager
def folder(chosen: Path | None) -> Iterator[Path]:
    """The folder that the user chose, or a temporary one that goes with the process."""
    if chosen is not None:
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
        if not name.startswith("--") or "." not in name:
            raise ConfigError(f"{name} is no option; overrides look like --batch.groups 8")
        if not equals:
            if not rest:
                raise ConfigError(f"{name} needs a value")
            value = rest.pop(0)
        found[name[2:]] = value
    return found
