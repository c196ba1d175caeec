"""The trainer's fold: any order and any repetition give the same state; failures end a group with their reason."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import BatchFormed, DeadLetter, TaskClosed, WorkReturned
from tests.trainer.events import OTHER, grant, record, rollouts, verdict
from trainer.groups import Groups


def close(given_: object, reason: str = "expired") -> TaskClosed:
    return TaskClosed(worker=given_.worker, task=given_.task, attempt=given_.attempt, reason=reason)  # type: ignore[attr-defined]


def test_a_group_is_complete_when_all_slices_are_judged_sound() -> None:
    groups, granted = Groups(), grant(0, size=3)
    groups.apply(record(granted, 1))
    first, second = rollouts(granted, (0, 1), 0, 2), rollouts(granted, (2,), 1, 2)
    for at, event in enumerate((first, second, verdict(first)), start=1):
        groups.apply(record(event, at))
        assert groups.open["0", 0].status == "open"
    groups.apply(record(verdict(second, (0.5,), sequence=2), 9))
    group = groups.open["0", 0]
    assert group.status == "complete"
    assert group.rewards() == [0.0, 1.0, 0.5]
    assert group.reference().rollouts.tolist() == [1, 2]


@given(seed=st.integers(0, 2**32), twice=st.booleans())
def test_answers_in_any_order_and_twice_give_the_same_state(seed: int, twice: bool) -> None:
    granted = [grant(task, size=2) for task in range(3)]
    answers = [rollouts(one) for one in granted]
    events = [record(answer, at) for at, answer in enumerate(answers, start=1)]
    events += [record(verdict(answer, sequence=at), at) for at, answer in enumerate(answers, start=1)]
    shuffled = events * (2 if twice else 1)
    random.Random(seed).shuffle(shuffled)
    straight, mixed = Groups(), Groups()
    for at, one in enumerate(granted, start=1):
        straight.apply(record(one, at))
        mixed.apply(record(one, at))
    for event in events:
        straight.apply(event)
    for event in shuffled:
        mixed.apply(event)
    assert mixed.snapshot() == straight.snapshot()
    assert all(group.status == "complete" for group in mixed.open.values())


def test_one_rejected_completion_fails_the_whole_group() -> None:
    groups, granted = Groups(), grant(0)
    groups.apply(record(granted, 1))
    groups.apply(record(verdict(rollouts(granted), outcome="rejected"), 1))
    assert groups.open["0", 0].status == "failed"
    assert groups.open["0", 0].failure[0] == "rejected"


def test_a_failure_of_the_trusted_side_voids_and_blames_nobody() -> None:
    groups, granted = Groups(), grant(0)
    groups.apply(record(granted, 1))
    groups.apply(record(verdict(rollouts(granted), outcome="crashed"), 1))
    assert groups.open["0", 0].failure[0] == "void"


def test_slices_that_do_not_make_up_the_group_are_rejected() -> None:
    groups, granted = Groups(), grant(0, size=3)
    groups.apply(record(granted, 1))
    for at, answer in enumerate((rollouts(granted, (0, 1), 0, 2), rollouts(granted, (1,), 1, 2)), start=1):
        groups.apply(record(answer, at))
        groups.apply(record(verdict(answer, sequence=at), at))
    assert groups.open["0", 0].failure == (
        "rejected",
        "the slices do not hold every completion of the group once",
    )


def test_a_group_without_signal_takes_no_place() -> None:
    groups, granted = Groups(), grant(0)
    groups.apply(record(granted, 1))
    assert len(groups.unconsumed()) == 1
    groups.apply(record(rollouts(granted), 1))
    groups.apply(record(verdict(rollouts(granted), (1.0, 1.0)), 1))
    assert groups.open["0", 0].status == "flat"
    assert groups.unconsumed() == []


def test_another_workers_answer_changes_nothing() -> None:
    groups, granted = Groups(), grant(0)
    groups.apply(record(granted, 1))
    forged = rollouts(grant(0, worker=OTHER))
    groups.apply(record(forged, 1))
    groups.apply(record(verdict(forged, outcome="rejected"), 1))
    assert groups.open["0", 0].status == "open"
    assert not groups.open["0", 0].rollouts


def test_a_verdict_on_another_answer_than_the_first_is_no_verdict_on_that() -> None:
    groups, granted = Groups(), grant(0)
    groups.apply(record(granted, 1))
    groups.apply(record(rollouts(granted), 1))
    groups.apply(record(verdict(rollouts(granted), sequence=2), 1))
    assert groups.open["0", 0].failure == ("void", "slice 0 was answered twice")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_an_answer_that_could_not_be_judged_fails_its_group(order: tuple[int, int]) -> None:
    groups, granted = Groups(), grant(0)
    groups.apply(record(granted, 1))
    letter = DeadLetter(
        source="ROLLOUTS", sequence=4, original_subject="", consumer="validator-Rollouts",
        reason="its handler died each time", deliveries=6,
    )  # fmt: skip
    events = (record(rollouts(granted), 4), record(letter, 1))
    for at in order:
        groups.apply(events[at])
    assert groups.open["0", 0].failure == ("void", "it could not be judged: its handler died each time")


def test_a_closed_task_is_to_be_granted_again_until_it_is_dead() -> None:
    groups = Groups()
    groups.apply(record(grant(7), 1))
    groups.apply(record(close(grant(7)), 2))
    assert groups.open == {}
    assert groups.again["7"][1].attempt == 0
    groups.apply(record(grant(7, attempt=1), 3))
    assert groups.again == {}
    groups.apply(record(close(grant(7, attempt=1), "dead"), 4))
    assert groups.open == {}
    assert groups.again == {}
    assert groups.next_task == 8


def test_a_returned_grant_fails_with_the_workers_reason() -> None:
    groups, granted = Groups(), grant(0)
    groups.apply(record(granted, 1))
    groups.apply(
        record(WorkReturned(worker=granted.worker, task="0", attempt=0, reason="the worker stops"), 1)
    )
    assert groups.open["0", 0].failure == ("returned", "the worker stops")


def test_a_batch_takes_its_groups_and_closes_the_flat_ones() -> None:
    groups = Groups()
    for task, rewards in ((0, (0.0, 1.0)), (1, (1.0, 1.0)), (2, (0.0, 1.0))):
        groups.apply(record(grant(task), task + 1))
        groups.apply(record(rollouts(grant(task)), task + 1))
        groups.apply(record(verdict(rollouts(grant(task)), rewards, sequence=task + 1), task + 1))
    event = BatchFormed(
        lineage=0, step=0, from_version=0, groups=(groups.open["0", 0].reference(),),
        advantages=[-1.0, 1.0], filtered=(groups.open["1", 0].reference(),), folded={},
    )  # fmt: skip
    groups.apply(record(event, 1))
    assert list(groups.open) == [("2", 0)]


def test_held_counts_what_is_still_to_be_answered() -> None:
    groups, granted = Groups(), grant(0)
    groups.apply(record(granted, 1))
    assert groups.held()[granted.worker] == 1
    groups.apply(record(rollouts(granted), 1))
    assert groups.held()[granted.worker] == 0


def test_what_comes_after_the_judgement_changes_nothing() -> None:
    groups, granted = Groups(), grant(0)
    groups.apply(record(granted, 1))
    groups.apply(record(rollouts(granted), 1))
    groups.apply(record(verdict(rollouts(granted)), 1))
    before = groups.snapshot()["open"]
    groups.apply(record(rollouts(granted, (0, 1), 1, 2), 2))
    groups.apply(record(WorkReturned(worker=granted.worker, task="0", attempt=0, reason="too hard"), 1))
    assert groups.snapshot()["open"] == before
    assert groups.open["0", 0].status == "complete"


def test_slices_that_disagree_on_their_number_are_rejected() -> None:
    groups, granted = Groups(), grant(0, size=3)
    groups.apply(record(granted, 1))
    groups.apply(record(rollouts(granted, (0,), 0, 2), 1))
    groups.apply(record(rollouts(granted, (1,), 1, 3), 2))
    assert groups.open["0", 0].failure[0] == "rejected"


def test_more_slices_than_completions_are_rejected() -> None:
    groups, granted = Groups(), grant(0)
    groups.apply(record(granted, 1))
    groups.apply(record(rollouts(granted, (0,), 0, 3), 1))
    assert groups.open["0", 0].failure[0] == "rejected"


def test_a_grant_cannot_be_returned_once_an_answer_has_begun() -> None:
    groups, granted = Groups(), grant(0)
    groups.apply(record(granted, 1))
    groups.apply(record(rollouts(granted, (0,), 0, 2), 1))
    groups.apply(record(WorkReturned(worker=granted.worker, task="0", attempt=0, reason="too hard"), 1))
    assert groups.open["0", 0].status == "open"


def test_a_filtered_task_does_not_come_again() -> None:
    groups = Groups()
    groups.apply(record(grant(7), 1))
    groups.apply(record(close(grant(7), "filtered"), 2))
    assert groups.again == {}
