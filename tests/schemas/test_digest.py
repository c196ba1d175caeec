from __future__ import annotations

from schemas.digest import tensor_hash, weights_digest

TENSORS = {"a": ("F32", (2, 1), b"\x00\x00\x80?\x00\x00\x00@"), "b": ("BF16", (1,), b"\x80?")}


def hashes() -> list[tuple[str, bytes]]:
    return [(name, tensor_hash(name, *tensor)) for name, tensor in TENSORS.items()]


def test_the_digest_is_frozen_and_no_matter_of_order() -> None:
    assert (
        weights_digest(hashes())
        == weights_digest(reversed(hashes()))
        == "9b1e2a5e6caea1240ef4dc1424994ca1e2befccec7c13fd45ef8d01ec2e26d94"
    )


def test_name_dtype_shape_and_bytes_all_count() -> None:
    variants = [
        ("a", "F32", (2, 1), b"12345678"),
        ("b", "F32", (2, 1), b"12345678"),
        ("a", "I32", (2, 1), b"12345678"),
        ("a", "F32", (1, 2), b"12345678"),
        ("a", "F32", (2, 1), b"12345679"),
    ]
    assert len({tensor_hash(*variant) for variant in variants}) == len(variants)
