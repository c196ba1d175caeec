"""From samples to micro-batches: which rows are computed together, and where the trained tokens lie.

Order is kept: the first samples fill the first micro-batch. Rows are right-padded, and because attention is causal no
real token sees the padding: no attention mask is needed, and padding changes no token's weight.

Shape suffixes: B samples, T inputs of the longest sample, N trained tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from schemas import Completion

PADDING = 0
"""Any id of the vocabulary: no trained token depends on it."""


@dataclass(frozen=True, eq=False)
class Sample:
    """One accepted completion, as it is trained on.

    prompt: token ids, shape [P], P >= 1. completion: token ids after it, shape [C]. trained: which of those
    the model wrote, bool, shape [C]. engine_logprobs: the worker's claim for the trained ones, shape [N].
    audited: an audit has confirmed the claim.
    """

    prompt: NDArray[Any]
    completion: NDArray[Any]
    trained: NDArray[np.bool_]
    engine_logprobs: NDArray[Any]
    advantage: float
    audited: bool = True

    def __post_init__(self) -> None:
        if not len(self.prompt):
            raise ValueError("a sample needs a prompt token: it produces the first token of the completion")
        if len(self.trained) != len(self.completion) or self.trained.sum() != len(self.engine_logprobs):
            raise ValueError(
                f"a sample of {len(self.completion)} tokens has a mask of {len(self.trained)}, of which "
                f"{self.trained.sum()} are trained, and {len(self.engine_logprobs)} log-probs"
            )

    @classmethod
    def of(cls, prompt: NDArray[Any], completion: Completion, advantage: float, audited: bool) -> Self:
        """The mask comes from the segments: only the model's own tokens are trained on."""
        trained = [np.full(len(segment.ids), segment.source == "model") for segment in completion.segments]
        return cls(prompt, completion.ids, np.concatenate(trained), completion.logprobs, advantage, audited)

    @property
    def inputs(self) -> NDArray[Any]:
        """What the model reads, shape [P + C - 1]: nothing follows the last token, so it is no input."""
        return np.concatenate([self.prompt, self.completion])[:-1]


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """One forward pass.

    inputs_BT: token ids, int64. rows_N: which hidden states, of the B*T flattened ones, produced the trained
    tokens. targets_N: those tokens. advantages_N, engine_logprobs_N: float32. audited_N: bool, whether the
    engine's log-prob was confirmed.
    """

    inputs_BT: Tensor
    rows_N: Tensor
    targets_N: Tensor
    advantages_N: Tensor
    engine_logprobs_N: Tensor
    audited_N: Tensor


def pack(samples: Sequence[Sample], tokens: int) -> list[MicroBatch]:
    """Cut samples, in their order, into micro-batches of at most `tokens` inputs, padding included.

    A sample longer than that gets a micro-batch of its own: it is consumed already, and dropping long ones
    would bias the training to short answers. The same samples always give the same micro-batches.
    """
    parts: list[list[Sample]] = []
    longest = 0
    for sample in samples:
        longest = max(longest, len(sample.inputs))
        if not parts or (len(parts[-1]) + 1) * longest > tokens:
            parts.append([])
            longest = len(sample.inputs)
        parts[-1].append(sample)
    return [_collate(part) for part in parts]


def _collate(samples: list[Sample]) -> MicroBatch:
    width = max(len(sample.inputs) for sample in samples)
    inputs_BT = np.full((len(samples), width), PADDING, np.int64)
    rows = []
    for row, sample in enumerate(samples):
        inputs_BT[row, : len(sample.inputs)] = sample.inputs
        # Completion token c is input P + c; the hidden state one before it produced it.
        rows.append(row * width + len(sample.prompt) - 1 + np.flatnonzero(sample.trained))
    trained = [len(sample.engine_logprobs) for sample in samples]
    advantages = np.repeat(np.array([sample.advantage for sample in samples], np.float32), trained)
    audited = np.repeat(np.array([sample.audited for sample in samples]), trained)
    return MicroBatch(
        inputs_BT=torch.from_numpy(inputs_BT),
        rows_N=torch.from_numpy(np.concatenate(rows).astype(np.int64)),
        targets_N=torch.from_numpy(
            np.concatenate([s.completion[s.trained] for s in samples]).astype(np.int64)
        ),
        advantages_N=torch.from_numpy(advantages),
        engine_logprobs_N=torch.from_numpy(
            np.concatenate([s.engine_logprobs for s in samples]).astype(np.float32)
        ),
        audited_N=torch.from_numpy(audited),
    )
