"""The dear checks: one teacher-forced prefill of a completion, and everything that can be seen in it.

The sampled tokens must win the race that their seed fixes (`policy.replay`), the hidden states must be those
of the claimed policy (TOPLOC, arXiv 2501.16007), and the claimed log-probs must be its log-probs. Ending early
is caught by the first: the stop token is sampled like every other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import policy
from schemas import Check, Completion, TaskGranted
from schemas.config import Bands
from validator.submission import Submission


class Claim(NamedTuple):
    """One completion to be audited, its grant, and the bytes of its proof."""

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


def audit(model: Any, claims: Sequence[Claim], bands: Bands, tokens: int) -> list[list[Check]]:
    """Checks of each claim, in their order; all are of the policy that `model` holds, with ids it knows.

    tokens: budget of one forward pass, padding included.
    """
    pairs = [(claim.grant.prompt, claim.completion.ids) for claim in claims]
    passes = policy.prefill(model, pairs, tokens)
    return [_checks(claim, *prefilled, bands) for claim, prefilled in zip(claims, passes, strict=True)]


def _checks(claim: Claim, hidden: Any, logits: Any, bands: Bands) -> list[Check]:
    """hidden: [T, H]; logits: [T, V], float32."""
    return [
        *_replayed(claim, logits, bands),
        _logprobs(claim, logits, bands),
        *_committed(claim, hidden, bands),
    ]


def _replayed(claim: Claim, logits: Any, bands: Bands) -> list[Check]:
    sampling, seed = claim.grant.sampling, int(claim.grant.seeds[claim.completion.index])
    margins = policy.replay(logits, claim.completion.ids, seed, sampling.temperature)
    mismatches, allowed = int((margins > 0).sum()), max(1, int(bands.replay_mismatches * len(margins)))
    worst = float(margins.max())
    return [
        Check(name="replay margin", passed=worst <= bands.replay_margin, value=worst, limit=bands.replay_margin),
        Check(name="replay mismatches", passed=mismatches <= allowed, value=mismatches, limit=allowed),
    ]


def _logprobs(claim: Claim, logits: Any, bands: Bands) -> Check:
    own = policy.token_logprobs(logits, claim.completion.ids, claim.grant.sampling.temperature)
    difference = float(np.abs(own.numpy() - claim.completion.logprobs).mean())
    return Check(
        name="log-probs", passed=difference <= bands.logprob_difference, value=difference, limit=bands.logprob_difference
    )


def _committed(claim: Claim, hidden: Any, bands: Bands) -> list[Check]:
    try:
        errors = policy.toploc.verify(hidden, claim.proof)
    except policy.MalformedProof as error:
        return [Check(name="toploc form", passed=False, detail=str(error))]
    limits = (
        ("toploc exponents", max(error.exponent_mismatches for error in errors), bands.exponent_mismatches),
        ("toploc mantissa mean", max(error.mantissa_mean for error in errors), bands.mantissa_mean),
        ("toploc mantissa median", max(error.mantissa_median for error in errors), bands.mantissa_median),
    )
    return [Check(name=name, passed=value <= limit, value=value, limit=limit) for name, value, limit in limits]
