"""Dispatch: who gets which task, under which policy, with which seeds; and which grants have ended.

Workers say how many groups they want to hold; everything else is chosen here. What may be granted follows the
lag rule (`trainer.admission`), so nothing that is generated in time is ever too old to be trained on.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from bus import Bus, Record, Writer
from bus.standings import Standings
from environments import Prompts
from schemas import (
    DeadLetter,
    Rollouts,
    Standing,
    TaskClosed,
    TaskGranted,
    Verdict,
    WorkRequested,
)
from schemas.config import Config
from schemas.tasks import CloseReason
from trainer.admission import may_grant
from trainer.curriculum import Curriculum
from trainer.groups import Group, Groups
from trainer.secret import Secret
from trainer.workers import NEWCOMER_GROUPS, Workers

FLAT_BATCHES = 4
"""Groups without signal that wait for the next BatchFormed to close them, in batches; the oldest beyond are
closed at once, so that a policy that has learned everything does not fill the memory."""
STANDINGS = tuple(Standing.__subclasses__())
TICK = 0.5
"""Seconds after which requests and deadlines are looked at although nothing arrived."""

log = structlog.get_logger()


@dataclass(frozen=True)
class CurrentPolicy:
    """The policy that new grants name."""

    version: int
    digest: str


class Dispatch:
    """Grants and closes tasks as long as `run` runs.

    policy: the newest published one, None before the first. next_version: what the next step starts from.
    batches_left: batches still to be formed, so that the end of the run leaves nothing half done.
    """

    def __init__(
        self,
        config: Config,
        bus: Bus,
        writer: Writer,
        groups: Groups,
        curriculum: Curriculum,
        prompts: Prompts,
        secret: Secret,
    ) -> None:
        self.config = config
        self.groups = groups
        self.standings = Standings()
        self.policy: CurrentPolicy | None = None
        self.next_version = 0
        self.batches_left = config.run.steps
        self.paused = False
        self.finished = False
        self.changed = asyncio.Event()
        self.writing = asyncio.Lock()
        self._bus, self._writer = bus, writer
        self._curriculum, self._prompts, self._secret = curriculum, prompts, secret
        self.workers = Workers(newcomers=max(NEWCOMER_GROUPS, config.batch.groups // 4))

    def observe(self, record: Record[Any]) -> None:
        """Fold one message of REQUESTS, ROLLOUTS, VERDICTS, STANDINGS or DEAD."""
        event = record.event
        if isinstance(event, Standing):
            self.standings.apply(record)
        elif isinstance(event, WorkRequested):
            self.workers.asked(event, record.timestamp)
        elif not isinstance(event, DeadLetter) or record.signer in self.config.trust.validator:
            self.groups.apply(record)
        if isinstance(event, Verdict):
            group = self.groups.open.get((event.task, event.attempt))
            if group is not None and group.status in ("complete", "flat"):
                self.workers.proven.add(group.grant.worker)
        self.changed.set()

    async def run(self) -> None:
        """Close what has ended and grant what may be granted, at every change, until `finish`."""
        await self.read_standings()
        while not self.finished:
            self.changed.clear()
            async with self.writing:
                if not self.finished:
                    await self.close_ended()
                    await self._grant()
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK):
                    await self.changed.wait()

    def folded(self) -> dict[str, int]:
        """Stream -> last sequence that was read."""
        return {**self.groups.folded, "STANDINGS": self.standings.sequence}

    async def read_standings(self) -> None:
        """STANDINGS to its end: from here on who is barred by now is granted nothing and is in no batch."""
        async for record in self._bus.records(*STANDINGS, after=self.standings.sequence, live=False):
            self.observe(record)

    async def close_ended(self) -> None:
        """Close what failed, came too late or is not wanted any more; the caller holds `writing`."""
        overdue = {id(group) for group in self.groups.open.values() if group.overdue(time.time())}
        if overdue:  # an answer may be stored and not read yet
            after = self.groups.folded.get("ROLLOUTS", 0)
            async for record in self._bus.records(Rollouts, after=after, live=False):
                self.observe(record)
        for group in list(self.groups.open.values()):
            if group.status == "failed":
                await self._close(group, *group.failure)
            elif not self.standings.allowed(group.grant.worker):
                await self._close(group, "cancelled", "the worker lost its standing")
            elif self.next_version - group.version > self.config.lag.max_lag:
                await self._close(group, "cancelled", "its policy is too old")
            elif id(group) in overdue and not group.answered:
                self.workers.proven.discard(group.grant.worker)
                await self._close(group, "expired", f"no answer within {group.grant.seconds:g} s")
        flat = [group for group in self.groups.open.values() if group.status == "flat"]
        for group in flat[: -FLAT_BATCHES * self.config.batch.groups]:
            await self._close(group, "filtered", "no signal")

    async def finish(self, detail: str) -> None:
        """Grant nothing more, and close what is open."""
        self.finished = True
        self.changed.set()
        await self.close_all(detail)

    async def close_all(self, detail: str) -> None:
        """Every grant ends with a reason, those at the end of a run or of a lineage too."""
        async with self.writing:
            for group in list(self.groups.open.values()):
                reason: CloseReason = "filtered" if group.status == "flat" else "cancelled"
                await self._close(group, reason, detail)

    async def _close(self, group: Group, reason: CloseReason, detail: str) -> None:
        grant = group.grant
        if (
            reason not in ("filtered", "cancelled", "returned")
            and grant.attempt + 1 >= self.config.batch.attempts
        ):
            reason, detail = "dead", f"{reason} ({detail}) at attempt {grant.attempt + 1}"
        event = TaskClosed(
            worker=grant.worker, task=grant.task, attempt=grant.attempt, reason=reason, detail=detail[:4096]
        )
        sequence = await self._writer.publish(event)
        self.groups.close(sequence, event)
        log.info(
            "task closed",
            task=grant.task,
            attempt=grant.attempt,
            worker=grant.worker,
            reason=reason,
            detail=detail,
        )

    async def _grant(self) -> None:
        new: list[Group] = []
        unconsumed = len(self.groups.unconsumed())
        self.workers.forget_expired(time.time())
        held, unjudged = self.groups.held(), self.groups.unjudged()
        while self._admits(unconsumed):
            if (worker := self.workers.next(held, unjudged, self.standings)) is None:
                break
            new.append(self.groups.expect(self._make(worker)))
            held[worker] += 1
            unjudged[worker] += 1
            unconsumed += 1
        sequences = await asyncio.gather(*(self._writer.publish(group.grant) for group in new))
        for group, sequence in zip(new, sequences, strict=True):
            self.groups.stored(group, sequence)

    def _admits(self, unconsumed: int) -> bool:
        if self.paused or self.policy is None or unconsumed >= self.batches_left * self.config.batch.groups:
            return False
        return may_grant(
            unconsumed,
            self.config.batch.groups,
            self.next_version,
            self.policy.version,
            self.config.lag.max_lag,
        )

    def _make(self, worker: str) -> TaskGranted:
        assert self.policy is not None
        old = next((grant for _, grant in self.groups.again.values() if grant.worker != worker), None)
        old = old or next((grant for _, grant in self.groups.again.values()), None)
        task = old.task if old else str(self.groups.next_task)
        attempt = old.attempt + 1 if old else 0
        index = old.index if old else self._curriculum.index(self.groups.next_task)
        return TaskGranted(
            worker=worker,
            task=task,
            attempt=attempt,
            environment=self.config.environment.name,
            index=index,
            prompt=self._prompts.ids(index),
            seeds=self._secret.seeds(task, attempt, self.policy.version, self.config.batch.group_size),
            sampling=self._prompts.sampling(self.config.sampling),
            policy_version=self.policy.version,
            policy_digest=self.policy.digest,
            nonce=self._secret.nonce(worker, task, attempt),
            seconds=self.config.sampling.seconds,
        )
