"""A bare synchronous loop on the task of a configuration: one process, one thread, nothing but sampling and learning.

No bus, no relays, no proofs, no second opinion: the same learner where there is nobody to reach and nobody to doubt.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from peers.trial import HeldOutTask, Trial, arguments, configuration
from torch import Tensor
from torch.nn.functional import pad
from transformers import AutoModelForCausalLM, DynamicCache

from trainer.advantages import group_advantages
from trainer.learner import Learner
from trainer.packing import Sample


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    torch.set_num_threads(1)
    config = configuration(options)
    torch.manual_seed(config.run.seed)
    chance = random.Random(config.run.seed)
    task = HeldOutTask(config)
    trial = Trial(task, options)
    learner = Learner(AutoModelForCausalLM.from_pretrained(config.policy.model, dtype=torch.float32), config)
    trial.begin()
    while not trial.ends or not trial.out_of_time:
        indices = chance.sample(task.train, config.batch.groups)
        learner.step(rollouts(learner.model, task, indices))
        trial.step_done(learner.model)
    print(trial.report())


def rollouts(model: Any, task: HeldOutTask, indices: Sequence[int]) -> list[Sample]:
    """One group of completions for each task, with their advantages."""
    size = task.config.batch.group_size
    prompts = [task.tokenizer.encode(task.prompt(index)) for index in indices]
    completions = generate(model, prompts, task)
    texts = task.tokenizer.batch_decode(completions, skip_special_tokens=True)
    samples = []
    for at, (index, prompt) in enumerate(zip(indices, prompts, strict=True)):
        group = slice(at * size, (at + 1) * size)
        advantages = group_advantages([task.reward(index, text) for text in texts[group]])
        for ids, advantage in zip(completions[group], advantages, strict=True):
            length = len(ids)
            nobody = np.zeros(length, np.float32)  # there is no engine whose log-probs could differ
            samples.append(
                Sample(np.array(prompt), np.array(ids), np.ones(length, bool), nobody, float(advantage))
            )
    return samples


@torch.no_grad()
def generate(model: Any, prompts: Sequence[Sequence[int]], task: HeldOutTask) -> list[list[int]]:
    """Completions of every prompt, group after group, the end-of-sequence token included.

    Every prompt is prefilled once; its group continues from copies of the key-value cache.
    """
    sampling, stop = task.config.sampling, task.tokenizer.eos_token_id
    width = max(map(len, prompts))
    ids = torch.tensor([[stop] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    cache = DynamicCache(config=model.config)
    logits = _next(model, ids, mask, cache)
    size = task.config.batch.group_size
    cache.batch_repeat_interleave(size)
    logits, mask = logits.repeat_interleave(size, 0), mask.repeat_interleave(size, 0)
    drawn: list[Tensor] = []
    going = torch.ones(len(mask), dtype=torch.bool)
    while going.any() and len(drawn) < sampling.max_new_tokens:
        if drawn:
            mask = pad(mask, (0, 1), value=1)
            logits = _next(model, drawn[-1], mask, cache)
        drawn.append(torch.multinomial((logits / sampling.temperature).softmax(-1), 1))
        going &= drawn[-1][:, 0] != stop
    rows = torch.cat(drawn, 1).tolist()
    return [row[: row.index(stop) + 1] if stop in row else row for row in rows]


def _next(model: Any, ids: Tensor, mask: Tensor, cache: DynamicCache) -> Tensor:
    """Feed ids [B, N], of which mask [B, L] covers all that came before as well; logits [B, V] of what follows."""
    positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
    output = model(
        ids, attention_mask=mask, position_ids=positions, cache=cache, use_cache=True, logits_to_keep=1
    )
    logits_BV: Tensor = output.logits[:, -1]
    return logits_BV


if __name__ == "__main__":
    main()
