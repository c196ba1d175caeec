"""The run's secret: sampling seeds and challenges that no worker can predict and anyone can check afterwards.

seed(task, attempt, policy version, index) = first 8 bytes, little-endian, of BLAKE3 keyed with the secret
over the names. The commitment is in RunCreated, the secret itself in RunEnded.
"""

from __future__ import annotations

import os
import secrets
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
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(SECRET_BYTES))
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
