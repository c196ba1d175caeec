"""The evaluator: measures policies on held-out tasks as they come, and stops nothing by doing so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import structlog
from blake3 import blake3

from bus import Component
from bus.tasks import beside
from environments import Prompts, Scored, Scorer, ScoringFailed
from relay.errors import RelayError
from relay.policies import Policies
from schemas import EvalCompleted, PolicyPublished, RunEnded
from workers.engine import Engine, Generated, GroupRequest

log = structlog.get_logger()

GROUPS_AT_ONCE = 64
Events = asyncio.Queue[PolicyPublished | RunEnded]


class Evaluator:
    """pass@1: one completion of every held-out task, with seeds that are the same for every policy.

    indices: the held-out tasks.
    """

    def __init__(
        self,
        component: Component,
        policies: Policies,
        engine: Engine,
        prompts: Prompts,
        scorer: Scorer,
        indices: Sequence[int],
    ) -> None:
        self.component, self.policies, self.engine = component, policies, engine
        self.prompts, self.scorer, self.indices = prompts, scorer, indices
        self.every = component.config.evaluation.every

    async def run(self) -> None:
        """Evaluate every `every`-th policy, and the last one when the run has ended; then return."""
        events: Events = asyncio.Queue()
        await beside(
            self._evaluate_due(events), self._follow(PolicyPublished, events), self._follow(RunEnded, events)
        )

    async def _follow(self, kind: type[PolicyPublished] | type[RunEnded], events: Events) -> None:
        async for _, event in self.component.bus.read(kind, after=0):
            events.put_nowait(event)

    async def _evaluate_due(self, events: Events) -> None:
        """Policies come in order, RunEnded at any time, first of all when this evaluator was started again."""
        done = await self._told()
        newest, last = -1, None
        while last is None or newest < last:
            self.component.waiting("for a policy that is due")
            event = await events.get()
            if isinstance(event, RunEnded):
                last = event.version
                continue
            newest = event.version
            if self._due(newest) and newest not in done:
                done.add(newest)
                await self.evaluate(newest)
        if last not in done:
            await self.evaluate(last)

    async def _told(self) -> set[int]:
        """Versions that an earlier life of this evaluator has measured."""
        me = self.component.public_key
        past = self.component.bus.records(EvalCompleted, evaluator=me, after=0, live=False)
        return {record.event.version async for record in past}

    def _due(self, version: int) -> bool:
        return version == 0 or (self.every > 0 and version % self.every == 0)

    async def evaluate(self, version: int) -> None:
        """Measure one policy and tell; a policy that can no longer be fetched is passed over."""
        self.component.doing(f"evaluating version {version}")
        if version <= max(self.policies.published, default=0) - self.component.config.relay.keep:
            log.warning("evaluation left out: no relay keeps the version any more", version=version)
            return
        try:
            folder = await self.policies.folder(version)
            published = self.policies.published[version]
        except RelayError as error:
            log.warning("evaluation left out", version=version, reason=str(error))
            return
        completions = await asyncio.to_thread(self._generate, folder, published)
        scored = [
            await self._score(index, made) for index, made in zip(self.indices, completions, strict=True)
        ]
        sound = [outcome for outcome in scored if isinstance(outcome, Scored)]
        names = sorted({name for outcome in sound for name in outcome.metrics})
        metrics = {name: float(np.mean([o.metrics.get(name, 0.0) for o in sound])) for name in names}
        metrics |= {"reward": float(np.mean([o.reward for o in sound])) if sound else 0.0}
        metrics |= {"length": float(np.mean([len(made.ids) for made in completions]))}
        log.info("evaluated", version=version, **{name: round(value, 3) for name, value in metrics.items()})
        await self.component.bus.publish(
            EvalCompleted(
                evaluator=self.component.identity.public_key,
                version=version,
                digest=published.digest,
                environment=self.component.config.environment.name,
                prompts=len(self.indices),
                samples=len(sound),
                metrics=metrics,
            )
        )

    def _generate(self, folder: Path, published: PolicyPublished) -> list[Generated]:
        sampling = self.prompts.sampling(self.component.config.sampling)
        self.engine.load(folder, published.version, published.digest)
        requests = [GroupRequest(self.prompts.ids(index), _seed(index), sampling) for index in self.indices]
        made: list[Generated] = []
        for at in range(0, len(requests), GROUPS_AT_ONCE):
            made += [group[0] for group in self.engine.generate(requests[at : at + GROUPS_AT_ONCE])]
        return made

    async def _score(self, index: int, made: Generated) -> Scored | ScoringFailed:
        return (await self.scorer.score(index, [self.prompts.text(made.ids.tolist())]))[0]


def _seed(index: int) -> np.ndarray:
    """The same sampling seed for a task under every policy, uint64, shape [1]."""
    return np.frombuffer(blake3(f"evaluation\x1f{index}".encode()).digest(length=8), "<u8")
