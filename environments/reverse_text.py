"""Reverse a word: small enough for a tiny model, and its reward is dense enough to learn from within seconds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from difflib import SequenceMatcher

from environments.environment import Environment

END_OF_WORD = ">"


class ReverseText(Environment):
    """Words of random letters, all different; the prompt is `word>`, the answer the word backwards.

    letters: the alphabet. min_length, max_length: letters in a word; lengths are drawn evenly. count: number of words.
    seed: draws the words. Reward: similarity of the answer to the reversed word, from 0 to 1, and 1 only for
    an exact match. Metric `exact`: 1 for an exact match, else 0.
    """

    def __init__(
        self,
        letters: str = "abcdefghijkl",
        min_length: int = 3,
        max_length: int = 6,
        count: int = 4096,
        seed: int = 0,
    ) -> None:
        if not 1 <= min_length <= max_length:
            raise ValueError(f"lengths from {min_length} to {max_length}: need 1 <= min_length <= max_length")
        if END_OF_WORD in letters or len(set(letters)) != len(letters):
            raise ValueError(f"letters = {letters!r}: each letter once, and without {END_OF_WORD!r}")
        self._words = _words(letters, min_length, max_length, count, random.Random(seed))  # noqa: S311

    def tasks(self) -> Sequence[str]:
        return self._words

    def prompt(self, task: str) -> str:
        return task + END_OF_WORD

    def reward(self, task: str, text: str) -> float:
        return SequenceMatcher(None, task[::-1], text, autojunk=False).ratio()

    def metrics(self, task: str, text: str) -> dict[str, float]:
        return {"exact": float(text == task[::-1])}


def _words(letters: str, shortest: int, longest: int, count: int, chance: random.Random) -> list[str]:
    """Distinct words in the order drawn."""
    possible = sum(len(letters) ** length for length in range(shortest, longest + 1))
    if 2 * count > possible:  # beyond half of them, drawing without repetition gets slow
        raise ValueError(f"count = {count}: only {possible} words exist; ask for at most half of them")
    words: dict[str, None] = {}
    while len(words) < count:
        length = chance.randint(shortest, longest)
        words["".join(chance.choices(letters, k=length))] = None
    return list(words)
