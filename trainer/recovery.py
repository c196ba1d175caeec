"""After a crash: the last whole checkpoint, the batches formed since trained again in order, then on.

State is a fold over the streams; the checkpoint only saves reading and training from the start. Every step
that was completed before is compared by digest: equal on a deterministic stack. Where it differs a new
lineage begins, which takes a version that was never used and cancels every grant made before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeVar

import structlog

import policy
from bus import Bus, Record, Writer
from bus.errors import BusError
from schemas import (
    BatchFormed,
    Event,
    GroupRef,
    LineageStarted,
    PolicyPublished,
    Rollouts,
    StepCompleted,
    TaskClosed,
    TaskGranted,
    Verdict,
)
from schemas.config import ConfigError
from trainer import measure
from trainer.batch import samples
from trainer.groups import Group, Groups
from trainer.learner import Learner
from trainer.progress import Progress
from trainer.publication import Publication

log = structlog.get_logger()

E = TypeVar("E", bound=Event)


async def restore_groups(bus: Bus, snapshot: dict[str, Any] | None) -> Groups:
    """The fold as of a checkpoint's snapshot, read on to the end of TASKS and BATCHES.

    Both have this trainer as their one writer, so their end stands still; ROLLOUTS, VERDICTS and REQUESTS
    are followed live afterwards, from `groups.folded`.
    """
    groups = Groups()
    groups.dead = dict(snapshot["dead"]) if snapshot else {}
    record: Record[Any]
    for saved in (snapshot or {}).get("open", ()):
        for kind, sequences in (
            (TaskGranted, [saved["grant"]]),
            (Rollouts, saved["rollouts"]),
            (Verdict, saved["verdicts"]),
        ):
            for sequence in sequences:
                groups.apply(await _stored(bus, kind, sequence))
        if saved["failure"]:
            record = await _stored(bus, TaskGranted, saved["grant"])
            groups.open[record.event.task, record.event.attempt].fail(*saved["failure"])
    if snapshot:
        for sequence in snapshot["again"]:
            grant = (await _stored(bus, TaskGranted, sequence)).event
            groups.again[grant.task] = (sequence, grant)
        groups.next_task, groups.folded = snapshot["next_task"], dict(snapshot["folded"])
    async for record in bus.records(TaskGranted, TaskClosed, after=groups.folded.get("TASKS", 0), live=False):
        groups.apply(record)
    async for record in bus.records(BatchFormed, after=groups.folded.get("BATCHES", 0), live=False):
        groups.apply(record)
    return groups


async def began_with(bus: Bus, digest: str) -> None:
    """Raise ConfigError when the run's first policy was another one than this."""
    async with aclosing(bus.records(PolicyPublished, after=0, live=False)) as records:
        first = await anext(records, None)
    if first is not None and first.event.digest != digest:
        raise ConfigError(
            "policy.model is not the model any more with which the run began; restore it or choose another run.name"
        )


async def groups_of(bus: Bus, references: Iterable[GroupRef]) -> list[Group]:
    """The groups that a batch names, read back from the streams, in its order."""
    found = []
    for reference in references:
        names = {"worker": reference.worker, "task": reference.task, "attempt": reference.attempt}
        grant = await bus.last(TaskGranted, **names)
        if grant is None:
            raise BusError(
                f"the grant of task {reference.task} is gone from TASKS; the run cannot go on from here"
            )
        group = Group(grant.event)
        for sequence in reference.rollouts.tolist():
            answer = (await _stored(bus, Rollouts, sequence)).event
            group.rollouts[answer.slice] = (sequence, answer)
        for sequence in reference.verdicts.tolist():
            verdict = (await _stored(bus, Verdict, sequence)).event
            group.verdicts[verdict.slice] = (sequence, verdict)
        found.append(group)
    return found


async def train_again(
    bus: Bus, writer: Writer, learner: Learner, publication: Publication, progress: Progress
) -> Progress:
    """Train the batches formed since the checkpoint; tell of steps and policies that were not told of yet.

    Returns how far the run is then. The policy there is left to the caller to publish; its lineage is another
    one when the weights differ from those told of.
    """
    told = {
        record.event.step: record.event async for record in bus.records(StepCompleted, after=0, live=False)
    }
    lineages = [record.event.lineage async for record in bus.records(LineageStarted, after=0, live=False)]
    newest = max(lineages, default=0)
    same = progress.lineage == newest
    batches = {
        record.event.step: record.event async for record in bus.records(BatchFormed, after=0, live=False)
    }
    last = await bus.last(PolicyPublished)
    announced = last.event.version if last else -1
    for step in sorted(step for step in batches if step >= progress.step):
        batch = batches[step]
        if same and progress.version > announced:
            await publication.publish(learner.publishable(), progress)
        groups = await groups_of(bus, batch.groups)
        result = await asyncio.to_thread(learner.step, samples(groups, batch.advantages))
        before, digest = progress.digest, await asyncio.to_thread(policy.digest, learner.publishable())
        progress = Progress(batch.lineage, step + 1, batch.from_version + 1, digest)
        log.info("step trained again", step=step, digest=digest[:12])
        if (known := told.get(step)) is None:
            filtered = await groups_of(bus, batch.filtered)
            metrics = {**result.metrics, **measure.batch(groups, filtered, batch.from_version)}
            await writer.publish(completed(batch, before, digest, result.skipped, metrics))
        else:
            same = same and known.digest_after == digest
    return progress if same else await start_lineage(bus, writer, replace(progress, lineage=newest + 1))


async def start_lineage(bus: Bus, writer: Writer, progress: Progress) -> Progress:
    """The weights differ from those told of: go on under a version that was never used."""
    used = [record.event.version async for record in bus.records(PolicyPublished, after=0, live=False)]
    progress = replace(progress, version=max([progress.version, *used]) + 1)
    await writer.publish(
        LineageStarted(
            lineage=progress.lineage,
            step=progress.step,
            version=progress.version,
            digest=progress.digest,
            reason="steps trained again gave other weights than before",
        )
    )
    log.warning("new lineage", lineage=progress.lineage, version=progress.version)
    return progress


async def _stored(bus: Bus, kind: type[E], sequence: int) -> Record[E]:
    """A message that the state refers to; retention keeps it as long as something does."""
    record = await bus.get(kind, sequence)
    if record is None:
        raise BusError(
            f"{kind.stream} does not hold {kind.__name__} {sequence} any more; the run cannot go on from here"
        )
    return record


def completed(
    batch: BatchFormed, before: str, after: str, skipped: str, metrics: dict[str, float]
) -> StepCompleted:
    return StepCompleted(
        lineage=batch.lineage,
        step=batch.step,
        from_version=batch.from_version,
        version=batch.from_version + 1,
        digest_before=before,
        digest_after=after,
        skipped=skipped,
        metrics=metrics,
    )
