from __future__ import annotations

import asyncio
from typing import NoReturn

import pytest

from cli.main import COMMANDS
from schemas.config import ConfigError
from tests.cli.conftest import Cairn


def test_alone_it_shows_its_help(cairn: Cairn) -> None:
    done = cairn()
    assert (done.code, done.errors) == (0, "")
    assert all(f"  {name} " in done.output for name in COMMANDS)


@pytest.mark.parametrize("name", ["", *COMMANDS, "keys show"])
def test_each_help_has_examples(cairn: Cairn, name: str) -> None:
    done = cairn(*name.split(), "--help")
    assert (done.code, done.errors) == (0, "")
    assert "Example" in done.output
    assert f"  cairn {name}".rstrip() in done.output


def test_an_unknown_command_is_one_line(cairn: Cairn) -> None:
    cairn("trian").fails_with(2, "cairn: No such command 'trian'; see cairn --help")


def test_a_missing_argument_is_one_line(cairn: Cairn) -> None:
    cairn("train").fails_with(2, "cairn train: Missing argument 'CONFIG'; see cairn train --help")


def failing(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cairn keys show` raises this."""

    def fail(path: object) -> NoReturn:
        raise error

    monkeypatch.setattr("bus.identity.Identity.load_or_create", fail)


def test_an_error_in_a_group_of_tasks_is_one_line(cairn: Cairn, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail() -> None:
        raise ConfigError("batch.groups = 0:\n  choose 1 or more")

    async def work() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())

    with pytest.raises(ExceptionGroup) as raised:
        asyncio.run(work())
    failing(raised.value, monkeypatch)
    cairn("keys", "show", "worker").fails_with(2, "cairn: batch.groups = 0: choose 1 or more")


def test_a_fault_of_the_program_keeps_its_traceback(cairn: Cairn, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(KeyError("x"), monkeypatch)
    with pytest.raises(KeyError):
        cairn("keys", "show", "worker")


def test_ctrl_c_is_no_error(cairn: Cairn, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(KeyboardInterrupt(), monkeypatch)
    done = cairn("keys", "show", "worker")
    assert (done.code, done.output, done.errors.strip()) == (130, "", "")
