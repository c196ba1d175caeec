"""The training run on one screen: wait for a batch, tell of it, train on it, tell of that, publish.

One BatchFormed is one policy version. Dispatch runs beside the loop on the same event loop, the learner in a
thread, and the publication of the newest policy beside the next step.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import structlog
from torch import Tensor

import policy
from bus import Component, Record, Writer
from schemas import Control, RunEnded
from schemas.config import Config
from trainer import batch, checkpoint, measure
from trainer.dispatch import CurrentPolicy, Dispatch
from trainer.groups import Group
from trainer.learner import Learner
from trainer.progress import Progress
from trainer.publication import Publication
from trainer.recovery import completed
from trainer.secret import Secret

log = structlog.get_logger()


class Trainer:
    """One run's training loop over its parts; `trainer.start` puts them together."""

    def __init__(
        self,
        config: Config,
        component: Component,
        writer: Writer,
        dispatch: Dispatch,
        learner: Learner,
        publication: Publication,
        progress: Progress,
        checkpoints: Path,
        run_id: str,
    ) -> None:
        self.config, self.component, self.writer = config, component, writer
        self.dispatch, self.groups, self.learner = dispatch, dispatch.groups, learner
        self.publication, self.progress = publication, progress
        self.checkpoints, self.run_id = checkpoints, run_id
        dispatch.next_version = progress.version
        dispatch.batches_left = config.run.steps - progress.step
        self.weights = learner.publishable()
        self.stopping = False
        self.arrived = asyncio.Event()

    async def run(self, secret: Secret) -> None:
        """Train the batches that are left, then end the run."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.dispatch.run())
            publishing = tasks.create_task(self.publish(self.weights))
            while self.progress.step < self.config.run.steps:
                started = time.monotonic()
                formed = await self.next_batch()
                if formed is None:
                    break
                await self.step(formed, waited=time.monotonic() - started)
                await publishing  # versions are announced one at a time, in order
                publishing = tasks.create_task(self.publish(self.weights))
                await self.save_if_due()
            await publishing
            await self.dispatch.finish("the run has ended")
        await self.end(secret)

    async def next_batch(self) -> batch.Formed | None:
        """The batch of the next step, as soon as its groups may be consumed; None when the run is to stop."""
        while not self.stopping:
            self.arrived.clear()
            if (formed := await self.form()) is not None:
                return formed
            ready = sum(group.status == "complete" for group in self.groups.open.values())
            self.component.waiting(f"for a batch: {ready} of {self.config.batch.groups} groups complete")
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.arrived.wait()
        return None

    async def form(self) -> batch.Formed | None:
        """Store BatchFormed: from here on its groups are used up, whatever happens. None while they are too few.

        Nothing is granted or closed meanwhile, and who was slashed before has no group in it.
        """
        async with self.dispatch.writing:
            if self._choose() is None:
                return None
            await self.dispatch.read_standings()
            await self.dispatch.close_ended()
            if (chosen := self._choose()) is None:
                return None
            progress = self.progress
            formed = batch.form(
                chosen, self.groups, self.dispatch.folded(), progress.lineage, progress.step, progress.version
            )
            sequence = await self.writer.publish(formed.event)
            self.groups.consume(sequence, formed.event)
            self.dispatch.next_version = progress.version + 1
            self.dispatch.batches_left -= 1
        self.dispatch.changed.set()
        return formed

    def _choose(self) -> list[Group] | None:
        size, max_lag = self.config.batch.groups, self.config.lag.max_lag
        return batch.choose(self.groups, self.progress.version, size, max_lag)

    async def step(self, formed: batch.Formed, waited: float) -> None:
        """Train on the batch in a thread and tell of it."""
        event, chosen, version = formed.event, formed.chosen, self.progress.version
        for group in chosen:  # admission makes this true; nothing older may reach the gradient
            assert version - group.version <= self.config.lag.max_lag, f"task {group.grant.task} is too old"
        self.component.doing(f"training step {event.step}")
        started = time.monotonic()
        samples = batch.samples(chosen, event.advantages)
        result = await asyncio.to_thread(self.learner.step, samples)
        self.weights = self.learner.publishable()
        digest = await asyncio.to_thread(policy.digest, self.weights)
        metrics = {**result.metrics, **measure.batch(chosen, formed.flat, version)}
        metrics |= {"seconds_waited": waited, "seconds_trained": time.monotonic() - started}
        before = self.progress.digest
        await self.writer.publish(completed(event, before, digest, result.skipped, metrics))
        self.progress = Progress(event.lineage, event.step + 1, version + 1, digest)
        log.info(
            "step",
            step=event.step,
            reward=round(metrics["reward"], 3),
            lag=metrics["lag_max"],
            skipped=result.skipped,
        )

    async def publish(self, weights: dict[str, Tensor]) -> None:
        """Announce the current policy, of which `weights` is a copy, and let dispatch grant it."""
        progress = self.progress
        await self.publication.publish(weights, progress)
        self.dispatch.policy = CurrentPolicy(progress.version, progress.digest)
        self.dispatch.changed.set()

    async def save_if_due(self) -> None:
        """Checkpoint: weights, optimizer, and the fold with its sequences, all as of the same step."""
        if self.progress.step % self.config.checkpoint.every == 0:
            await self.save()

    async def save(self) -> None:
        """Checkpoint as of now; the caller sees to it that no step is under way."""
        async with self.dispatch.writing:
            fold = {"run": self.run_id, "progress": vars(self.progress), "groups": self.groups.snapshot()}
        saved = checkpoint.Checkpoint(self.progress.step, self.learner.state(), fold)
        await asyncio.to_thread(checkpoint.save, self.checkpoints, saved, self.config.checkpoint.keep)

    async def end(self, secret: Secret) -> None:
        """Tell that the run has ended, and reveal the secret."""
        progress = self.progress
        reason: Literal["stopped", "finished"] = "stopped" if self.stopping else "finished"
        await self.writer.publish(
            RunEnded(
                reason=reason,
                steps=progress.step,
                version=progress.version,
                digest=progress.digest,
                secret=secret.value,
            )
        )

    def observe(self, record: Record[Any]) -> None:
        """One message of the streams that are followed live."""
        if isinstance(record.event, Control):
            self.dispatch.paused = record.event.action == "pause"
            self.stopping = self.stopping or record.event.action == "stop"
        else:
            self.dispatch.observe(record)
        self.arrived.set()
