"""The dear checks: one teacher-forced prefill of a completion, and everything that can be seen in it.

The sampled tokens must win the race that their seed fixes (docs/sampling.md), the hidden states must be those
of the claimed policy (TOPLOC, arXiv 2501.16007), and the claimed log-probs must be its log-probs. Ending early
is caught by the first: the stop token is sampled like every other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from policy import Replayed, prefill, replay, toploc
from schemas import Check, Completion, TaskGranted
from schemas.config import Bands
from validator.checks import LOWEST_LOGPROB
from validator.submission import Submission


class NonFiniteLogits(ArithmeticError):
    """The policy's logits hold NaN for these tokens: nothing can be said about them, and nobody be blamed."""


class Claim(NamedTuple):
    """One completion to be audited, its grant, and the bytes of its proof, well formed."""

    grant: TaskGranted
    completion: Completion
    proof: bytes

    @classmethod
    def of(cls, submission: Submission, completion: Completion) -> Claim:
        """The claim of a completion whose cheap checks held, so that its proof is there."""
        assert submission.proof is not None
        proof = submission.proof.event
        return cls(submission.granted, completion, proof.proofs[proof.indices.index(completion.index)])

    @property
    def seed(self) -> int:
        return int(self.grant.seeds[self.completion.index])


def audit(model: Any, claims: Sequence[Claim], bands: Bands, tokens: int) -> list[list[Check]]:
    """Checks of each claim, in their order; all are of the policy that `model` holds, with ids it knows.

    tokens: budget of one forward pass, padding included; it bounds memory. Raises NonFiniteLogits and
    policy.NonFiniteHidden.
    """
    return [checks for part in _parts(claims, tokens) for checks in _together(model, part, bands, tokens)]


def _parts(claims: Sequence[Claim], tokens: int) -> Iterator[list[Claim]]:
    """Neighbours whose hidden states fit the budget together."""
    part: list[Claim] = []
    room = tokens
    for claim in claims:
        size = len(claim.grant.prompt) + len(claim.completion.ids)
        if part and size > room:
            yield part
            part, room = [], tokens
        part.append(claim)
        room -= size
    if part:
        yield part


def _together(model: Any, claims: list[Claim], bands: Bands, tokens: int) -> Iterator[list[Check]]:
    ids = [claim.completion.ids for claim in claims]
    hidden = prefill(model, [claim.grant.prompt for claim in claims], ids, tokens)
    committed = toploc.verify(hidden, [claim.proof for claim in claims])
    temperatures = [claim.grant.sampling.temperature for claim in claims]
    seeds = [claim.seed for claim in claims]
    replayed = replay(model.get_output_embeddings(), hidden, ids, seeds, temperatures)
    for claim, found, errors in zip(claims, replayed, committed, strict=True):
        yield [*_sampled(claim, found, bands), *_committed(errors, bands)]


def _sampled(claim: Claim, found: Replayed, bands: Bands) -> list[Check]:
    """Tokens against the race of their seed, log-probs against the policy's own.

    A token that the policy rules out loses by infinity; what is measured stops at what the cheap checks allow.
    """
    margins, own = (each.cpu().numpy().astype(np.float64) for each in found)
    if np.isnan(margins).any() or np.isnan(own).any():
        raise NonFiniteLogits(f"the policy's logits are NaN in completion {claim.completion.index}")
    margins = np.minimum(margins, -LOWEST_LOGPROB)
    apart = np.abs(np.maximum(own, LOWEST_LOGPROB) - claim.completion.logprobs.astype(np.float64))
    allowed = max(1, int(bands.replay_mismatches * len(margins)))
    return [
        _within("replay margin", margins.max(), bands.replay_margin),
        _within("replay mismatches", (margins > 0).sum(), allowed),
        _within("log-probs mean", apart.mean(), bands.logprob_difference),
        _within("log-probs worst", apart.max(), bands.logprob_worst),
    ]


def _committed(errors: toploc.Errors, bands: Bands) -> list[Check]:
    return [
        _within("toploc exponents", errors.exponent_mismatches.max(), bands.exponent_mismatches),
        _within("toploc mantissa mean", errors.mantissa_mean.max(), bands.mantissa_mean),
        _within("toploc mantissa median", errors.mantissa_median.max(), bands.mantissa_median),
    ]


def _within(name: str, value: float | np.number[Any], limit: float) -> Check:
    return Check(name=name, passed=bool(value <= limit), value=float(value), limit=limit)
