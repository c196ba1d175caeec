"""What a validator has before it when it judges one slice: the claim, and what it is measured against."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from bus import Bus, Record
from schemas import PolicyPublished, Proof, Rollouts, TaskClosed, TaskGranted


@dataclass(frozen=True)
class Submission:
    """One Rollouts message with its grant, its proof and the policy that the grant names.

    grant: None when none was given on this subject. closed: the reason when the grant had ended before.
    proof: None when the stream holds none. policy: None when the granted version was never published.
    vocabulary: token ids of the run's model, from 0.
    """

    record: Record[Rollouts]
    grant: Record[TaskGranted] | None
    closed: str
    proof: Record[Proof] | None
    policy: PolicyPublished | None
    vocabulary: int

    @property
    def rollouts(self) -> Rollouts:
        return self.record.event


async def gather(
    bus: Bus, record: Record[Rollouts], published: Mapping[int, PolicyPublished], vocabulary: int
) -> Submission:
    """Read what belongs to one slice from the streams. Absent is only what the stream's leader does not have."""
    event = record.event
    names = {"worker": event.worker, "task": event.task, "attempt": event.attempt}
    task, proof = await asyncio.gather(
        bus.last(TaskGranted, TaskClosed, **names), bus.last(Proof, **names, slice=event.slice)
    )
    closed, grant = "", task
    if task is not None and isinstance(task.event, TaskClosed):
        closed, grant = task.event.reason, None
    version = grant.event.policy_version if grant is not None else -1
    return Submission(record, grant, closed, proof, published.get(version), vocabulary)
