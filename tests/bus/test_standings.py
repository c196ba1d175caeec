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


def test_a_slashing_said_again_does_not_undo_a_reinstatement() -> None:
    standings = Standings()
    slashed = Slashed(node="w", evidence=(7,), reason="another policy")
    for sequence, event in enumerate((slashed, Reinstated(node="w"), slashed), 1):
        standings.apply(record(sequence, event))
    assert standings.allowed("w")
    standings.apply(record(4, Slashed(node="w", evidence=(8,), reason="again")))
    assert not standings.allowed("w")


def test_an_operator_may_bar_a_node_more_than_once() -> None:
    standings = Standings()
    for sequence, event in enumerate((Quarantined(node="w"), Reinstated(node="w"), Quarantined(node="w")), 1):
        standings.apply(record(sequence, event))
    assert not standings.allowed("w")
