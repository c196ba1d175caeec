"""What an environment is: a list of tasks, the prompt of each, and the reward of an answer."""

from __future__ import annotations

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from blake3 import blake3

from schemas.config import ConfigError

Task = Any
"""Whatever the environment needs to pose one task and to judge its answers; it never leaves the trusted side."""
Prompt = str | list[dict[str, str]]
"""Plain text, or chat messages ({"role": ..., "content": ...}) for the model's chat template."""


class Environment(ABC):
    """Base class of environments; the keyword arguments of `__init__` are the configuration's `environment.arguments`.

    The tasks are known by their index, on several machines and after a restart: the same arguments must give
    the same tasks in the same order in every process (`fingerprint` tells whether they did). Rewards are
    computed in the child process of a `Scorer`, so they may be slow, hang or crash, but must not depend on
    the order of the calls.
    """

    @abstractmethod
    def tasks(self) -> Sequence[Task]:
        """All tasks, those held out for evaluation included."""

    @abstractmethod
    def prompt(self, task: Task) -> Prompt:
        """What the policy is shown."""

    @abstractmethod
    def reward(self, task: Task, text: str) -> float:
        """The reward of one completion, a finite number; the text comes without the end-of-sequence token.

        Raise when the answer cannot be judged: a failure is its own outcome, a reward of 0 means "wrong".
        """

    def metrics(self, task: Task, text: str) -> dict[str, float]:
        """Further measurements of one completion, reported and never trained on."""
        return {}


def split(environment: Environment, held_out: int, seed: int) -> tuple[list[int], list[int]]:
    """Task indices as (train, held out): disjoint, together all tasks, both in the order of one seeded shuffle.

    Raises ConfigError when no task would be left to train on.
    """
    indices = list(range(len(environment.tasks())))
    if held_out >= len(indices):
        raise ConfigError(
            f"environment.held_out = {held_out}: the environment has {len(indices)} tasks and none would be left "
            "to train on; hold out fewer or make more tasks"
        )
    random.Random(seed).shuffle(indices)  # noqa: S311 (no secret: anyone may know which tasks are held out)
    return indices[held_out:], indices[:held_out]


def fingerprint(environment: Environment) -> str:
    """BLAKE3 over all prompts in order, 64 hex digits: equal where an index means the same task."""
    whole = blake3()
    for task in environment.tasks():
        whole.update(blake3(json.dumps(environment.prompt(task), sort_keys=True).encode()).digest())
    return whole.hexdigest()
