"""Folders for what is not whole yet, of one process each, also where two trainers share a directory for a moment."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def scratch(directory: Path, prefix: str) -> Iterator[Path]:
    """A new folder `<prefix>...` below `directory`; unless it was renamed it is gone with the block.

    Folders that killed processes left behind go too: the kernel has released their locks.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for left_over in directory.glob(f"{prefix}*"):
        with suppress(OSError), _locked(left_over):
            shutil.rmtree(left_over)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=directory))
    try:
        with _locked(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Raises BlockingIOError when another has the lock."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
