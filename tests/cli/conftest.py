"""The command itself, in this process: its exit code and what it printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog

from cli.main import main


@dataclass(frozen=True)
class Done:
    code: int
    output: str
    errors: str

    def fails_with(self, code: int, *parts: str) -> None:
        """One line on stderr, after what was logged, and nothing on stdout."""
        assert (self.code, self.output) == (code, ""), self.errors
        *before, last = self.errors.splitlines()
        assert all("[info" in line or "[warning" in line for line in before), self.errors
        assert all(part in last for part in parts), last


Cairn = Callable[..., Done]


@pytest.fixture
def cairn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Cairn]:
    """`cairn("train", path)` as from a shell whose keys are in tmp_path / "keys"."""
    monkeypatch.setenv("CAIRN_KEYS", str(tmp_path / "keys"))

    def run(*arguments: object) -> Done:
        monkeypatch.setattr("sys.argv", ["cairn", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Done(int(ended.value.code or 0), captured.out, captured.err)

    yield run
    structlog.reset_defaults()
