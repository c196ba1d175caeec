"""Gumbel-max sampling and its replay: a token is the argmax of logits / temperature + noise.

Adding Gumbel noise to log-probabilities and taking the argmax draws from their softmax (Gumbel 1954; Maddison,
Tarlow and Minka, "A* sampling", 2014). With the noise fixed by (seed, position, token), whoever holds the
logits can ask whether a token follows from its seed (docs/sampling.md). All arithmetic is float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from policy.noise import as_seeds, gumbel

REPLAY_ELEMENTS = 1 << 24
"""Noise values held at once by a replay: 64 MB."""


def scores(logits: Tensor, temperature: float | Tensor, noise: Tensor) -> Tensor:
    """What the argmax is taken of: logits float32 [..., V], noise [..., V] -> float32 [..., V]."""
    return logits / temperature + noise


def token_logprobs(logits: Tensor, ids: Tensor, temperature: float | Tensor) -> Tensor:
    """Natural-log probabilities of `ids` under the sampling distribution softmax(logits / temperature).

    logits: float32 [..., V]. ids: int64 [...]. temperature: a number, or a tensor that broadcasts against the
    logits. Returns float32 [...]. Differentiable.
    """
    return (logits / temperature).log_softmax(-1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)


def replay(
    logits: Sequence[Tensor],
    ids: Sequence[NDArray[np.uint32]],
    seeds: Sequence[int] | NDArray[np.uint64],
    temperature: float,
) -> list[Tensor]:
    """How far each sent token is from the one that its seed draws from these logits.

    logits: per completion float32 [T, V], row j of the token at position j. ids: per completion [T], below V.
    seeds: one per completion. Returns per completion float32 [T]: the largest score minus the score of the
    sent token, 0 where the sent token is the argmax.
    """
    lengths = [len(row) for row in ids]
    if not sum(lengths):
        return [torch.zeros(0) for _ in lengths]
    rows, device = torch.cat(list(logits)), logits[0].device
    tokens = torch.from_numpy(np.concatenate(list(ids)).astype(np.int64)).to(device)
    positions = torch.cat([torch.arange(length, device=device) for length in lengths])
    keys = as_seeds(seeds, device).repeat_interleave(torch.tensor(lengths, device=device))
    return list(_margins(rows, tokens, keys, positions, temperature).split(lengths))


def _margins(logits: Tensor, tokens: Tensor, seeds: Tensor, positions: Tensor, temperature: float) -> Tensor:
    vocab, margins = logits.shape[-1], []
    step = max(1, REPLAY_ELEMENTS // vocab)
    for at in range(0, len(tokens), step):
        part = slice(at, at + step)
        raced = scores(logits[part], temperature, gumbel(seeds[part], positions[part], vocab))
        margins.append(raced.amax(-1) - raced.gather(-1, tokens[part].unsqueeze(-1)).squeeze(-1))
    return torch.cat(margins)
