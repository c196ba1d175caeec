"""The dear checks: one teacher-forced prefill of a completion, and everything that can be seen in it.

The sampled tokens must win the race that their seed fixes (docs/sampling.md), the hidden states must be those
of the claimed policy (TOPLOC, arXiv 2501.16007), and the claimed log-probs must be its log-probs. Ending early
is caught by the first: the stop token is sampled like every other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from policy import prefill, replay, token_logprobs, toploc
from schemas import Check, Completion, TaskGranted
from schemas.config import Bands
from validator.submission import Submission


class Claim(NamedTuple):
    """One completion to be audited, its grant, and the bytes of its proof, well formed."""

    grant: TaskGranted
    completion: Completion
    proof: bytes

    @classmethod
    def of(cls, submission: Submission, completion: Completion) -> Claim:
        """The claim of a completion whose cheap checks held, so that its grant and proof are there."""
        assert submission.grant is not None
        assert submission.proof is not None
        proof = submission.proof.event
        return cls(submission.grant.event, completion, proof.proofs[proof.indices.index(completion.index)])

    @property
    def seed(self) -> int:
        return int(self.grant.seeds[self.completion.index])

    @property
    def temperature(self) -> float:
        return self.grant.sampling.temperature


def audit(model: Any, claims: Sequence[Claim], bands: Bands, tokens: int) -> list[list[Check]]:
    """Checks of each claim, in their order; all are of the policy that `model` holds, with ids it knows.

    tokens: budget of one forward pass, padding included; it bounds memory.
    """
    return [checks for part in _parts(claims, tokens) for checks in _together(model, part, bands, tokens)]


def _parts(claims: Sequence[Claim], tokens: int) -> Iterator[list[Claim]]:
    """Neighbours of one temperature that fit the budget together."""
    part: list[Claim] = []
    room = tokens
    for claim in claims:
        size = len(claim.grant.prompt) + len(claim.completion.ids)
        if part and (size > room or claim.temperature != part[0].temperature):
            yield part
            part, room = [], tokens
        part.append(claim)
        room -= size
    if part:
        yield part


def _together(model: Any, claims: list[Claim], bands: Bands, tokens: int) -> Iterator[list[Check]]:
    ids = [claim.completion.ids for claim in claims]
    passes = prefill(model, [claim.grant.prompt for claim in claims], ids, tokens)
    logits = [found.logits for found in passes]
    margins = replay(logits, ids, [claim.seed for claim in claims], claims[0].temperature)
    committed = toploc.verify([found.hidden for found in passes], [claim.proof for claim in claims])
    for claim, logit, margin, errors in zip(claims, logits, margins, committed, strict=True):
        yield [*_replayed(margin, bands), _logprobs(claim, logit, bands), *_committed(errors, bands)]


def _replayed(margins: Tensor, bands: Bands) -> list[Check]:
    """margins: [T], by how much each token loses to the one that its seed draws."""
    allowed = max(1, int(bands.replay_mismatches * len(margins)))
    return [
        _within("replay margin", float(margins.max()), bands.replay_margin),
        _within("replay mismatches", int((margins > 0).sum()), allowed),
    ]


def _logprobs(claim: Claim, logits: Tensor, bands: Bands) -> Check:
    ids = torch.from_numpy(claim.completion.ids.astype(np.int64)).to(logits.device)
    own = token_logprobs(logits, ids, claim.temperature).cpu().numpy()
    return _within(
        "log-probs", float(np.abs(own - claim.completion.logprobs).mean()), bands.logprob_difference
    )


def _committed(errors: toploc.Errors, bands: Bands) -> list[Check]:
    return [
        _within("toploc exponents", int(errors.exponent_mismatches.max()), bands.exponent_mismatches),
        _within("toploc mantissa mean", float(errors.mantissa_mean.max()), bands.mantissa_mean),
        _within("toploc mantissa median", float(errors.mantissa_median.max()), bands.mantissa_median),
    ]


def _within(name: str, value: float, limit: float) -> Check:
    return Check(name=name, passed=value <= limit, value=value, limit=limit)
