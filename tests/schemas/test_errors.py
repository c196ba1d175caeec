from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from schemas.config import ConfigError
from schemas.errors import CairnError, mendable


def test_an_error_for_people_is_told_as_it_is() -> None:
    error = ConfigError("batch.groups = 0: choose 1 or more")
    assert mendable(error) is error


def test_an_error_for_programmers_is_not() -> None:
    assert mendable(KeyError("x")) is None


def test_of_a_group_the_first_is_told() -> None:
    first, second = CairnError("first"), CairnError("second")
    assert mendable(ExceptionGroup("two", [ExceptionGroup("one", [first]), second])) is first


def test_a_fault_of_the_program_is_not_hidden_behind_one_of_the_user() -> None:
    assert mendable(ExceptionGroup("two", [CairnError("mine"), KeyError("yours")])) is None


def test_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        (tmp_path / "missing").read_bytes()
    assert str(mendable(caught.value)) == f"{tmp_path / 'missing'}: No such file or directory; check the path"


def test_a_full_disk_says_what_to_do() -> None:
    told = mendable(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert str(told) == "No space left on device; make room and start again; what was stored is kept"


def test_an_operating_system_error_without_a_file_is_the_programs() -> None:
    assert mendable(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")) is None
