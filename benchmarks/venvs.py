"""Virtual environments of peers: `.venv-NAME` beside the project's own, made when missing or out of date."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TORCH = "torch==2.13.*"
"""Installed first and by itself: pip then never looks for another build. Which index has the CPU build is pip's
configuration, as for the project (docs/dependencies.md)."""


def python_of(name: str, *requirements: str) -> Path:
    """The interpreter of an environment that has the project and `requirements`, at the project's tested versions."""
    folder = ROOT / f".venv-{name}"
    python, marker = folder / "bin" / "python", folder / ".installed"
    wanted = "\n".join([TORCH, *requirements, (ROOT / "constraints.txt").read_text()])
    if marker.is_file() and marker.read_text() == wanted:
        return python
    print(f"installing {', '.join(requirements)} into {folder.name}; minutes, once", file=sys.stderr)
    venv.create(folder, clear=True, symlinks=True, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, TORCH], check=True, stdout=sys.stderr)
    subprocess.run(
        [*pip, "-c", f"{ROOT}/constraints.txt", "-e", str(ROOT), *requirements], check=True, stdout=sys.stderr
    )
    marker.write_text(wanted)
    return python
