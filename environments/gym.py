"""Any data set of reasoning-gym (procedural reasoning tasks with verifiable answers) by its name."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from environments.environment import Environment, Prompt
from schemas.config import ConfigError


class Gym(Environment):
    """`gym:NAME` in the configuration; needs the extra `gym`.

    size: number of tasks. seed: generates them. Other arguments are those of the data set itself, for
    example min_animals for leg_counting. The prompt asks for the answer between <answer> tags; the reward is
    the data set's own score of what stands there, from 0 to 1. A few data sets (isomorphic_strings, list_functions,
    polynomial_multiplication, ransom_note in 0.1.25) also depend on Python's hash seed: with them, start every
    process with PYTHONHASHSEED=0. `fingerprint` tells.
    """

    def __init__(self, name: str, size: int = 1024, seed: int = 0, **arguments: Any) -> None:
        try:
            library = importlib.import_module("reasoning_gym")
        except ImportError as error:
            raise ConfigError(
                f"reasoning-gym cannot be imported ({error}); pip install 'cairn[gym]'"
            ) from error
        self._utils = importlib.import_module("reasoning_gym.utils")
        try:
            self._data = library.create_dataset(name, size=size, seed=seed, **arguments)
        except AssertionError as error:  # how its data sets refuse a value
            raise ConfigError(str(error)) from error

    def tasks(self) -> Sequence[dict[str, Any]]:
        return [self._data[index] for index in range(len(self._data))]

    def prompt(self, task: dict[str, Any]) -> Prompt:
        return [
            {"role": "system", "content": self._utils.SYSTEM_PROMPTS["default"]},
            {"role": "user", "content": task["question"]},
        ]

    def reward(self, task: dict[str, Any], text: str) -> float:
        return float(self._data.score_answer(self._utils.extract_answer(text), task))

    def metrics(self, task: dict[str, Any], text: str) -> dict[str, float]:
        return {"answered": float(self._utils.extract_answer(text) is not None)}
