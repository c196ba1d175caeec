"""What a validator has before it when it judges one slice: the claim, and what it is measured against."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bus import Bus, Record
from relay.policies import Policies
from schemas import PolicyPublished, Proof, Rollouts, TaskClosed, TaskGranted


@dataclass(frozen=True)
class Submission:
    """One Rollouts message with its grant, its proof and the policy that the grant names.

    grant: None when none was given on this subject. closed: the reason when the grant had ended before.
    proof: None when the stream holds none. policy: None when the granted version is too old to be remembered.
    vocabulary: token ids of the run's model, from 0.
    """

    record: Record[Rollouts]
    grant: Record[TaskGranted] | None
    closed: str
    proof: Record[Proof] | None
    policy: PolicyPublished | None
    vocabulary: int

    @cached_property
    def proof_digest(self) -> str:
        """The digest of the proof that was sent, "" without one."""
        return self.proof.event.digest() if self.proof else ""

    @property
    def rollouts(self) -> Rollouts:
        return self.record.event


async def gather(bus: Bus, record: Record[Rollouts], policies: Policies, vocabulary: int) -> Submission:
    """Read what belongs to one slice from the streams. Absent is only what the stream's leader does not have."""
    event = record.event
    names = {"worker": event.worker, "task": event.task, "attempt": event.attempt}
    task: Record[Any] | None
    task, proof = await asyncio.gather(
        bus.last(TaskGranted, TaskClosed, **names), bus.last(Proof, **names, slice=event.slice)
    )
    if task is None or isinstance(task.event, TaskClosed):
        return Submission(record, None, task.event.reason if task else "", proof, None, vocabulary)
    policy = await policies.announced(task.event.policy_version)
    return Submission(record, task, "", proof, policy, vocabulary)
