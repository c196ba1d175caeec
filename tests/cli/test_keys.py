from __future__ import annotations

import json
from pathlib import Path

from bus import Component
from tests.cli.conftest import Cairn


def test_a_key_is_made_once_and_shown(cairn: Cairn, tmp_path: Path) -> None:
    first = cairn("keys", "show", "validator")
    assert (first.code, first.errors) == (0, "")
    assert cairn("keys", "show", "validator") == first
    assert cairn("keys", "show", "validator", "second").output != first.output
    shown = json.loads(cairn("keys", "show", "validator", "--json").output)
    assert shown == {
        "kind": "validator",
        "public_key": first.output.strip(),
        "file": str(tmp_path / "keys" / "validator-validator.nk"),
    }


def test_the_key_of_a_program_of_ones_own(cairn: Cairn) -> None:
    shown = cairn("keys", "show", "filter", "variety").output.strip()
    assert shown == Component(kind="filter", name="variety").public_key


def test_a_folder_that_cannot_hold_keys(cairn: Cairn, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = cairn("keys", "show", "worker", "--keys", tmp_path / "file")
    done.fails_with(1, "cannot use the key file", str(tmp_path / "file"))


def test_a_kind_that_no_node_can_have(cairn: Cairn) -> None:
    cairn("keys", "show", "a b").fails_with(2, "'a b' has other characters")
