"""The trainer's state: every open group, folded from TASKS, REQUESTS, ROLLOUTS, VERDICTS and BATCHES.

A group is one attempt at one task. It is open until all its slices are there and judged; then it is complete,
flat (complete, but without signal) or failed. What arrives in any order (a verdict before its rollouts,
anything twice) gives the same state. The snapshot is a list of sequences: restoring reads those messages again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from bus import Record
from schemas import (
    BatchFormed,
    Completion,
    DeadLetter,
    GroupRef,
    Judgement,
    Rollouts,
    TaskClosed,
    TaskGranted,
    Verdict,
    WorkReturned,
)
from schemas.tasks import CloseReason
from schemas.verdicts import SOUND
from trainer.advantages import has_signal

Key = tuple[str, int]
"""(task, attempt)"""
Granted = tuple[int, TaskGranted]
"""A grant and its sequence in TASKS."""


@dataclass
class Group:
    """One attempt at one task by one worker.

    sequence: the grant's in TASKS, 0 until it is stored. granted_at: seconds since the epoch.
    """

    grant: TaskGranted
    sequence: int = 0
    granted_at: float = field(default_factory=time.time)
    rollouts: dict[int, tuple[int, Rollouts]] = field(default_factory=dict)
    verdicts: dict[int, tuple[int, Verdict]] = field(default_factory=dict)
    status: Literal["open", "complete", "flat", "failed"] = "open"
    failure: tuple[CloseReason, str] = ("void", "")

    @property
    def version(self) -> int:
        return self.grant.policy_version

    @property
    def answered(self) -> bool:
        """All slices are here."""
        return bool(self.rollouts) and len(self.rollouts) == next(iter(self.rollouts.values()))[1].slices

    def overdue(self, now: float) -> bool:
        """The time allowed is over and no whole answer has been read. now: seconds since the epoch."""
        return not self.answered and bool(self.sequence) and now > self.granted_at + self.grant.seconds

    def completions(self) -> list[Completion]:
        """In index order."""
        every = [completion for _, rollouts in self.rollouts.values() for completion in rollouts.completions]
        return sorted(every, key=lambda completion: completion.index)

    def judgements(self) -> list[Judgement]:
        """In index order."""
        every = [judgement for _, verdict in self.verdicts.values() for judgement in verdict.judgements]
        return sorted(every, key=lambda judgement: judgement.index)

    def rewards(self) -> list[float]:
        """As the trusted side computed them, in index order."""
        return [judgement.reward for judgement in self.judgements() if judgement.reward is not None]

    def reference(self) -> GroupRef:
        return GroupRef(
            worker=self.grant.worker,
            task=self.grant.task,
            attempt=self.grant.attempt,
            policy_version=self.version,
            rollouts=np.array([self.rollouts[at][0] for at in sorted(self.rollouts)], np.uint64),
            verdicts=np.array([self.verdicts[at][0] for at in sorted(self.verdicts)], np.uint64),
        )

    def fail(self, reason: CloseReason, detail: str) -> None:
        self.status, self.failure = "failed", (reason, detail)

    def update(self, dead: Mapping[int, str]) -> None:
        """Set the status of an open group after a message was added. dead: sequences in ROLLOUTS that get no verdict, and why."""
        if self.status != "open":
            return
        slices = {rollouts.slices for _, rollouts in self.rollouts.values()}
        if len(slices) > 1 or max(slices, default=0) > self.grant.group_size:
            return self.fail("rejected", f"slices are numbered out of {sorted(slices)[:4]}")
        for at, (sequence, _) in self.rollouts.items():
            if sequence in dead:
                return self.fail("void", f"it could not be judged: {dead[sequence]}")
            if at in self.verdicts and self.verdicts[at][1].rollouts_sequence != sequence:
                return self.fail("void", f"slice {at} was answered twice")
        for judgement in self.judgements():
            if judgement.outcome not in SOUND:
                failed = next((check for check in judgement.checks if not check.passed), None)
                reason: CloseReason = "rejected" if judgement.outcome == "rejected" else "void"
                return self.fail(
                    reason, f"{failed.name} {failed.detail}".strip() if failed else judgement.outcome
                )
        if not self.answered or self.verdicts.keys() != self.rollouts.keys():
            return
        whole = list(range(self.grant.group_size))
        if [c.index for c in self.completions()] != whole or [j.index for j in self.judgements()] != whole:
            return self.fail("rejected", "the slices do not hold every completion of the group once")
        self.status = "complete" if has_signal(self.rewards()) else "flat"


class Groups:
    """The fold. `open` holds every attempt that is neither closed nor in a batch; `again` the tasks whose
    last attempt was closed and that are to be granted once more; `dead` the sequences in ROLLOUTS that no
    validator could judge, with the reason."""

    def __init__(self) -> None:
        self.open: dict[Key, Group] = {}
        self.again: dict[str, Granted] = {}
        self.next_task = 0
        self.folded: dict[str, int] = {}
        self.dead: dict[int, str] = {}

    def apply(self, record: Record[Any]) -> None:
        """Fold one message; a message folded before changes nothing."""
        event = record.event
        stream = event.destination()
        self.folded[stream] = max(self.folded.get(stream, 0), record.sequence)
        match event:
            case TaskGranted():
                group = self.expect(event)
                group.sequence, group.granted_at = record.sequence, record.timestamp
            case TaskClosed():
                self.close(record.sequence, event)
            case BatchFormed():
                self.consume(record.sequence, event)
            case Rollouts() | Verdict() | WorkReturned():
                self._answer(record.sequence, event)
            case DeadLetter(source=Rollouts.stream):
                self._bury(event)

    def expect(self, grant: TaskGranted) -> Group:
        """Open the group of a grant that is about to be stored, so that no answer comes too early."""
        self.next_task = max(self.next_task, int(grant.task) + 1)
        self.again.pop(grant.task, None)
        return self.open.setdefault((grant.task, grant.attempt), Group(grant))

    def stored(self, group: Group, sequence: int) -> None:
        """The grant of an expected group was stored under this sequence."""
        group.sequence = sequence
        self.folded["TASKS"] = max(self.folded.get("TASKS", 0), sequence)

    def close(self, sequence: int, event: TaskClosed) -> None:
        """The attempt has ended; unless that is the end of the task, it is to be granted again."""
        self.folded["TASKS"] = max(self.folded.get("TASKS", 0), sequence)
        group = self.open.pop((event.task, event.attempt), None)
        if group is not None and event.reason not in ("dead", "filtered"):
            self.again[event.task] = (group.sequence, group.grant)

    def consume(self, sequence: int, event: BatchFormed) -> None:
        """The batch holds its groups from now on, and has closed those without signal."""
        self.folded["BATCHES"] = max(self.folded.get("BATCHES", 0), sequence)
        for reference in (*event.groups, *event.filtered):
            self.open.pop((reference.task, reference.attempt), None)

    def _answer(self, sequence: int, event: Rollouts | Verdict | WorkReturned) -> None:
        group = self.open.get((event.task, event.attempt))
        if group is None or group.grant.worker != event.worker or group.status != "open":
            return
        if isinstance(event, WorkReturned):
            if not group.rollouts:  # who has begun to answer cannot take back what he does not like
                group.fail("returned", event.reason)
            return
        if isinstance(event, Rollouts):
            group.rollouts.setdefault(event.slice, (sequence, event))
        elif event.ordinal == 0:
            group.verdicts.setdefault(event.slice, (sequence, event))
        group.update(self.dead)

    def _bury(self, event: DeadLetter) -> None:
        """The validators gave up on a slice, read already or not: it will never have a verdict."""
        self.dead[event.sequence] = event.reason
        for group in self.open.values():
            group.update(self.dead)

    def unconsumed(self) -> list[Group]:
        """Groups that will want a place in a batch: all but those known to have no signal."""
        return [group for group in self.open.values() if group.status != "flat"]

    def held(self) -> Counter[str]:
        """Worker -> grants that it has still to answer."""
        return Counter(group.grant.worker for group in self.open.values() if not group.answered)

    def unjudged(self) -> Counter[str]:
        """Worker -> grants without a whole verdict, answered or not."""
        return Counter(group.grant.worker for group in self.open.values() if group.status == "open")

    def snapshot(self) -> dict[str, Any]:
        """Plain data: how far each stream was folded, and which messages the open groups consist of."""
        return {
            "folded": dict(self.folded),
            "dead": dict(self.dead),
            "next_task": self.next_task,
            "again": [sequence for sequence, _ in self.again.values()],
            "open": [
                {
                    "grant": group.sequence,
                    "rollouts": [sequence for sequence, _ in group.rollouts.values()],
                    "verdicts": [sequence for sequence, _ in group.verdicts.values()],
                    "failure": list(group.failure) if group.status == "failed" else [],
                }
                for group in self.open.values()
            ],
        }
