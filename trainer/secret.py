"""The run's secret: sampling seeds and challenges that no worker can predict and anyone can check afterwards.

seed(task, attempt, policy version, index) = first 8 bytes, little-endian, of BLAKE3 keyed with the secret
over the names. The commitment is in RunCreated, the secret itself in RunEnded.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path

import numpy as np
from blake3 import blake3

from schemas.config import ConfigError

SECRET_BYTES = 32


class Secret:
    def __init__(self, value: bytes) -> None:
        if len(value) != SECRET_BYTES:
            raise ValueError(f"a run's secret has {SECRET_BYTES} bytes, this one {len(value)}")
        self.value = value

    @classmethod
    def load_or_create(cls, path: Path) -> Secret:
        """Read the file, or make it with a random secret, readable by its owner only. Raises ConfigError, OSError."""
        if not path.exists():
            _create(path)
        try:
            return cls(path.read_bytes())
        except ValueError as error:
            raise ConfigError(f"{path}: {error}; point run.secret to the right file") from None

    @property
    def commitment(self) -> bytes:
        return blake3(self.value).digest()

    def seeds(self, task: str, attempt: int, version: int, count: int) -> np.ndarray:
        """One seed per completion of the group, uint64, shape [count]."""
        names = f"seeds\x1f{task}\x1f{attempt}\x1f{version}".encode()
        return np.frombuffer(blake3(names, key=self.value).digest(length=8 * count), dtype="<u8")

    def nonce(self, worker: str, task: str, attempt: int) -> bytes:
        """The challenge of the proof of possession, 32 bytes."""
        return blake3(f"nonce\x1f{worker}\x1f{task}\x1f{attempt}".encode(), key=self.value).digest()


def _create(path: Path) -> None:
    """Whole or not at all: the run commits to what is here, so a trainer killed now must find nothing or all of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-") as draft:  # mode 0600
        draft.write(secrets.token_bytes(SECRET_BYTES))
        draft.flush()
        os.fsync(draft.fileno())
        with contextlib.suppress(FileExistsError):  # another process has just made one
            os.link(draft.name, path)
