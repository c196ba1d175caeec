"""What a validator has before it when it judges one slice: the claim, and what it is measured against."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import structlog

from bus import Bus, Record
from relay.policies import Policies
from schemas import PolicyPublished, Proof, Rollouts, TaskClosed, TaskGranted

log = structlog.get_logger()


@dataclass(frozen=True)
class Submission:
    """One Rollouts message with its open grant, its proof and the policy that the grant names.

    proof: None when the stream holds none. policy: None when the granted version is too old to be remembered.
    vocabulary: token ids of the run's model, from 0.
    """

    record: Record[Rollouts]
    grant: Record[TaskGranted]
    proof: Record[Proof] | None
    policy: PolicyPublished | None
    vocabulary: int

    @property
    def rollouts(self) -> Rollouts:
        return self.record.event

    @property
    def granted(self) -> TaskGranted:
        return self.grant.event

    @cached_property
    def proof_digest(self) -> str:
        """The digest of the proof that was sent, "" without one."""
        return self.proof.event.digest() if self.proof else ""


async def gather(
    bus: Bus, record: Record[Rollouts], policies: Policies, vocabulary: int
) -> Submission | None:
    """Read what belongs to one slice from the streams. Absent is only what the stream's leader does not have.

    None when no grant is open on its subject: there never was one, or dispatch has closed it. Nobody waits for a
    verdict then, and names that a worker invents fill no stream.
    """
    event = record.event
    names = {"worker": event.worker, "task": event.task, "attempt": event.attempt}
    task: Record[Any] | None
    task, proof = await asyncio.gather(
        bus.last(TaskGranted, TaskClosed, **names), bus.last(Proof, **names, slice=event.slice)
    )
    if task is None or isinstance(task.event, TaskClosed):
        log.debug("no verdict: no grant is open", **names, closed=task.event.reason if task else "")
        return None
    policy = await policies.announced(task.event.policy_version)
    return Submission(record, task, proof, policy, vocabulary)
