"""Group-relative advantages: how much better a completion is than the others of its prompt.

GRPO (arXiv 2402.03300, section 4.1.2), with the sample standard deviation that INTELLECT-2 uses. The
derivation and every edge case: docs/losses.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

EPSILON = 1e-6
"""Added to the standard deviation; a group whose rewards spread less than this has no signal."""


def has_signal(rewards: Sequence[float]) -> bool:
    """Whether a group's rewards, shape [G], differ: without that every advantage is zero.

    A spread of at most EPSILON is rounding, not signal. A group of one has none.
    Raises ValueError for an empty group or a reward that is not finite.
    """
    return bool(np.ptp(_checked(rewards)) > EPSILON)


def group_advantages(rewards: Sequence[float]) -> NDArray[np.float32]:
    """Rewards of one group, shape [G] -> advantages, shape [G]: (r - mean) / (std + EPSILON).

    Computed in float64 with the sample standard deviation (ddof=1), rounded once to float32, as BatchFormed
    carries them. Zeros for a group without signal. Raises ValueError as `has_signal` does.
    """
    rewards_G = _checked(rewards)
    if not has_signal(rewards):
        return np.zeros(len(rewards_G), np.float32)
    centred_G = rewards_G - rewards_G.mean()
    return np.asarray(centred_G / (rewards_G.std(ddof=1) + EPSILON), np.float32)


def _checked(rewards: Sequence[float]) -> NDArray[np.float64]:
    rewards_G = np.asarray(rewards, np.float64)
    if rewards_G.ndim != 1 or not rewards_G.size:
        raise ValueError(
            f"rewards of one group are expected, one per completion; got shape {rewards_G.shape}"
        )
    if not np.isfinite(rewards_G).all():
        raise ValueError("a reward is not finite; a failed scoring is its own outcome, never a reward")
    return rewards_G
