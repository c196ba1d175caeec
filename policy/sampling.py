"""Gumbel-max sampling and its replay: a token is the argmax of logits / temperature + noise.

Adding Gumbel noise to log-probabilities and taking the argmax draws from their softmax (Gumbel 1954; Maddison,
Tarlow and Minka, "A* sampling", 2014). With the noise fixed by (seed, position, token), whoever holds the
logits can ask whether a token follows from its seed (docs/sampling.md). All arithmetic is float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from policy.noise import as_seeds, gumbel

REPLAY_ELEMENTS = 1 << 24
"""Logits that a replay holds at once (tokens times vocabulary): 64 MB, and as much again for noise, scores and
log-probs."""


class Replayed(NamedTuple):
    """What one completion's tokens come to; float32 [T] each.

    margins: the largest score minus the score of the sent token, 0 where the sent token is the argmax.
    logprobs: of the sent tokens under the sampling distribution (`token_logprobs`).
    """

    margins: Tensor
    logprobs: Tensor


def scores(logits: Tensor, temperature: float | Tensor, noise: Tensor) -> Tensor:
    """What the argmax is taken of: logits float32 [..., V], noise [..., V] -> float32 [..., V]."""
    return logits / temperature + noise


def token_logprobs(logits: Tensor, ids: Tensor, temperature: float | Tensor) -> Tensor:
    """Natural-log probabilities of `ids` under the sampling distribution softmax(logits / temperature).

    logits: float32 [..., V]. ids: int64 [...]. temperature: a number, or a tensor that broadcasts against the
    logits. Returns float32 [...]. Differentiable.
    """
    return (logits / temperature).log_softmax(-1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)


@torch.no_grad()
def replay(
    head: Callable[[Tensor], Tensor],
    hidden: Sequence[Tensor],
    ids: Sequence[NDArray[np.uint32]],
    seeds: Sequence[int] | NDArray[np.uint64],
    temperatures: Sequence[float],
) -> list[Replayed]:
    """Run the race of every sent token again, from the hidden rows that produced it.

    head: rows [N, H] -> logits [N, V]. hidden: per completion [T, H], row j of the token at position j
    (`policy.prefill`). ids: per completion [T], below V. seeds, temperatures: one per completion. Logits and
    noise are held for a block of tokens at a time, so memory does not grow with lengths times vocabulary.
    """
    lengths = [len(row) for row in ids]
    if not sum(lengths):
        return [Replayed(torch.zeros(0), torch.zeros(0)) for _ in lengths]
    rows = torch.cat(list(hidden))
    device, vocabulary = rows.device, head(rows[:1]).shape[-1]
    of = torch.tensor(lengths, device=device)
    tokens = torch.from_numpy(np.concatenate(list(ids)).astype(np.int64)).to(device)
    positions = torch.cat([torch.arange(length, device=device) for length in lengths])
    keys = as_seeds(seeds, device).repeat_interleave(of)
    temperature = torch.tensor(temperatures, device=device).repeat_interleave(of).unsqueeze(-1)
    margins, logprobs = torch.empty(len(rows), device=device), torch.empty(len(rows), device=device)
    step = max(1, REPLAY_ELEMENTS // vocabulary)
    for at in range(0, len(rows), step):
        part = slice(at, at + step)
        logits, sent = head(rows[part]).float(), tokens[part]
        raced = scores(logits, temperature[part], gumbel(keys[part], positions[part], vocabulary))
        margins[part] = raced.amax(-1) - raced.gather(-1, sent.unsqueeze(-1)).squeeze(-1)
        logprobs[part] = token_logprobs(logits, sent, temperature[part])
    return [Replayed(*both) for both in zip(margins.split(lengths), logprobs.split(lengths), strict=True)]
