"""The teacher-forced pass: what a policy would have computed while it generated given completions.

Row j of a completion is the position that produced its token j: the last prompt token for j = 0, then the
completion's own tokens. The last token is never fed. The pass knows nothing of seeds, proofs or rewards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

Ids = NDArray[np.uint32]


@torch.no_grad()
def prefill(
    model: PreTrainedModel, prompts: Sequence[Ids], completions: Sequence[Ids], token_budget: int = 16384
) -> list[Tensor]:
    """One forward pass over prompt + completion pairs, in batches of at most `token_budget` padded tokens.

    prompts: per pair [P], P >= 1. completions: per pair [T], T >= 1. A pair longer than the budget gets a
    batch of its own. Returns per pair, in their order, the completion's last hidden states after the final
    norm, [T, H], in the model's dtype and on its device. Logits are left to `policy.replay`, because those of
    all rows at once are many times larger.

    Padding is on the right and needs no mask: attention is causal, so no real token sees it.
    """
    results: dict[int, Tensor] = {}
    for batch in _batches(
        [len(p) + len(c) - 1 for p, c in zip(prompts, completions, strict=True)], token_budget
    ):
        pairs = [(prompts[i], completions[i]) for i in batch]
        results.update(zip(batch, _forward(model, pairs), strict=True))
    return [results[i] for i in range(len(prompts))]


def _batches(lengths: list[int], token_budget: int) -> Iterator[list[int]]:
    """Indices in batches of similar lengths, longest first, so that little is padded."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > token_budget:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _forward(model: PreTrainedModel, pairs: list[tuple[Ids, Ids]]) -> Sequence[Tensor]:
    width = max(len(prompt) + len(completion) - 1 for prompt, completion in pairs)
    ids = np.zeros((len(pairs), width), dtype=np.int64)
    rows = []
    for i, (prompt, completion) in enumerate(pairs):
        fed = len(prompt) + len(completion) - 1
        ids[i, : len(prompt)], ids[i, len(prompt) : fed] = prompt, completion[:-1]
        rows.append(np.arange(len(prompt) - 1, fed) + i * width)
    hidden = model.base_model(torch.from_numpy(ids).to(model.device), use_cache=False).last_hidden_state
    produced = hidden.flatten(0, 1)[torch.from_numpy(np.concatenate(rows)).to(model.device)]
    return produced.split([len(completion) for _, completion in pairs])
