"""The lag rule as a table, and by simulation: whatever is admitted can be trained on in time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.admission import feasible, may_grant


@pytest.mark.parametrize(
    ("unconsumed", "size", "next_version", "granted", "max_lag", "allowed"),
    [
        # synchronous: exactly one batch of the newest policy, nothing while a step runs
        (0, 4, 0, 0, 0, True),
        (3, 4, 0, 0, 0, True),
        (4, 4, 0, 0, 0, False),
        (0, 4, 1, 0, 0, False),
        # one step of lag: two batches while idle, one while the step to the next version runs
        (7, 4, 5, 5, 1, True),
        (8, 4, 5, 5, 1, False),
        (3, 4, 6, 5, 1, True),
        (4, 4, 6, 5, 1, False),
        (0, 4, 7, 5, 1, False),
        # the default: three batches
        (11, 4, 0, 0, 2, True),
        (12, 4, 0, 0, 2, False),
        (7, 4, 1, 0, 2, True),
        (8, 4, 1, 0, 2, False),
        (0, 1, 2, 0, 2, True),
        (1, 1, 2, 0, 2, False),
    ],
)
def test_may_grant(
    unconsumed: int, size: int, next_version: int, granted: int, max_lag: int, allowed: bool
) -> None:
    assert may_grant(unconsumed, size, next_version, granted, max_lag) is allowed


@pytest.mark.parametrize(
    ("versions", "size", "next_version", "max_lag", "possible"),
    [
        ([], 1, 9, 0, True),
        ([0, 0], 1, 2, 2, False),  # two that must both go into the step from version 2
        ([0, 1], 1, 2, 2, True),
        ([0, 1, 1], 1, 2, 2, False),
        ([0, 0, 1, 1], 2, 2, 2, True),
        ([0], 4, 3, 2, False),  # too old already
    ],
)
def test_feasible(versions: list[int], size: int, next_version: int, max_lag: int, possible: bool) -> None:
    assert feasible(versions, size, next_version, max_lag) is possible


@given(seed=st.integers(0, 2**32), size=st.integers(1, 4), max_lag=st.integers(0, 3))
def test_what_is_admitted_is_trained_on_in_time(seed: int, size: int, max_lag: int) -> None:
    """Workers answer in any order and steps take any time: no group is ever older than max_lag when consumed."""
    chance = random.Random(seed)
    version, published, training = 0, 0, False
    opened: list[int] = []  # versions of groups that are not answered yet
    complete: list[int] = []
    for _ in range(200):
        next_version = version + training
        move = chance.randrange(4)
        if move == 0 and may_grant(len(opened) + len(complete), size, next_version, published, max_lag):
            opened.append(published)
        elif move == 1 and opened:
            complete.append(opened.pop(chance.randrange(len(opened))))
        elif move == 2 and not training and len(complete) >= size:
            chosen = sorted(complete)[:size]
            rest = sorted([*opened, *sorted(complete)[size:]])
            if feasible(rest, size, version + 1, max_lag):
                assert all(version - group <= max_lag for group in chosen)
                complete = sorted(complete)[size:]
                training = True
        elif move == 3 and training:
            version, training = version + 1, False
            published = version if chance.random() < 0.7 else published
    assert feasible([*opened, *complete], size, version + training, max_lag)
