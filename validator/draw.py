"""Which slices are audited: a keyed hash of the committed bytes, so nobody without the key can predict it."""

from __future__ import annotations

from blake3 import blake3


def drawn(audit_key: bytes, commitment: str, share: float) -> bool:
    """True for `share` of all commitments. audit_key: 32 bytes, the validators' alone. commitment: the digest
    of the proof, sent before the draw."""
    value = int.from_bytes(blake3(commitment.encode(), key=audit_key).digest(length=8), "big")
    return value < share * 2**64
