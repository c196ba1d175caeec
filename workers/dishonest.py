"""A worker that cheats, for trying the validator: another initialisation of the model, its tokens and its proofs.

It holds the real policy as well, so that it can answer the challenge of possession; everything else it sends
comes from a model that cost nothing to train. tests/adversaries/ has the other cheats.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from workers.engine import Generated, GroupRequest
from workers.transformers_engine import TransformersEngine


class Dishonest:
    """An Engine that claims the policy it was given and generates with random weights of the same shape."""

    name = "dishonest"

    def __init__(self, engine: TransformersEngine, seed: int = 1) -> None:
        self._true, self._false, self._seed = engine, TransformersEngine(engine.dtype), seed

    @property
    def version(self) -> int:
        return self._true.version

    @property
    def digest(self) -> str:
        return self._true.digest

    def load(self, folder: Path, version: int, digest: str) -> None:
        self._true.load(folder, version, digest)
        self._false.load(folder, version, digest)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            other = type(self._false.model)(self._false.model.config)
        self._false.model.load_state_dict(other.state_dict())

    def generate(self, groups: Sequence[GroupRequest]) -> list[list[Generated]]:
        return self._false.generate(groups)

    def answer(self, nonce: bytes) -> bytes:
        return self._true.answer(nonce)
