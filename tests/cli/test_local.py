from __future__ import annotations

import json
import socket
from pathlib import Path

import click
import pytest

from bus.identity import Identity, key_file
from cli import main
from cli.local import LocalRun, free_port
from cli.stack import Member, Stack
from schemas.config import Config, parse
from tests.cli.conftest import Cairn


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
    command = main.cairn.get_command(click.Context(main.cairn), name)  # type: ignore[arg-type, attr-defined]
    assert command is not None
    return command.make_context(name, arguments)


def configuration(cairn: Cairn, stack: Recorder) -> Config:
    """As the trainer resolves it."""
    done = cairn(*stack.members["trainer"].arguments, "--dry-run")
    assert done.code == 0, done.errors
    return parse(json.loads(done.output))


def test_it_is_made_of_public_commands(started: Recorder) -> None:
    assert list(started.members) == [
        *("trainer", "origin", "relay-1", "relay-2", "validator"),
        *("worker-1", "worker-2", "cheat-1", "evaluator"),
    ]
    for name, member in started.members.items():
        assert member.arguments[0] in main.COMMANDS
        parameters = parsed(member).params
        assert parameters.get("run", "mine") == "mine"
        assert parameters.get("name") in (name, None)
    assert parsed(started.members["cheat-1"]).params["dishonest"]
    assert not parsed(started.members["worker-1"]).params["dishonest"]


def test_the_trainer_gets_the_run_and_its_overrides(cairn: Cairn, started: Recorder) -> None:
    config = configuration(cairn, started)
    assert (config.run.name, config.bus.url) == ("mine", "nats://127.0.0.1:4999")
    assert (config.policy.model, config.loss.kl) == ("tiny", 0.5)


def test_the_relays_are_a_tree_below_the_trainers_origin(cairn: Cairn, started: Recorder) -> None:
    origin = parsed(started.members["origin"]).params
    assert origin["origin"]
    url = f"http://127.0.0.1:{origin['port']}"
    assert configuration(cairn, started).relay.origin == url
    assert [parsed(started.members[f"relay-{at}"]).params["parent"] for at in (1, 2)] == [url, url]


def test_the_keys_of_its_own_processes_are_trusted(cairn: Cairn, started: Recorder, tmp_path: Path) -> None:
    keys = parsed(started.members["validator"]).params["keys"]
    assert keys == tmp_path / "keys"
    public = Identity.load_or_create(key_file("validator", "", keys)).public_key
    assert configuration(cairn, started).trust.validator == (public,)


def test_a_free_port() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", free_port()))


def test_overrides_survive_the_command_line(cairn: Cairn, tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text("")
    model = json.dumps("a folder/--with = signs")
    stack = Recorder(tmp_path / "logs")
    LocalRun(tmp_path, "mine", "nats://x", config, {"policy.model": model}).start(stack)
    assert configuration(cairn, stack).policy.model == "a folder/--with = signs"
