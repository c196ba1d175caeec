"""The digest of a policy: one definition for the bytes in a file and the tensors in an engine.

Tensors are taken in the order of their names; tied tensors count once, under the name that safetensors
keeps. Each contributes its name, dtype (safetensors spelling), shape and the BLAKE3 hash of its
little-endian bytes, so that per-tensor hashes can be computed in parallel and compared one by one.
"""

from __future__ import annotations

from collections.abc import Iterable

from blake3 import blake3


def tensor_hash(name: str, dtype: str, shape: Iterable[int], data: bytes | bytearray | memoryview) -> bytes:
    """BLAKE3 of one tensor: its header, then the hash of its bytes. Returns 32 bytes."""
    header = f"{name}\x1f{dtype}\x1f{','.join(map(str, shape))}\x1f".encode()
    return blake3(header + blake3(data).digest()).digest()


def weights_digest(hashes: Iterable[tuple[str, bytes]]) -> str:
    """(name, tensor hash) pairs in any order -> the policy's digest, 64 hex digits."""
    whole = blake3()
    for name, value in sorted(hashes):
        whole.update(f"{name}\x1f".encode() + value)
    return whole.hexdigest()
