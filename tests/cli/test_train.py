from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cairn

PARTS = ("config.json", "model.safetensors", "tokenizer.json")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration whose model has no parts yet."""
    (tmp_path / "model").mkdir()
    path = tmp_path / "run.toml"
    path.write_text(f'[policy]\nmodel = "{tmp_path / "model"}"\n')
    return path


def test_a_dry_run_prints_what_is_resolved(cairn: Cairn, config: Path) -> None:
    done = cairn("train", config, "--dry-run", "--batch.groups", "8", "--lag.max_lag=0")
    assert (done.code, done.errors) == (0, "")
    resolved = json.loads(done.output)
    assert (resolved["batch"]["groups"], resolved["lag"]["max_lag"]) == (8, 0)
    assert resolved["batch"]["group_size"] == 16


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[policy", "is not valid TOML"),
        ("", "policy is missing"),
        ("[policy]\nmodel = 3\n", "policy.model = 3: Input should be a valid string"),
        ('[policy]\nmodel = "x"\nname = "y"\n', "unknown key policy.name; there are model, dtype"),
    ],
)
def test_a_bad_file(cairn: Cairn, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.toml").write_text(text)
    cairn("train", tmp_path / "bad.toml").fails_with(2, "bad.toml", message)


def test_no_file(cairn: Cairn) -> None:
    cairn("train", "missing.toml").fails_with(2, "cannot read missing.toml", "give the path of a TOML file")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batch.groups", "many"], "batch.groups = 'many'"),
        (["--dryrun"], "--dryrun is no option"),
        (["--threads", "-1"], "'--threads'"),
        (["--environment.name", "nothing"], "environment 'nothing': no such name; use reverse-text"),
        (["--environment.name", "missing.py:Sums"], "there is no file missing.py"),
        (["--environment.arguments.nope", "3"], "unexpected keyword argument 'nope'"),
        (["--environment.held_out", "1000000"], "none would be left to train on; hold out fewer"),
        ([], "has no configuration (config.json); save a whole model there"),
        (["--policy.model", "/nowhere/at/all"], "'/nowhere/at/all' is no local folder"),
    ],
)
def test_a_bad_value(
    cairn: Cairn, config: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(config.parent)
    cairn("train", config, *arguments).fails_with(2, message)


def test_a_directory_that_cannot_be_written(cairn: Cairn, config: Path) -> None:
    done = cairn("train", config, "--directory", config)
    done.fails_with(1, f"{config}: File exists; choose another place")
