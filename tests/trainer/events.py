"""Events of one small run, for tests of the trainer's folds."""

from __future__ import annotations

from typing import Any

import numpy as np

from bus import Record
from schemas import Completion, Event, Judgement, Rollouts, Sampling, Segment, Span, TaskGranted, Verdict
from schemas.verdicts import Outcome

WORKER = "U" + "A" * 55
OTHER = "U" + "B" * 55
DIGEST = "0" * 64


def record(event: Event, sequence: int, timestamp: float = 0.0) -> Record[Any]:
    return Record(sequence, event, event.subject_below(), timestamp, WORKER, DIGEST)


def grant(task: int, attempt: int = 0, version: int = 0, size: int = 2, worker: str = WORKER) -> TaskGranted:
    return TaskGranted(
        worker=worker, task=str(task), attempt=attempt, environment="reverse-text", index=task,
        prompt=np.array([1, 2], np.uint32), seeds=np.arange(size, dtype=np.uint64),
        sampling=Sampling(max_new_tokens=8, stop_ids=(1,)),
        policy_version=version, policy_digest=DIGEST, nonce=bytes(32), seconds=60.0,
    )  # fmt: skip


def completion(index: int, version: int = 0, ids: tuple[int, ...] = (5, 1)) -> Completion:
    return Completion(
        index=index,
        segments=(Segment(source="model", ids=np.array(ids, np.uint32)),),
        logprobs=np.full(len(ids), -0.5, np.float32),
        spans=(Span(policy_version=version, policy_digest=DIGEST, start=0, stop=len(ids)),),
        finish="stop",
    )


def rollouts(
    grant: TaskGranted, indices: tuple[int, ...] | None = None, slice: int = 0, slices: int = 1
) -> Rollouts:
    indices = tuple(range(grant.group_size)) if indices is None else indices
    return Rollouts(
        worker=grant.worker, task=grant.task, attempt=grant.attempt, slice=slice, slices=slices,
        completions=tuple(completion(index, grant.policy_version) for index in indices),
        answer=bytes(32), proof=DIGEST,
    )  # fmt: skip


def verdict(
    answer: Rollouts,
    rewards: tuple[float, ...] = (0.0, 1.0),
    outcome: Outcome = "accepted",
    sequence: int = 1,
) -> Verdict:
    return Verdict(
        worker=answer.worker, task=answer.task, attempt=answer.attempt, slice=answer.slice,
        rollouts_sequence=sequence,
        judgements=tuple(
            Judgement(index=made.index, outcome=outcome, reward=reward if outcome == "accepted" else None, tokens=2)
            for made, reward in zip(answer.completions, rewards, strict=False)
        ),
    )  # fmt: skip
