"""Which groups a step takes: the oldest complete ones, and never so that an open one becomes too old."""

from __future__ import annotations

import numpy as np

from tests.trainer.events import grant, record, rollouts, verdict
from trainer import batch
from trainer.groups import Groups


def run(
    complete: list[tuple[int, int]], open_: list[tuple[int, int]] = (), flat: list[tuple[int, int]] = ()
) -> Groups:  # type: ignore[assignment]
    """Groups as (task, version)."""
    groups = Groups()
    for sequence, (task, version) in enumerate([*complete, *open_, *flat], start=1):
        groups.apply(record(grant(task, version=version), sequence))
    for task, version in [*complete, *flat]:
        answer = rollouts(grant(task, version=version))
        groups.apply(record(answer, task + 1))
        rewards = (1.0, 1.0) if (task, version) in flat else (0.0, 1.0)
        groups.apply(record(verdict(answer, rewards, sequence=task + 1), task + 1))
    return groups


def tasks(groups: Groups, **rule: int) -> list[str] | None:
    chosen = batch.choose(groups, **rule)
    return None if chosen is None else [group.grant.task for group in chosen]


def test_waits_for_enough() -> None:
    assert tasks(run([(0, 0)]), version=0, size=2, max_lag=2) is None


def test_oldest_first_in_canonical_order() -> None:
    groups = run([(11, 1), (3, 1), (9, 0), (10, 0)])
    assert tasks(groups, version=1, size=3, max_lag=2) == ["9", "10", "3"]


def test_goes_on_without_a_slow_group_that_still_has_time() -> None:
    assert tasks(run([(1, 0), (2, 0)], open_=[(0, 0)]), version=0, size=2, max_lag=2) == ["1", "2"]


def test_waits_for_a_slow_group_that_would_become_too_old() -> None:
    assert tasks(run([(1, 2), (2, 2)], open_=[(0, 0)]), version=2, size=2, max_lag=2) is None


def test_waits_early_when_later_steps_could_not_take_all_slow_ones() -> None:
    groups = run([(5, 1)], open_=[(0, 0), (1, 0)])
    assert tasks(groups, version=1, size=1, max_lag=2) is None


def test_a_failed_group_holds_nobody_back() -> None:
    groups = run([(1, 2), (2, 2)], open_=[(0, 0)])
    groups.open["0", 0].fail("void", "")
    assert tasks(groups, version=2, size=2, max_lag=2) == ["1", "2"]


def test_nothing_too_old_is_chosen() -> None:
    assert tasks(run([(0, 0), (1, 3)]), version=3, size=2, max_lag=2) is None


def test_the_event_names_what_was_consumed_and_what_was_filtered() -> None:
    groups = run([(0, 0), (1, 0)], flat=[(2, 0)])
    chosen = batch.choose(groups, version=0, size=2, max_lag=0)
    assert chosen is not None
    event, _, flat = batch.form(chosen, groups, dict(groups.folded), lineage=0, step=0, version=0)
    assert [reference.task for reference in event.groups] == ["0", "1"]
    assert [reference.task for reference in event.filtered] == [group.grant.task for group in flat] == ["2"]
    assert np.allclose(event.advantages, np.array([-1, 1, -1, 1]) / np.sqrt(2), atol=1e-5)
    assert event.folded["ROLLOUTS"] == 3


def test_samples_stand_in_the_order_of_the_advantages() -> None:
    groups = run([(0, 0), (1, 0)])
    found = batch.samples(groups.open.values(), np.array([1.0, 2.0, 3.0, 4.0]))
    assert [sample.advantage for sample in found] == [1.0, 2.0, 3.0, 4.0]
    assert all(sample.trained.all() and sample.audited for sample in found)
