"""Bands: how far honest completions lie from a validator's prefill, on this model and this stack.

The measured largest value of every check times MARGIN, at most the published TOPLOC thresholds
(arXiv 2501.16007) where those exist, and at least FLOOR so that a perfect agreement does not make a band that
the next machine breaks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from schemas import Check
from schemas.config import Bands

MARGIN = 1.5
CEILING = Bands()
FLOOR = {
    "exponent_mismatches": 4,
    "mantissa_mean": 1.0,
    "mantissa_median": 1.0,
    "replay_margin": 0.05,
    "replay_mismatches": 0.02,
    "logprob_difference": 0.02,
}
FIELD_OF = {
    "toploc exponents": "exponent_mismatches",
    "toploc mantissa mean": "mantissa_mean",
    "toploc mantissa median": "mantissa_median",
    "replay margin": "replay_margin",
    "log-probs": "logprob_difference",
}


def bands(audits: Iterable[list[Check]]) -> Bands:
    """The bands for honest audits (`validator.audit`) of one model over several batch sizes."""
    largest = dict.fromkeys(FLOOR, 0.0)
    for checks in audits:
        for check in checks:
            if (field := FIELD_OF.get(check.name)) is not None and check.value is not None:
                largest[field] = max(largest[field], check.value)
    found: dict[str, Any] = {}
    for field, floor in FLOOR.items():
        value = min(max(largest[field] * MARGIN, floor), getattr(CEILING, field))
        found[field] = math.ceil(value) if field == "exponent_mismatches" else value
    found["replay_mismatches"] = CEILING.replay_mismatches
    return Bands(**found)
