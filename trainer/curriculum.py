"""Which task comes when: a seeded shuffle for each epoch, a pure function of the task's number.

Nothing is stored but the next number, which is a fold over TASKS: a resumed run repeats and skips nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np


class Curriculum:
    """indices: the environment's training tasks. Raises ValueError when there are none."""

    def __init__(self, indices: Sequence[int], seed: int) -> None:
        if not indices:
            raise ValueError("the environment has no training tasks; lower environment.held_out or add tasks")
        self._indices = np.asarray(indices)
        self._order = lru_cache(maxsize=2)(
            lambda epoch: np.random.default_rng([seed, epoch]).permutation(len(indices))
        )

    def index(self, number: int) -> int:
        """The environment's task for the run's `number`-th draw, from 0."""
        epoch, place = divmod(number, len(self._indices))
        return int(self._indices[self._order(epoch)[place]])
