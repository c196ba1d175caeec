"""Folders of one process each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from trainer.scratch import scratch

KILLED = """
import os, signal, sys
from pathlib import Path
from trainer.scratch import scratch
with scratch(Path(sys.argv[1]), "new-"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_folder_goes_with_its_block_unless_it_was_renamed(tmp_path: Path) -> None:
    with scratch(tmp_path / "deep", "new-") as folder:
        (folder / "file").touch()
    assert list((tmp_path / "deep").iterdir()) == []
    with scratch(tmp_path, "new-") as folder:
        (folder / "file").touch()
        folder.rename(tmp_path / "whole")
    assert (tmp_path / "whole" / "file").exists()


def test_what_a_killed_process_left_goes_and_what_a_living_one_uses_stays(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    (left_over,) = tmp_path.iterdir()
    with scratch(tmp_path, "new-") as first, scratch(tmp_path, "new-") as second:
        assert not left_over.exists()
        assert first.exists()
        assert second.exists()
