"""Disk access by which neither a crash nor a full disk leaves a wrong file under a right name."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from relay.errors import DiskFull

Bytes = bytes | bytearray | memoryview

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def room_on_disk(path: Path) -> Iterator[None]:
    """Turn "no space", "quota" and "file too large" into DiskFull, which says where and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise DiskFull(
            f"cannot write {path.name} in {path.parent}: {error.strerror}; free space or keep fewer versions"
        ) from error


def write_whole(path: Path, data: Bytes) -> None:
    """Write a file under a temporary name and rename it: readers see all of it or nothing.

    No fsync: after a power failure the bytes may be wrong, and whoever reads them sees it by their hash.
    Raises DiskFull.
    """
    descriptor, draft = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with room_on_disk(path), open(descriptor, "wb") as file:
            file.write(data)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


@dataclass(frozen=True)
class Place:
    """A position in an existing file, where a chunk's bytes lie or will lie."""

    path: Path
    offset: int

    def read(self, size: int) -> bytes:
        """At most `size` bytes; fewer at the end of the file."""
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self.offset)
            return file.read(size)

    def write(self, data: Bytes) -> None:
        """Raises DiskFull; part of the bytes may be written then."""
        with room_on_disk(self.path), open(self.path, "r+b") as file:
            file.seek(self.offset)
            file.write(data)
