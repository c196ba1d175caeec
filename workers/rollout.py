"""The rollout worker: ask for groups, generate with exactly the granted policy, prove, send.

What a worker decides is only how much it can hold. A group that it cannot answer (it was restarted, it stops,
its policy is gone) is returned, never answered a second time: two different answers to one grant are void.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator

import structlog

import policy
from bus import Component
from bus.tasks import together
from relay.errors import RelayError
from relay.policies import Policies
from schemas import Rollouts, TaskClosed, TaskGranted, WorkRequested, WorkReturned
from workers.engine import Engine, GroupRequest
from workers.slices import Answer, slices

log = structlog.get_logger()

ASK_SECONDS = 5.0
"""A request is repeated this often; it counts for three times as long."""


class RolloutWorker:
    """Answers grants in the order in which they came, those of one policy in one batch.

    batch: groups generated at once. ahead: batches held in all, so that the next one is here when one is done.
    held: grants that wait. sending: the answers that are on their way.
    """

    def __init__(
        self, component: Component, policies: Policies, engine: Engine, batch: int, ahead: int = 2
    ) -> None:
        self.component, self.policies, self.engine = component, policies, engine
        self.batch, self.ahead = batch, ahead
        self.held: deque[TaskGranted] = deque()
        self.sending: asyncio.Task[None] | None = None
        self.arrived = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled."""
        sequence = await self.return_unanswered("the worker was restarted")
        await together(self.ask(), self.receive(sequence), self.work())

    async def ask(self) -> None:
        """Say how many groups this worker wants to hold, again and again: the request is a level and expires."""
        while True:
            await self.component.bus.publish(self.request(self.batch * self.ahead))
            await asyncio.sleep(ASK_SECONDS)

    def request(self, groups: int) -> WorkRequested:
        return WorkRequested(
            worker=self.component.identity.public_key,
            name=self.component.name,
            groups=groups,
            seconds=3 * ASK_SECONDS,
            environments=(self.component.config.environment.name,),
            policy_version=self.engine.version,
            engine=self.engine.name,
        )

    async def return_unanswered(self, reason: str) -> int:
        """Return every grant that is still open and not answered; how far TASKS was read."""
        bus, me = self.component.bus, self.component.identity.public_key
        sequence = 0
        left: dict[tuple[str, int], TaskGranted] = {}
        async for record in bus.records(TaskGranted, TaskClosed, worker=me, after=0, live=False):
            sequence, event = record.sequence, record.event
            if isinstance(event, TaskClosed):
                left.pop((event.task, event.attempt), None)
            elif isinstance(event, TaskGranted) and time.time() < record.timestamp + event.seconds:
                left[event.task, event.attempt] = event
        answered = await asyncio.gather(*(self.answered(grant) for grant in left.values()))
        for grant, done in zip(left.values(), answered, strict=True):
            if not done:
                await self.give_back(grant, reason)
        return sequence

    async def receive(self, sequence: int) -> None:
        """Take own grants as they come after this sequence."""
        bus, me = self.component.bus, self.component.identity.public_key
        async for record in bus.records(TaskGranted, TaskClosed, worker=me, after=sequence):
            if isinstance(record.event, TaskGranted):
                self.held.append(record.event)
                self.arrived.set()
            elif isinstance(record.event, TaskClosed):
                self.forget(record.event)

    async def answered(self, grant: TaskGranted) -> bool:
        """Whether the last slice of an answer is stored: they are sent in order."""
        names = {"worker": grant.worker, "task": grant.task, "attempt": grant.attempt}
        first = await self.component.bus.last(Rollouts, **names, slice=0)
        if first is None or first.event.slices == 1:
            return first is not None
        return await self.component.bus.last(Rollouts, **names, slice=first.event.slices - 1) is not None

    def forget(self, closed: TaskClosed) -> None:
        """Do not start on what is no longer wanted."""
        self.held = deque(g for g in self.held if (g.task, g.attempt) != (closed.task, closed.attempt))

    async def work(self) -> None:
        """The life of a rollout: grants of one policy -> weights -> completions and proofs -> sent."""
        async for grants in self.batches():
            if not await self.ready(grants):
                continue
            self.component.doing(f"generating {len(grants)} groups with version {self.engine.version}")
            started = time.monotonic()
            answers = await asyncio.to_thread(self.answer, grants)
            tokens = sum(len(made.ids) for answer in answers for made in answer.completions)
            self.component.capacity["tokens_per_s"] = tokens / (time.monotonic() - started)
            if self.sending is not None:
                await asyncio.shield(self.sending)
            self.sending = asyncio.create_task(self.send(answers))

    async def batches(self) -> AsyncIterator[list[TaskGranted]]:
        """The oldest grants of one policy, at most `batch`, as soon as there is one."""
        while True:
            if not self.held:
                self.component.waiting("for grants")
                self.arrived.clear()
                await self.arrived.wait()
                continue
            version = self.held[0].policy_version
            taken: list[TaskGranted] = []
            while self.held and self.held[0].policy_version == version and len(taken) < self.batch:
                taken.append(self.held.popleft())
            yield taken

    async def ready(self, grants: list[TaskGranted]) -> bool:
        """Bring the engine to the granted policy; when that cannot be had, return the grants."""
        version, digest = grants[0].policy_version, grants[0].policy_digest
        if self.engine.digest == digest:
            return True
        self.component.waiting(f"for the weights of version {version}")
        try:
            folder = await self.policies.folder(version)
            await asyncio.to_thread(self.engine.load, folder, version, digest)
        except (RelayError, policy.DigestMismatch) as error:
            log.warning("grants returned: no weights", version=version, reason=str(error))
            for grant in grants:
                await self.give_back(grant, str(error))
            return False
        return True

    def answer(self, grants: list[TaskGranted]) -> list[Answer]:
        """Everything that needs the granted weights: completions, proofs, and possession."""
        groups = self.engine.generate([GroupRequest.of(grant) for grant in grants])
        return [
            Answer(grant, completions, self.engine.answer(grant.nonce))
            for grant, completions in zip(grants, groups, strict=True)
        ]

    async def send(self, answers: list[Answer]) -> None:
        """Publish proofs and rollouts, slice by slice, a proof always before its rollouts."""
        for answer in answers:
            for proof, rollouts in slices(answer):
                await self.component.bus.publish(proof)
                await self.component.bus.publish(rollouts)

    async def give_back(self, grant: TaskGranted, reason: str) -> None:
        await self.component.bus.publish(
            WorkReturned(worker=grant.worker, task=grant.task, attempt=grant.attempt, reason=reason[:4096])
        )

    async def stop(self) -> None:
        """Ask for nothing more, see off what is on its way, return the rest; `run` has ended before."""
        await self.component.bus.publish(self.request(0))
        if self.sending is not None:
            await asyncio.wait((self.sending,))
        await self.return_unanswered("the worker stops")
