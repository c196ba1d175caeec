from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3

from trainer.secret import Secret


def test_the_file_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    first = Secret.load_or_create(tmp_path / "deep" / "secret")
    assert (tmp_path / "deep" / "secret").stat().st_mode & 0o777 == 0o600
    assert Secret.load_or_create(tmp_path / "deep" / "secret").value == first.value
    assert Secret.load_or_create(tmp_path / "other").value != first.value


def test_a_truncated_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"short")
    with pytest.raises(ValueError, match="32 bytes"):
        Secret.load_or_create(tmp_path / "secret")


def test_seeds_depend_on_all_that_names_a_completion() -> None:
    secret = Secret(bytes(range(32)))
    seeds = secret.seeds("12", 0, 3, 16)
    assert seeds.dtype == np.uint64
    assert len(set(seeds.tolist())) == 16
    others = [secret.seeds("13", 0, 3, 16), secret.seeds("12", 1, 3, 16), secret.seeds("12", 0, 4, 16)]
    others.append(Secret(bytes(32)).seeds("12", 0, 3, 16))
    assert all(not np.array_equal(seeds, other) for other in others)
    assert np.array_equal(secret.seeds("12", 0, 3, 16), seeds)


def test_the_revealed_secret_opens_the_commitment() -> None:
    secret = Secret(bytes(range(32)))
    assert secret.commitment == blake3(secret.value).digest()
    assert secret.nonce("w", "1", 0) != secret.nonce("w", "1", 1)
