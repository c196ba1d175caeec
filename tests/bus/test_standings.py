"""The fold over STANDINGS."""

from __future__ import annotations

from bus import Record, Standings
from schemas import Credited, Event, Quarantined, Reinstated, Slashed


def record(sequence: int, event: Event) -> Record[Event]:
    return Record(sequence, event, "demo.standings.w", 0.0, "U", "")


def test_who_is_barred_and_why() -> None:
    standings = Standings()
    assert standings.allowed("w")
    standings.apply(record(1, Slashed(node="w", reason="another policy")))
    assert not standings.allowed("w")
    assert standings.reason("w") == "slashed: another policy"
    assert standings.allowed("v")
    standings.apply(record(2, Reinstated(node="w")))
    assert standings.allowed("w")
    standings.apply(record(3, Quarantined(node="w", reason="noise")))
    assert not standings.allowed("w")


def test_applying_again_changes_nothing_and_a_credit_counts_once() -> None:
    standings = Standings()
    credit = Credited(node="w", step=1, tokens=100)
    for sequence in (1, 1, 2):  # delivered twice, then said again by a trainer that was killed
        standings.apply(record(sequence, credit))
    standings.apply(record(3, Credited(node="w", step=2, tokens=50)))
    assert standings.tokens["w"] == 150
    assert standings.sequence == 3
