"""What the trainer tells: batches, steps, policies; and what evaluators measure of them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.arrays import Floats, Sequences
from schemas.event import Count, Digest, Event, Many, Struct, Text, Token
from schemas.weights import Manifest

Metrics = Annotated[dict[Text, float], Field(max_length=256)]


class WriterStarted(Event):
    """A new process took over the streams of the trainer; whoever meets a higher epoch than its own exits.

    Written to each of the trainer's streams; writes: which one, by the first token of its subjects.
    """

    stream: ClassVar[str] = "RUN"
    subject: ClassVar[str] = "{writes}.writer"
    publishers: ClassVar[frozenset[str]] = frozenset({"trainer"})

    epoch: Count
    writes: Literal["run", "tasks", "batches", "steps", "policies"]

    def destination(self) -> str:
        return self.writes.upper()


class GroupRef(Struct):
    """One group: the task, the attempt that answered it, and where its messages are.

    rollouts, verdicts: sequences of its slices in ROLLOUTS and VERDICTS.
    """

    worker: Token
    task: Token
    attempt: Count
    policy_version: Count
    rollouts: Sequences
    verdicts: Sequences


class BatchFormed(Event):
    """The batch of one step: which groups in which order, and which were filtered; closes all of them.

    groups: consumed, in the order in which they are trained on; completions follow in index order.
    advantages: one per completion in that order, shape [N]. filtered: complete groups without signal.
    folded: stream -> last sequence that had been read when the batch was formed (the cut-off for slashing).
    from_version: the policy that the step starts from.
    """

    stream: ClassVar[str] = "BATCHES"
    subject: ClassVar[str] = "batches"
    publishers: ClassVar[frozenset[str]] = frozenset({"trainer"})
    key: ClassVar[tuple[str, ...]] = ("lineage", "step")

    lineage: Count
    step: Count
    from_version: Count
    groups: Annotated[Many[GroupRef], Field(min_length=1, max_length=65536)]
    advantages: Floats
    filtered: Annotated[Many[GroupRef], Field(max_length=65536)] = ()
    folded: dict[Text, Count]


class StepCompleted(Event):
    """The step of one BatchFormed is done: the policy before and after, and what was measured.

    skipped: the update was not applied (non-finite loss or gradient); the batch counts as consumed.
    """

    stream: ClassVar[str] = "STEPS"
    subject: ClassVar[str] = "steps"
    publishers: ClassVar[frozenset[str]] = frozenset({"trainer"})
    key: ClassVar[tuple[str, ...]] = ("lineage", "step")

    lineage: Count
    step: Count
    from_version: Count
    version: Count
    digest_before: Digest
    digest_after: Digest
    skipped: Text = ""
    metrics: Metrics = Field(default_factory=dict)


class PolicyPublished(Event):
    """A policy that workers may be granted: announced once the origin holds all of it.

    base: the version that a delta applies to, None for a full version. holders: URLs of relays that hold it.
    """

    stream: ClassVar[str] = "POLICIES"
    subject: ClassVar[str] = "policies"
    publishers: ClassVar[frozenset[str]] = frozenset({"trainer"})
    key: ClassVar[tuple[str, ...]] = ("lineage", "version")

    lineage: Count
    version: Count
    digest: Digest
    base: Count | None = None
    manifest: Manifest
    holders: Annotated[Many[Text], Field(max_length=64)] = ()


class EvalCompleted(Event):
    """An evaluator measured a policy on held-out tasks."""

    stream: ClassVar[str] = "EVALS"
    subject: ClassVar[str] = "evals.{evaluator}"
    publishers: ClassVar[frozenset[str]] = frozenset({"evaluator"})
    owner: ClassVar[str | None] = "evaluator"
    key: ClassVar[tuple[str, ...]] = ("evaluator", "version", "environment")

    evaluator: Token
    version: Count
    digest: Digest
    environment: Text
    prompts: Count
    samples: Count
    metrics: Metrics
