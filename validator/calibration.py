"""Bands: how far honest completions lie from a validator's prefill, on this model and this stack.

The measured largest value of a check times MARGIN, at most the published TOPLOC thresholds (arXiv 2501.16007) or
what unlike engines need, and at least a floor so that a perfect agreement does not make a band that the next
machine breaks. How many tokens may lose their race at all is not measured: it is a default.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from schemas import Check
from schemas.config import Bands

MARGIN = 1.5
CEILING = Bands()


class Measured(NamedTuple):
    """A band that calibration sets. field: of Bands. floor: its smallest value."""

    field: str
    floor: float


MEASURED = {
    "toploc exponents": Measured("exponent_mismatches", 4),
    "toploc mantissa mean": Measured("mantissa_mean", 1.0),
    "toploc mantissa median": Measured("mantissa_median", 1.0),
    "replay margin": Measured("replay_margin", 0.05),
    "log-probs mean": Measured("logprob_difference", 0.02),
    "log-probs worst": Measured("logprob_worst", 0.1),
}
"""By the name of the check in an audit."""


def bands(audits: Iterable[list[Check]]) -> Bands:
    """The bands for honest audits (`validator.audit`) of one model over several batch sizes."""
    largest = dict.fromkeys(MEASURED, 0.0)
    for checks in audits:
        for check in checks:
            if check.name in largest and check.value is not None:
                largest[check.name] = max(largest[check.name], check.value)
    found: dict[str, Any] = {}
    for name, (field, floor) in MEASURED.items():
        value = min(max(largest[name] * MARGIN, floor), getattr(CEILING, field))
        found[field] = math.ceil(value) if field == "exponent_mismatches" else value
    return Bands(**found)
