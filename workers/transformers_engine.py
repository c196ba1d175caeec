"""Batched generation with transformers: any causal language model, on a CPU or one GPU.

Prompts of different groups are padded on the left and prefilled once per group; its completions start from
copies of the group's key-value cache. All rows then advance one token per forward pass. Rows that have ended
leave the batch in bulk, when enough of them have. The proofs are built at the end, over all completions at once.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache, PreTrainedModel

import policy
from workers.decoding import Rows, Tokens
from workers.engine import Generated, GroupRequest

COMPACT_SHARE = 0.75
"""Ended rows are removed once at most this share of the batch goes on: moving the cache costs about as much as
the forward pass of a few rows."""


class TransformersEngine:
    """An Engine on `transformers` (see workers.engine). dtype: of the weights, as the run's configuration has it."""

    def __init__(self, dtype: str) -> None:
        self.name = f"transformers {transformers.__version__}"
        self.dtype = dtype
        self.device = policy.device()
        self.version, self.digest = -1, ""
        self._model: PreTrainedModel | None = None

    @property
    def model(self) -> PreTrainedModel:
        """The model of the loaded policy; raises RuntimeError while there is none."""
        if self._model is None or not self.digest:
            raise RuntimeError("the engine holds no policy; load one first")
        return self._model

    def load(self, folder: Path, version: int, digest: str) -> None:
        if self.digest == digest:
            self.version = version
            return
        self.version, self.digest = -1, ""
        if self._model is None:
            model = policy.load(folder, self.dtype, self.device).requires_grad_(False)
            policy.check_digest(model, digest)
            self._model = model
        else:
            policy.swap(self._model, folder, digest)
        self.version, self.digest = version, digest

    def answer(self, nonce: bytes) -> bytes:
        return policy.answer(self.model, nonce)

    @torch.no_grad()
    def generate(self, groups: Sequence[GroupRequest]) -> list[list[Generated]]:
        head = self.model.get_output_embeddings()
        rows, tokens = Rows.of(groups, head.weight.shape[0], self.device), Tokens()
        cache, mask, hidden = self._prefill([group.prompt for group in groups])
        cache.batch_select_indices(rows.group)
        mask, hidden = mask[rows.group], hidden[rows.group]
        for position in itertools.count():
            logits = head(hidden).float()
            ids = policy.scores(logits, rows.temperature, rows.noise_at(position)).argmax(-1)
            tokens.append(rows, ids, policy.token_logprobs(logits, ids, rows.temperature), hidden)
            rows.end(ids, position)
            going = int(rows.going.sum())
            if not going:
                return tokens.completions(groups)
            if going <= COMPACT_SHARE * len(ids):
                kept = rows.going.nonzero().squeeze(1)
                cache.batch_select_indices(kept)
                rows, ids, mask = rows.select(kept), ids[kept], mask[kept]
            mask = pad(mask, (0, 1), value=1)
            hidden = self._forward(ids.unsqueeze(1), mask, cache)
        raise AssertionError("every row has a length limit")

    def _prefill(self, prompts: Sequence[np.ndarray]) -> tuple[DynamicCache, Tensor, Tensor]:
        """The prompts' cache, mask [G, P] and last hidden rows [G, H]; padded on the left to the longest."""
        ids = np.zeros((len(prompts), max(map(len, prompts))), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, -len(prompt) :], mask[row, -len(prompt) :] = prompt, 1
        cache, on_device = DynamicCache(config=self.model.config), torch.from_numpy(mask).to(self.device)
        return cache, on_device, self._forward(torch.from_numpy(ids).to(self.device), on_device, cache)

    def _forward(self, ids: Tensor, mask: Tensor, cache: DynamicCache) -> Tensor:
        """Feed ids [B, N], of which mask [B, L] covers all that came before as well; the last row's hidden [B, H]."""
        positions = (mask.cumsum(1) - 1).clamp_(min=0)[:, -ids.shape[1] :]
        base = self.model.base_model
        named = {_cache_argument(type(base).forward): cache}
        output = base(ids, attention_mask=mask, position_ids=positions, use_cache=True, **named)
        return output.last_hidden_state[:, -1]


@functools.cache
def _cache_argument(forward: Callable[..., object]) -> str:
    """What transformers calls the key-value cache: `past_key_values` before 5.24. A wrong name is silently ignored."""
    return "cache" if "cache" in inspect.signature(forward).parameters else "past_key_values"
