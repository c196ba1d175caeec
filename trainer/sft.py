"""Supervised fine-tuning on demonstrations: (prompt, completion) pairs of token ids.

Shape suffixes: B pairs of a batch, T tokens, V vocabulary.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from schemas.config import Positive, Section

IGNORED = -100
"""Target of a token that the loss leaves out: cross_entropy's default."""
Pair = tuple[Sequence[int], Sequence[int]]
"""Prompt and completion; the completion ends with the end-of-sequence token when the model is to stop there."""
Progress = Callable[[int, int, float], None]
"""Called with the steps done, the steps in all and the last loss."""


class SupervisedTraining(Section):
    steps: int = Field(default=250, ge=1)
    batch_size: int = Field(default=64, ge=1)
    learning_rate: Positive = 2e-3
    """At the start; it falls linearly to zero."""


def fine_tune(
    model: Any,
    pairs: Sequence[Pair],
    settings: SupervisedTraining,
    seed: int,
    progress: Progress | None = None,
) -> None:
    """Minimise the mean cross-entropy of the completion tokens with AdamW, in place.

    Every pair comes once an epoch, in an order drawn from `seed`. On CPU the same pairs, seed and number of
    threads give the same weights bit for bit. The model keeps its mode: without dropout that is of no matter.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / settings.steps)
    batches = _batches(pairs, settings.batch_size, seed)
    for step, batch in enumerate(itertools.islice(batches, settings.steps), start=1):
        inputs_BT, targets_BT = pad(batch)
        logits_BTV = model(input_ids=inputs_BT, use_cache=False).logits
        loss = cross_entropy(logits_BTV.flatten(0, 1).float(), targets_BT.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if progress:
            progress(step, settings.steps, loss.item())


def pad(pairs: Sequence[Pair]) -> tuple[Tensor, Tensor]:
    """Inputs [B, T] and the token that each input is to predict [B, T], IGNORED in the prompt and the padding.

    Padding is on the right, where causal attention never looks back at it: no mask and no position ids needed.
    """
    longest = max(len(prompt) + len(completion) for prompt, completion in pairs) - 1
    inputs_BT = torch.zeros(len(pairs), longest, dtype=torch.long)
    targets_BT = torch.full((len(pairs), longest), IGNORED)
    for row, (prompt, completion) in enumerate(pairs):
        tokens = torch.tensor([*prompt, *completion])
        inputs_BT[row, : len(tokens) - 1] = tokens[:-1]
        targets_BT[row, len(prompt) - 1 : len(tokens) - 1] = tokens[len(prompt) :]
    return inputs_BT, targets_BT


def _batches(pairs: Sequence[Pair], size: int, seed: int) -> Iterator[list[Pair]]:
    """Endless, each of `size` pairs; epochs follow one another without a gap."""
    generator = torch.Generator().manual_seed(seed)
    endless = itertools.chain.from_iterable(
        torch.randperm(len(pairs), generator=generator).tolist() for _ in itertools.count()
    )
    while True:
        yield [pairs[at] for at in itertools.islice(endless, size)]
