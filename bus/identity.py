"""Who a node is: an NKEY user key. The public key is its name in every subject, so a name needs no registry."""

from __future__ import annotations

import base64
import binascii
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

import nkeys
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from bus.errors import BusError
from schemas import Event, RunCreated

OPEN_ROLES = frozenset({"worker", "relay", "node"})
"""Roles that anyone may take: their events name their signer, and their work is checked."""


class Identity:
    """A private key (ed25519) and its public name; the seed is never logged or shown."""

    def __init__(self, seed: bytes) -> None:
        try:
            prefix, raw = nkeys.decode_seed(bytearray(seed))
            if prefix != nkeys.PREFIX_BYTE_USER or nkeys.encode_seed(bytes(raw), prefix) != seed:
                raise ValueError  # nkeys itself does not look at the checksum
        except (nkeys.NkeysError, ValueError):
            raise BusError("not the seed of an NKEY user key (SU...)") from None
        self._key = nkeys.from_seed(bytearray(seed))
        self.public_key: str = self._key.public_key.decode()

    def __repr__(self) -> str:
        return f"Identity({self.public_key})"

    @classmethod
    def create(cls) -> Identity:
        """A new key that lives in memory only."""
        return cls(_new_seed())

    @classmethod
    def load_or_create(cls, path: Path | str) -> Identity:
        """The key in a file that only its owner can read; made at the first use, also when two race for it."""
        path = Path(path).expanduser()
        try:
            if not path.exists():
                _write_once(path, _new_seed())
            if path.stat().st_mode & 0o077:
                raise BusError(f"{path} can be read by others; chmod 600 it, or delete it to get a new key")
            seed = path.read_bytes().strip()
        except OSError as error:
            raise BusError(f"cannot use the key file {path}: {error.strerror}") from None
        try:
            return cls(seed)
        except BusError as error:
            raise BusError(f"{path}: {error}; delete it to get a new key") from None

    def sign(self, data: bytes) -> bytes:
        """The ed25519 signature of `data`, 64 bytes."""
        signature: bytes = self._key.sign(data)
        return signature


def verify(public_key: str, data: bytes, signature: bytes) -> bool:
    """Whether `signature` is that of `public_key` (U...) for `data`; False for anything malformed too."""
    key = _verify_key(public_key)
    if key is None:
        return False
    try:
        key.verify(data, signature)
    except (BadSignatureError, ValueError):
        return False
    return True


def key_file(kind: str, name: str = "", folder: Path | str | None = None) -> Path:
    """`<folder>/<kind>-<name>.nk`; the name defaults to the kind, the folder to $CAIRN_KEYS, then ~/.config/cairn/keys."""
    keys = folder or os.environ.get("CAIRN_KEYS") or "~/.config/cairn/keys"
    return Path(keys).expanduser() / (re.sub(r"[^A-Za-z0-9_.-]", "_", f"{kind}-{name or kind}") + ".nk")


class Trust:
    """Who may say what in a run: role -> public keys. Open roles need no entry."""

    def __init__(self, /, **roles: Iterable[str]) -> None:
        self.roles: Mapping[str, frozenset[str]] = {role: frozenset(keys) for role, keys in roles.items()}

    @classmethod
    def of(cls, created: RunCreated, signer: str) -> Trust:
        """The trust that a run's first event declares; its signer is a trainer."""
        roles = {role: set(keys) for role, keys in created.trusted.items()}
        roles.setdefault("trainer", set()).add(signer)
        return cls(**roles)

    def allows(self, kind: type[Event], public_key: str) -> bool:
        """Whether this key may sign events of this kind (who owns the subject is checked apart)."""
        return bool(kind.publishers & OPEN_ROLES) or any(
            public_key in self.roles.get(role, ()) for role in kind.publishers
        )


def _new_seed() -> bytes:
    seed: bytes = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER)
    return seed


def _write_once(path: Path, seed: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(seed + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)  # unlike rename, never replaces a key that another process has just made
    except FileExistsError:
        pass
    finally:
        draft.unlink()


@lru_cache(maxsize=4096)
def _verify_key(public_key: str) -> VerifyKey | None:
    """NKEY text: base32 of a prefix byte, 32 key bytes and a CRC-16 (little-endian)."""
    try:
        raw = base64.b32decode(public_key)
    except (binascii.Error, ValueError):
        return None
    if len(raw) != 35 or raw[0] != nkeys.PREFIX_BYTE_USER:
        return None
    if int.from_bytes(raw[33:], "little") != nkeys.crc16(bytearray(raw[:33])):
        return None
    return VerifyKey(raw[1:33])
