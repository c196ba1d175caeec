from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

import policy
from cli import tiny
from schemas.config import load
from tests.cli.conftest import Cairn
from trainer import sft
from trainer.tiny import Tiny

SHORT = sft.SupervisedTraining(steps=2, batch_size=4)


class Short(Tiny):
    """The tiny model after hardly any training."""

    clean: sft.SupervisedTraining = SHORT
    mistaken: sft.SupervisedTraining = SHORT


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration with few words, and two steps of each training."""
    monkeypatch.setattr("trainer.tiny.Tiny", Short)
    path = tmp_path / "run.toml"
    path.write_text(
        '[policy]\nmodel = "none"\n[environment]\nheld_out = 4\n[environment.arguments]\ncount = 16\n'
    )
    return path


def test_a_model_is_made_once(cairn: Cairn, config: Path, tmp_path: Path) -> None:
    first = cairn("tiny", config, "--cache", tmp_path / "cache")
    assert first.code == 0
    folder = Path(first.output.strip())
    assert policy.folder(str(folder)) == folder
    assert "Writing model shards" not in first.errors
    again = cairn("tiny", config, "--cache", tmp_path / "cache")
    assert (again.output, again.errors) == (first.output, "")
    other = cairn("tiny", config, "--cache", tmp_path / "cache", "--seed", "1")
    assert other.output != first.output


def test_progress_elsewhere_than_in_a_terminal_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with tiny._progress(Console(file=io.StringIO())) as progress:
        for step in range(1, 101):
            progress(step, 100, 0.5)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 20
    assert lines[0] == "warming up: step 5 of at most 100, loss 0.50"


def test_a_file_that_is_missing(cairn: Cairn) -> None:
    cairn("tiny", "missing.toml").fails_with(2, "cannot read missing.toml")


def test_the_packaged_configuration_is_of_the_demo() -> None:
    assert load("configs/demo.toml").environment.name == "reverse-text"
