"""The commands that join a run, against a real server: what they say when they may not, or cannot."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.server import Server
from bus.testing import Run, new_run
from schemas import Control
from tests.cli.conftest import Cairn


@pytest.fixture
def running(nats_server: Server, tmp_path: Path) -> Iterator[Run]:
    """A run that has begun, for tests that are not asynchronous themselves."""
    run = asyncio.run(new_run(nats_server.url, tmp_path / "run-keys"))
    yield run
    asyncio.run(run.delete())


def join(run: Run) -> tuple[str, ...]:
    return ("--url", run.url, "--run", run.name)


def test_control_publishes_the_operators_command(cairn: Cairn, running: Run, tmp_path: Path) -> None:
    keys = ("--keys", running.keys, "--name", "test")
    done = cairn("control", "pause", "--reason", "lunch", *join(running), *keys)
    assert (done.code, done.output) == (0, "pause is event 1 of CONTROL\n")

    async def read() -> Control:
        async with running.connect("node") as bus:
            return (await anext(bus.records(Control))).event

    assert asyncio.run(read()).reason == "lunch"


@pytest.mark.parametrize(
    ("command", "role"),
    [(["control", "stop"], "operator"), (["validator"], "validator"), (["evaluator"], "evaluator")],
)
def test_a_key_that_is_not_trusted(cairn: Cairn, running: Run, command: list[str], role: str) -> None:
    done = cairn(*command, *join(running))
    done.fails_with(1, f"is not trusted as {role} in run '{running.name}'", f"under trust.{role}")


def test_control_names_the_runs_that_there_are(cairn: Cairn, running: Run) -> None:
    done = cairn("control", "stop", "--url", running.url, "--run", "typo")
    done.fails_with(1, "no run 'typo'", "runs there: ", running.name)


def test_control_without_a_server(cairn: Cairn) -> None:
    cairn("control", "stop", "--url", "nats://127.0.0.1:1").fails_with(1, "no NATS server", "start one")


def test_a_relay_whose_port_is_taken(cairn: Cairn, running: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = cairn("relay", "--origin", "--port", port, *join(running))
    done.fails_with(1, f"127.0.0.1:{port} is in use; choose another address or port")


@pytest.mark.parametrize("option", ["--parent", "--advertise"])
def test_an_address_that_no_relay_can_have(cairn: Cairn, option: str) -> None:
    cairn("relay", option, "ftp://x").fails_with(2, f"'{option}'", "http://host:port is expected")


def test_a_relay_that_others_could_not_find(cairn: Cairn, running: Run) -> None:
    cairn("relay", "--host", "0.0.0.0", *join(running)).fails_with(1, "must be told the URL", "--advertise")


def test_a_directory_that_cannot_be_one(cairn: Cairn, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = cairn("worker", "--directory", tmp_path / "file")
    done.fails_with(1, f"{tmp_path / 'file'}: File exists; choose another place")


def test_a_relay_is_an_origin_or_has_a_parent(cairn: Cairn) -> None:
    cairn("relay", "--origin", "--parent", "http://x").fails_with(2, "an origin has no parent")


@pytest.mark.slow  # the patience of a component
async def test_a_wrong_name_is_told_after_some_patience(run: Run, tmp_path: Path) -> None:
    async def joining(command: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cli.main", command),
            *("--url", run.url, "--run", "typo", "--keys", tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        output, errors = await process.communicate()
        assert (process.returncode, output) == (1, b"")
        last = errors.decode().splitlines()[-1]
        assert last.startswith("cairn: no run 'typo'")
        assert run.name in last
        assert b"Traceback" not in errors

    await asyncio.gather(*map(joining, ("worker", "validator", "evaluator", "relay")))
