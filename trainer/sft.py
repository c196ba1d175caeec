"""Supervised fine-tuning on demonstrations: (prompt, completion) pairs of token ids.

Shape suffixes: B pairs of a batch, T tokens, V vocabulary.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from schemas.config import Positive, Section

IGNORED = -100
"""Target of a token that the loss leaves out: cross_entropy's default."""
RECENT = 8
"""Steps over which the loss is averaged before it is compared with `until`."""
Pair = tuple[Sequence[int], Sequence[int]]
"""Prompt and completion; the completion ends with the end-of-sequence token when the model is to stop there."""
Progress = Callable[[int, int, float], None]
"""Called with the steps done, the most there will be, and the last loss."""


class SupervisedTraining(Section):
    steps: int = Field(default=400, ge=1)
    """At most."""
    until: float = Field(default=0.0, ge=0)
    """Stop when the mean loss of the last steps, in nats a token, is below this."""
    batch_size: int = Field(default=64, ge=1)
    learning_rate: Positive = 2e-3
    warmup_steps: int = Field(default=10, ge=0)
    """Over these the learning rate rises linearly; then it stays."""


def fine_tune(
    model: Any,
    pairs: Sequence[Pair],
    settings: SupervisedTraining,
    seed: int,
    progress: Progress | None = None,
) -> None:
    """Minimise the mean cross-entropy of the completion tokens with AdamW, in place.

    Every pair comes once an epoch, in an order drawn from `seed`. On CPU the same pairs, seed and number of
    threads give the same weights bit for bit.
    """
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.99), fused=True
    )
    ramp = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / max(1, settings.warmup_steps))
    )
    recent: deque[float] = deque(maxlen=RECENT)
    batches = itertools.islice(_batches(pairs, settings.batch_size, seed), settings.steps)
    for step, batch in enumerate(batches, start=1):
        inputs_BT, targets_BT = pad(batch)
        logits_BTV = model(input_ids=inputs_BT, use_cache=False).logits
        loss = cross_entropy(logits_BTV.flatten(0, 1).float(), targets_BT.flatten())
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        ramp.step()
        recent.append(loss.item())
        if progress:
            progress(step, settings.steps, recent[-1])
        if len(recent) == RECENT and sum(recent) / RECENT < settings.until:
            return


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
