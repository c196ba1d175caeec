"""Keys: made once, kept private, spelled in one way; trust by role."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bus import BusError, Identity, Trust, key_file, verify
from schemas import Control, Heartbeat, Rollouts, RunCreated, Slashed, TaskGranted, Verdict


def test_a_signature_holds_for_its_key_and_its_bytes_only() -> None:
    me, other = Identity.create(), Identity.create()
    signature = me.sign(b"data")
    assert verify(me.public_key, b"data", signature)
    assert not verify(me.public_key, b"date", signature)
    assert not verify(other.public_key, b"data", signature)
    assert not verify(me.public_key, b"data", bytes(64))
    assert not verify(me.public_key, b"data", signature[:-1])


def test_malformed_public_keys_verify_nothing() -> None:
    me = Identity.create()
    swapped = me.public_key[:10] + ("A" if me.public_key[10] != "A" else "B") + me.public_key[11:]
    for key in ("", "U", "nobody", me.public_key.lower(), swapped, me.public_key + "=", "é" * 56):
        assert not verify(key, b"data", me.sign(b"data"))


def test_a_key_file_is_made_once_and_is_private(tmp_path: Path) -> None:
    path = key_file("worker", "one", tmp_path / "keys")
    first = Identity.load_or_create(path)
    assert Identity.load_or_create(path).public_key == first.public_key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["worker-one.nk"]


def test_processes_that_race_for_a_key_file_agree(tmp_path: Path) -> None:
    path = tmp_path / "node.nk"
    with ThreadPoolExecutor(8) as pool:
        keys = {identity.public_key for identity in pool.map(Identity.load_or_create, [path] * 32)}
    assert len(keys) == 1


def test_the_seed_is_not_shown() -> None:
    identity = Identity.create()
    assert repr(identity) == f"Identity({identity.public_key})"


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "node.nk"
    Identity.load_or_create(path)
    path.chmod(0o644)
    with pytest.raises(BusError, match="can be read by others; chmod 600"):
        Identity.load_or_create(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"SUAM" + b"A" * 54, b"\xff\xfe"])
def test_a_damaged_key_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "node.nk"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(BusError, match=r"node\.nk: not the seed"):
        Identity.load_or_create(path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BusError, match="cannot use the key file"):
        Identity.load_or_create(tmp_path / "file" / "node.nk")


def test_names_stay_inside_the_folder(tmp_path: Path) -> None:
    assert key_file("worker", "../../etc/x", tmp_path).parent == tmp_path


def test_the_keys_folder_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_KEYS", str(tmp_path))
    assert key_file("worker", "") == tmp_path / "worker-worker.nk"


def test_who_may_say_what() -> None:
    trainer, validator, stranger = (Identity.create().public_key for _ in range(3))
    created = RunCreated(
        run="r", config={}, trusted={"validator": (validator,), "self": ()}, commitment=bytes(32)
    )
    trust = Trust.of(created, trainer)
    assert trust.allows(TaskGranted, trainer)
    assert not trust.allows(TaskGranted, validator)
    assert trust.allows(Verdict, validator)
    assert not trust.allows(Verdict, stranger)
    assert trust.allows(Slashed, validator)
    assert trust.allows(Slashed, trainer)
    assert not trust.allows(Control, trainer)
    assert trust.allows(Rollouts, stranger)
    assert trust.allows(Heartbeat, stranger)
