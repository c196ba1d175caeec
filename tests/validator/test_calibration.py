"""Bands from honest audits."""

from __future__ import annotations

import pytest

from schemas import Check
from schemas.config import Bands
from validator.calibration import CEILING, MARGIN, MEASURED, bands


def audit(**values: float) -> list[Check]:
    names = {field: name for name, (field, _) in MEASURED.items()}
    return [Check(name=names[field], passed=True, value=value) for field, value in values.items()]


def test_perfect_agreement_gives_the_floors() -> None:
    found = bands([audit(**{field: 0.0 for field, _ in MEASURED.values()})])
    for field, floor in MEASURED.values():
        assert getattr(found, field) == floor
    assert bands([]) == found


def test_disagreement_gives_at_most_the_defaults() -> None:
    assert bands([audit(**{field: 1e4 for field, _ in MEASURED.values()})]) == Bands() == CEILING


@pytest.mark.parametrize("field", [field for field, _ in MEASURED.values()])
def test_the_largest_value_of_all_audits_counts_with_its_margin(field: str) -> None:
    largest = getattr(CEILING, field) / 2
    found = bands([audit(**{field: largest / 4}), audit(**{field: largest}), audit()])
    assert getattr(found, field) == pytest.approx(
        MARGIN * largest, abs=1 if field == "exponent_mismatches" else 0
    )


def test_exponents_are_counted_in_whole_numbers() -> None:
    assert bands([audit(exponent_mismatches=5)]).exponent_mismatches == 8


def test_other_checks_and_the_share_of_mismatches_are_left_alone() -> None:
    measured = [
        Check(name="replay mismatches", passed=True, value=50.0),
        Check(name="possession", passed=True),
    ]
    assert bands([measured]) == bands([])
    assert bands([measured]).replay_mismatches == Bands().replay_mismatches
