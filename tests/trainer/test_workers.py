"""Who gets the next group: greed, silence and many keys gain nothing."""

from __future__ import annotations

from collections import Counter

from bus.standings import Standings
from schemas import Slashed, WorkRequested
from tests.trainer.events import OTHER, WORKER, record
from trainer.workers import Workers

NOBODY_BARRED = Standings()


def asking(**groups: int) -> Workers:
    workers = Workers(newcomers=8)
    for worker, wanted in groups.items():
        workers.asked(WorkRequested(worker=worker, groups=wanted), timestamp=0.0)
    return workers


def share_out(workers: Workers, total: int) -> Counter[str]:
    held: Counter[str] = Counter()
    for _ in range(total):
        if (worker := workers.next(held, held, NOBODY_BARRED)) is None:
            break
        held[worker] += 1
    return held


def test_asking_for_more_does_not_bring_more_than_others_get() -> None:
    workers = asking(greedy=4096, modest=12)
    workers.proven = {"greedy", "modest"}
    assert share_out(workers, 20) == {"greedy": 10, "modest": 10}
    assert share_out(workers, 40) == {"greedy": 28, "modest": 12}


def test_a_newcomer_holds_two() -> None:
    assert share_out(asking(new=100), 50) == {"new": 2}


def test_a_newcomer_gets_nothing_more_before_it_is_judged() -> None:
    workers = asking(new=100)
    assert workers.next(Counter(), Counter(new=2), NOBODY_BARRED) is None
    workers.proven = {"new"}
    assert workers.next(Counter(), Counter(new=2), NOBODY_BARRED) == "new"


def test_many_new_keys_hold_a_part_together_and_leave_the_rest_to_the_proven() -> None:
    workers = asking(honest=64, **{f"key{number}": 64 for number in range(100)})
    workers.proven = {"honest"}
    held = share_out(workers, 72)
    assert held["honest"] == 64
    assert sum(held.values()) == 72


def test_a_request_runs_out_and_the_latest_counts() -> None:
    workers = asking(one=2)
    workers.forget_expired(14.0)
    assert workers.next(Counter(), Counter(), NOBODY_BARRED) == "one"
    workers.asked(WorkRequested(worker="one", groups=0), timestamp=14.0)
    assert workers.next(Counter(), Counter(), NOBODY_BARRED) is None
    workers.asked(WorkRequested(worker="one", groups=2), timestamp=15.0)
    workers.forget_expired(30.5)
    assert workers.next(Counter(), Counter(), NOBODY_BARRED) is None


def test_who_lost_its_standing_gets_nothing() -> None:
    workers = Workers(newcomers=8)
    for worker in (WORKER, OTHER):
        workers.asked(WorkRequested(worker=worker, groups=2), timestamp=0.0)
    standings = Standings()
    standings.apply(record(Slashed(node=WORKER, reason="lied"), 1))
    assert workers.next(Counter(), Counter(), standings) == OTHER
