"""What an inference engine is to a rollout worker: a policy that can be replaced, and groups of completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from schemas import Sampling, TaskGranted


@dataclass(frozen=True)
class GroupRequest:
    """One group to generate. prompt: token ids uint32 [P], P >= 1. seeds: uint64, one per completion, [G]."""

    prompt: NDArray[np.uint32]
    seeds: NDArray[np.uint64]
    sampling: Sampling

    @classmethod
    def of(cls, grant: TaskGranted) -> Self:
        return cls(grant.prompt, grant.seeds, grant.sampling)


@dataclass(frozen=True)
class Generated:
    """One completion and its commitment.

    ids: uint32 [T], the stop token included. logprobs: float32 [T], of those tokens under
    softmax(logits / temperature). proof: TOPLOC, 258 bytes per chunk (docs/verification.md). finish: `stop`
    when the last token is a stop token, else `length`.
    """

    ids: NDArray[np.uint32]
    logprobs: NDArray[np.float32]
    proof: bytes
    finish: Literal["stop", "length"]


class Engine(Protocol):
    """Generates with exactly the policy that was loaded last.

    name: what runs, for people. version, digest: of the loaded policy; -1 and "" while there is none.
    """

    name: str

    @property
    def version(self) -> int: ...

    @property
    def digest(self) -> str: ...

    def load(self, folder: Path, version: int, digest: str) -> None:
        """Replace the policy by the one in `folder`, and compare the digest of what is in memory then.

        Raises policy.DigestMismatch; the engine then holds no policy.
        """

    def generate(self, groups: Sequence[GroupRequest]) -> list[list[Generated]]:
        """Per group its completions, in the order of its seeds, sampled as docs/sampling.md says.

        The same groups together, on the same machine, give the same bytes.
        """

    def answer(self, nonce: bytes) -> bytes:
        """The proof of possession of the loaded policy, 32 bytes."""
