from __future__ import annotations

import json
import socket
from pathlib import Path

import click
import pytest

from bus.identity import Identity, key_file
from cli import options
from cli.local import LocalRun, free_port
from cli.main import COMMANDS, cairn
from cli.stack import Member, Stack
from schemas.config import Config, load


class Recorder(Stack):
    """Starts nothing, and remembers what it would."""

    def start(self, name: str, *arguments: str) -> Member:
        self.members[name] = Member(name, arguments, self.logs / f"{name}.log")
        return self.members[name]


@pytest.fixture
def started(tmp_path: Path) -> Recorder:
    config = tmp_path / "run.toml"
    config.write_text("")
    stack = Recorder(tmp_path / "logs")
    changes = {"policy.model": "tiny", "loss.kl": "0.5"}
    LocalRun(tmp_path, "mine", "nats://127.0.0.1:4999", config, changes, cheats=1).start(stack)
    return stack


def parsed(member: Member) -> click.Context:
    """The command line as `cairn` reads it."""
    name, *arguments = member.arguments
    command = cairn.get_command(click.Context(cairn), name)  # type: ignore[arg-type, attr-defined]
    assert command is not None
    return command.make_context(name, arguments)


def configuration(stack: Recorder) -> Config:
    parameters = parsed(stack.members["trainer"]).params
    return load(parameters["config"], options.overrides(parameters["changes"]))


def test_it_is_made_of_public_commands(started: Recorder) -> None:
    assert list(started.members) == [
        *("trainer", "origin", "relay-1", "relay-2", "validator"),
        *("worker-1", "worker-2", "cheat-1", "evaluator"),
    ]
    for name, member in started.members.items():
        assert member.arguments[0] in COMMANDS
        parameters = parsed(member).params
        assert parameters.get("run", "mine") == "mine"
        assert parameters.get("name") in (name, None)
    assert parsed(started.members["cheat-1"]).params["dishonest"]
    assert not parsed(started.members["worker-1"]).params["dishonest"]


def test_the_trainer_gets_the_run_and_its_overrides(started: Recorder) -> None:
    config = configuration(started)
    assert (config.run.name, config.bus.url) == ("mine", "nats://127.0.0.1:4999")
    assert (config.policy.model, config.loss.kl) == ("tiny", 0.5)


def test_the_relays_are_a_tree_below_the_trainers_origin(started: Recorder) -> None:
    origin = parsed(started.members["origin"]).params
    assert origin["origin"]
    url = f"http://127.0.0.1:{origin['port']}"
    assert configuration(started).relay.origin == url
    assert [parsed(started.members[f"relay-{at}"]).params["parent"] for at in (1, 2)] == [url, url]


def test_the_keys_of_its_own_processes_are_trusted(started: Recorder, tmp_path: Path) -> None:
    keys = parsed(started.members["validator"]).params["keys"]
    assert keys == tmp_path / "keys"
    public = Identity.load_or_create(key_file("validator", "", keys)).public_key
    assert configuration(started).trust.validator == (public,)


def test_a_free_port() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", free_port()))


def test_overrides_survive_the_command_line(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text("")
    model = json.dumps("a folder/--with = signs")
    stack = Recorder(tmp_path / "logs")
    LocalRun(tmp_path, "mine", "nats://x", config, {"policy.model": model}).start(stack)
    assert configuration(stack).policy.model == "a folder/--with = signs"
