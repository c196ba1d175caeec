"""Which slices are audited."""

from __future__ import annotations

import math

from blake3 import blake3

from validator.draw import drawn

KEY, OTHER = bytes(range(32)), bytes(32)
COMMITMENTS = [blake3(str(number).encode()).hexdigest() for number in range(20_000)]


def chosen(key: bytes, share: float) -> list[str]:
    return [commitment for commitment in COMMITMENTS if drawn(key, commitment, share)]


def test_all_or_none() -> None:
    assert chosen(KEY, 1.0) == COMMITMENTS
    assert chosen(KEY, 0.0) == []


def test_the_share_is_what_it_says() -> None:
    for share in (0.01, 0.1, 0.5):
        deviation = math.sqrt(len(COMMITMENTS) * share * (1 - share))
        assert abs(len(chosen(KEY, share)) - share * len(COMMITMENTS)) < 4 * deviation


def test_only_the_key_tells_and_it_tells_the_same_each_time() -> None:
    ours, theirs = set(chosen(KEY, 0.5)), set(chosen(OTHER, 0.5))
    assert ours == set(chosen(KEY, 0.5))
    assert 0.4 < len(ours & theirs) / len(ours) < 0.6, "independent of the draw with another key"


def test_a_larger_share_draws_what_a_smaller_one_does() -> None:
    assert set(chosen(KEY, 0.1)) < set(chosen(KEY, 0.2))
