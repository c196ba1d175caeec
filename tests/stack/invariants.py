"""What must hold for the streams of a run, whatever was killed on the way: nothing lost, nothing used twice."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from typing import Any

from bus import Bus, Record
from schemas import (
    BatchFormed,
    DeadLetter,
    EvalCompleted,
    GroupRef,
    LineageStarted,
    PolicyPublished,
    Rollouts,
    RunCreated,
    RunEnded,
    StepCompleted,
    TaskClosed,
    TaskGranted,
    Verdict,
    WorkReturned,
)
from schemas.config import Config

Key = tuple[str, int]
"""(task, attempt)"""
SOUND = {"accepted", "unaudited"}


@dataclass
class History:
    """Every record of the trainer's streams, of the workers' and of the validators', in order."""

    created: list[Record[RunCreated]]
    ended: list[Record[RunEnded]]
    lineages: list[Record[LineageStarted]]
    granted: list[Record[TaskGranted]]
    closed: list[Record[TaskClosed]]
    returned: list[Record[WorkReturned]]
    rollouts: dict[int, Record[Rollouts]]
    verdicts: dict[int, Record[Verdict]]
    batches: list[Record[BatchFormed]]
    steps: list[Record[StepCompleted]]
    policies: list[Record[PolicyPublished]]
    evals: list[Record[EvalCompleted]]
    dead: list[Record[DeadLetter]]

    def closes(self, *reasons: str) -> list[TaskClosed]:
        """The grants that ended for one of these reasons."""
        return [record.event for record in self.closed if record.event.reason in reasons]


async def read(bus: Bus) -> History:
    """The streams to their end."""

    async def every(kind: type[Any]) -> list[Record[Any]]:
        return [record async for record in bus.records(kind, after=0, live=False)]

    return History(
        created=await every(RunCreated),
        ended=await every(RunEnded),
        lineages=await every(LineageStarted),
        granted=await every(TaskGranted),
        closed=await every(TaskClosed),
        returned=await every(WorkReturned),
        rollouts={record.sequence: record for record in await every(Rollouts)},
        verdicts={record.sequence: record for record in await every(Verdict)},
        batches=await every(BatchFormed),
        steps=await every(StepCompleted),
        policies=await every(PolicyPublished),
        evals=await every(EvalCompleted),
        dead=await every(DeadLetter),
    )


async def check(config: Config) -> History:
    """Read the run of `config`, which has to have finished, and assert all that is promised."""
    async with Bus.connect(config.bus.url, config.run.name) as bus:
        history = await read(bus)
    the_run_finished_once(history, config)
    steps_follow_one_another(history, config)
    every_policy_is_published_once(history)
    every_grant_is_closed_once(history)
    no_task_is_skipped(history)
    for batch in history.batches:
        for group in batch.event.groups:
            a_trained_group_is_sound(history, config, batch.event, group)
        assert len(batch.event.groups) == config.batch.groups
        assert len(batch.event.advantages) == config.batch.groups * config.batch.group_size
    nothing_is_trained_twice(history)
    every_slice_is_judged_once(history)
    assert max(Counter(record.event.version for record in history.evals).values(), default=1) == 1
    return history


def the_run_finished_once(history: History, config: Config) -> None:
    assert len(history.created) == 1
    assert [record.event.reason for record in history.ended] == ["finished"]
    ended = history.ended[0].event
    assert (ended.steps, ended.digest) == (config.run.steps, history.steps[-1].event.digest_after)
    assert not history.lineages, "on a CPU every step is trained again to the same digest"


def steps_follow_one_another(history: History, config: Config) -> None:
    """Each step once, in order, from the weights that the one before it left."""
    expected = list(range(config.run.steps))
    assert [record.event.step for record in history.batches] == expected
    assert [record.event.step for record in history.steps] == expected
    steps = [record.event for record in history.steps]
    for before, after in itertools.pairwise(steps):
        assert after.digest_before == before.digest_after
    for batch, step in zip(history.batches, history.steps, strict=True):
        assert batch.event.from_version == step.event.from_version == step.event.version - 1
        assert batch.timestamp <= step.timestamp
        assert "reward" in step.event.metrics, "a step trained again is measured as any other"


def every_policy_is_published_once(history: History) -> None:
    steps = [record.event for record in history.steps]
    digests = [steps[0].digest_before, *(step.digest_after for step in steps)]
    assert [record.event.version for record in history.policies] == list(range(len(digests)))
    assert [record.event.digest for record in history.policies] == digests
    for grant in history.granted:
        assert grant.event.policy_digest == digests[grant.event.policy_version]


def every_grant_is_closed_once(history: History) -> None:
    """By TaskClosed or by the batch that consumed or filtered it; an attempt begins after the last one's end."""
    granted = {(record.event.task, record.event.attempt): record for record in history.granted}
    assert len(granted) == len(history.granted), "an attempt was granted twice"
    in_batches = [
        group for record in history.batches for group in (*record.event.groups, *record.event.filtered)
    ]
    ends = Counter(_key(group) for group in in_batches) + Counter(
        _key(record.event) for record in history.closed
    )
    assert {key for key, times in ends.items() if times > 1} == set(), "closed twice"
    assert granted.keys() - ends.keys() == set(), "never closed"
    assert ends.keys() - granted.keys() == set(), "never granted"
    for end in (*in_batches, *(record.event for record in history.closed)):
        assert granted[_key(end)].event.worker == end.worker
    closed = {_key(record.event): record for record in history.closed}
    for (task, attempt), record in granted.items():
        if attempt:
            assert closed[task, attempt - 1].sequence < record.sequence
    lost = [event.task for event in history.closes("cancelled") if event.detail == "its policy is too old"]
    assert not lost, "admission sees to it that nothing becomes too old"


def no_task_is_skipped(history: History) -> None:
    tasks = {int(record.event.task) for record in history.granted}
    assert tasks == set(range(len(tasks)))


def a_trained_group_is_sound(history: History, config: Config, batch: BatchFormed, group: GroupRef) -> None:
    """Its messages are the granted worker's, judged sound as they are, whole, and not too old."""
    (grant,) = [record for record in history.granted if _key(record.event) == _key(group)]
    assert group.policy_version == grant.event.policy_version
    assert 0 <= batch.from_version - group.policy_version <= config.lag.max_lag
    rollouts = [history.rollouts[sequence] for sequence in group.rollouts.tolist()]
    verdicts = [history.verdicts[sequence].event for sequence in group.verdicts.tolist()]
    assert [verdict.rollouts_sequence for verdict in verdicts] == [record.sequence for record in rollouts]
    for event in (*(record.event for record in rollouts), *verdicts):
        assert (event.worker, *_key(event)) == (group.worker, *_key(group))
    assert {judgement.outcome for verdict in verdicts for judgement in verdict.judgements} <= SOUND
    indices = [completion.index for record in rollouts for completion in record.event.completions]
    assert sorted(indices) == list(range(config.batch.group_size))


def nothing_is_trained_twice(history: History) -> None:
    groups = [group for record in history.batches for group in record.event.groups]
    trained = Counter(group.task for group in groups)
    used = Counter(sequence for group in groups for sequence in group.rollouts.tolist())
    assert max(trained.values()) == max(used.values()) == 1


def every_slice_is_judged_once(history: History) -> None:
    slices = Counter((*_key(record.event), record.event.worker, record.event.slice, record.event.ordinal)
                     for record in history.verdicts.values())  # fmt: skip
    assert max(slices.values()) == 1


def _key(event: TaskGranted | TaskClosed | GroupRef | Rollouts | Verdict) -> Key:
    return event.task, event.attempt
