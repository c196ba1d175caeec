"""The rows of a batch while it is decoded, and the tokens that come out of it. Knows nothing of models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from policy import as_seeds, gumbel, toploc
from workers.engine import Generated, GroupRequest

NOISE_ELEMENTS = 1 << 20
"""Noise values made at once (4 MB), but at least those of one position."""
NOISE_POSITIONS = 8
"""Most positions whose noise is made at once: many small calls cost more than a little noise that is never used."""


@dataclass
class Rows:
    """One row per completion still in the batch; every field is a tensor with the rows first, [B, ...].

    group: index of the request. origin: place among all completions. seed: int64 bits. temperature: [B, 1].
    limit: most tokens. stops: stop ids, filled up with -1, [B, S]. going: not ended yet. noise: [B, N, V] of
    the current block of positions.
    """

    group: Tensor
    origin: Tensor
    seed: Tensor
    temperature: Tensor
    limit: Tensor
    stops: Tensor
    going: Tensor
    noise: Tensor

    @classmethod
    def of(cls, groups: Sequence[GroupRequest], vocab: int, device: torch.device) -> Self:
        sizes = [len(group.seeds) for group in groups]
        group = torch.arange(len(groups)).repeat_interleave(torch.tensor(sizes)).to(device)
        fitting = NOISE_ELEMENTS // (len(group) * vocab)
        width = max(len(request.sampling.stop_ids) for request in groups)
        stops = [
            [*request.sampling.stop_ids, *[-1] * (width - len(request.sampling.stop_ids))]
            for request in groups
        ]
        return cls(
            group=group,
            origin=torch.arange(len(group), device=device),
            seed=as_seeds(np.concatenate([request.seeds for request in groups]), device),
            temperature=torch.tensor([[request.sampling.temperature] for request in groups], device=device)[
                group
            ],
            limit=torch.tensor([request.sampling.max_new_tokens for request in groups], device=device)[group],
            stops=torch.tensor(stops, dtype=torch.int64, device=device).view(len(groups), width)[group],
            going=torch.ones(len(group), dtype=torch.bool, device=device),
            noise=torch.empty(len(group), max(1, min(NOISE_POSITIONS, fitting)), vocab, device=device),
        )

    def select(self, kept: Tensor) -> Self:
        """The rows at these indices."""
        return type(self)(**{field.name: getattr(self, field.name)[kept] for field in fields(self)})

    def noise_at(self, position: int) -> Tensor:
        """Noise of this position, [B, V]; made a block at a time, so call it for every position in turn."""
        at = position % self.noise.shape[1]
        if at == 0:
            positions = torch.arange(position, position + self.noise.shape[1], device=self.seed.device)
            self.noise = gumbel(self.seed.unsqueeze(1), positions, self.noise.shape[2])
        return self.noise[:, at]

    def end(self, ids: Tensor, position: int) -> None:
        """Mark the rows whose token at `position`, ids [B], was their last."""
        self.going &= (position + 1 < self.limit) & (ids.unsqueeze(1) != self.stops).all(1)


class Tokens:
    """What was sampled, in the order of the forward passes; rows that had ended are left out."""

    def __init__(self) -> None:
        self._parts: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []

    def append(self, rows: Rows, ids: Tensor, logprobs: Tensor, hidden: Tensor) -> None:
        """One token per row: ids [B], log-probs [B], and the rows [B, H] that produced them."""
        going = rows.going
        self._parts.append(
            (rows.origin[going], ids[going], logprobs[going], hidden[going].to(torch.bfloat16))
        )

    def completions(self, requests: Sequence[GroupRequest]) -> list[list[Generated]]:
        """Every completion with its proof, per request in the order of its seeds."""
        origin, ids, logprobs, hidden = map(torch.cat, zip(*self._parts, strict=True))
        order = origin.argsort(stable=True)
        lengths = origin.bincount().tolist()
        proofs = iter(toploc.build(hidden[order].split(lengths)))
        ends = np.cumsum(lengths)[:-1]
        ids_of = iter(np.split(ids[order].cpu().numpy().astype(np.uint32), ends))
        logprobs_of = iter(np.split(logprobs[order].cpu().numpy(), ends))
        return [
            [_generated(next(ids_of), next(logprobs_of), next(proofs), request) for _ in request.seeds]
            for request in requests
        ]


def _generated(
    ids: NDArray[np.uint32], logprobs: NDArray[np.float32], proof: bytes, request: GroupRequest
) -> Generated:
    stopped = int(ids[-1]) in request.sampling.stop_ids
    return Generated(ids, logprobs, proof, "stop" if stopped else "length")
