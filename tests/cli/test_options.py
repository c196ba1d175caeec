from __future__ import annotations

from pathlib import Path

import pytest

from cli import options
from schemas.config import ConfigError
from tests.cli.conftest import Cairn


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], {}),
        (["--batch.groups", "8"], {"batch.groups": "8"}),
        (["--batch.groups=8", "--lag.max_lag", "0"], {"batch.groups": "8", "lag.max_lag": "0"}),
        (["--run.secret="], {"run.secret": ""}),
        (["--loss.kl", "-1"], {"loss.kl": "-1"}),
        (["--policy.model=a=b"], {"policy.model": "a=b"}),
        (["--environment.arguments.min-length", "3"], {"environment.arguments.min-length": "3"}),
    ],
)
def test_overrides(arguments: list[str], found: dict[str, str]) -> None:
    assert options.overrides(arguments) == found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--groups", "8"], "--groups is no option; overrides look like --batch.groups 8"),
        (["batch.groups", "8"], "batch.groups is no option"),
        (["--batch.groups", "8", "9"], "9 is no option"),
        (["--.groups", "8"], "--.groups is no option"),
        (["--batch..groups", "8"], "--batch..groups is no option"),
        (["--batch.groups"], "--batch.groups needs a value"),
        (["--batch.groups", "--lag.max_lag", "1"], "--batch.groups needs a value"),
    ],
)
def test_malformed_overrides(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        options.overrides(arguments)


def test_overrides_come_after_the_file(cairn: Cairn) -> None:
    cairn("train", "--batch.groups", "8", "run.toml").fails_with(2, "CONFIG comes first", "--batch.groups")


@pytest.mark.parametrize("run", ["two words", "a.b", "", "x" * 65])
def test_a_name_that_no_run_can_have(cairn: Cairn, run: str) -> None:
    cairn("worker", "--run", run).fails_with(2, "'--run'", "letters, digits, - and _")


@pytest.mark.parametrize("command", ["worker", "validator", "evaluator"])
def test_a_negative_number_of_threads(cairn: Cairn, command: str) -> None:
    cairn(command, "--threads", "-1").fails_with(2, "'--threads': -1 is not in the range x>=0")


def test_a_folder_that_was_chosen_stays(tmp_path: Path) -> None:
    with options.folder(tmp_path) as chosen:
        assert chosen == tmp_path
    with options.folder(None) as temporary:
        assert temporary.is_dir()
    assert (tmp_path.exists(), temporary.exists()) == (True, False)
