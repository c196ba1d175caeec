from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from cli.stages import output_of, stage
from schemas.config import ConfigError
from schemas.errors import CairnError


def test_a_terminal_shows_a_spinner_then_the_time() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80)
    with stage(console, "warming up [red]") as tell:
        tell("step 3 of 9 [red]")
        console.file.flush()
    text = file.getvalue()
    assert "warming up [red]" in text
    assert text.rstrip().endswith("0 s\x1b[0m")


def test_elsewhere_there_are_lines() -> None:
    file = io.StringIO()
    with stage(Console(file=file, width=20), "warming up") as tell:
        tell("a line that is longer than the terminal is wide")
    assert file.getvalue() == "warming up\n  a line that is longer than the terminal is wide\n"


async def test_the_output_of_a_command_and_what_it_tells(tmp_path: Path) -> None:
    told: list[str] = []
    output = await output_of(told.append, "keys", "show", "worker", "--json", "--keys", str(tmp_path))
    assert json.loads(output)["kind"] == "worker"
    assert told == []


async def test_a_command_that_fails_fails_with_its_own_message(tmp_path: Path) -> None:
    told: list[str] = []
    with pytest.raises(ConfigError, match=r"^cannot read missing\.toml: No such file"):
        await output_of(told.append, "tiny", "missing.toml")
    assert len(told) == 1
    (tmp_path / "file").touch()
    with pytest.raises(CairnError, match=r"^cannot use the key file") as failed:
        await output_of(told.append, "keys", "show", "worker", "--keys", str(tmp_path / "file"))
    assert failed.value.exit_code == 1


async def test_a_command_ends_when_it_is_not_waited_for_any_more(tmp_path: Path) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    waits = ("relay", "--url", "nats://127.0.0.1:1", "--keys", str(tmp_path))
    running = asyncio.create_task(output_of(told.put_nowait, *waits))
    assert "starting" in await told.get()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
