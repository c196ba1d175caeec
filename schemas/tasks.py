"""Requests for work, grants of work and their ends."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.arrays import Ids, Seeds
from schemas.event import Count, Digest, Event, Hash, Many, Struct, Text, Token


class WorkRequested(Event):
    """A worker says how many groups it wants to hold at once; its latest request counts, for `seconds`.

    Published by the worker, read by dispatch. A level, not an increment: repeating it grants nothing twice.
    """

    stream: ClassVar[str] = "REQUESTS"
    subject: ClassVar[str] = "requests.{worker}"
    publishers: ClassVar[frozenset[str]] = frozenset({"worker"})
    owner: ClassVar[str | None] = "worker"

    worker: Token
    name: Text = ""
    groups: Annotated[int, Field(ge=0, le=4096)]
    seconds: Annotated[float, Field(gt=0, le=3600)] = 15.0
    environments: Annotated[Many[Text], Field(max_length=64)] = ()
    policy_version: Annotated[int, Field(ge=-1)] = -1
    engine: Text = ""
    stack: Text = ""


class WorkReturned(Event):
    """A worker gives a grant back unanswered, with its reason; its credit is free at once."""

    stream: ClassVar[str] = "REQUESTS"
    subject: ClassVar[str] = "requests.{worker}"
    publishers: ClassVar[frozenset[str]] = frozenset({"worker"})
    owner: ClassVar[str | None] = "worker"
    key: ClassVar[tuple[str, ...]] = ("worker", "task", "attempt")

    worker: Token
    task: Token
    attempt: Count
    reason: Text


MAX_NEW_TOKENS = 128_000
"""The proof of a completion, 258 bytes for 32 tokens, has to fit into a message of 1 MB."""


class Sampling(Struct):
    """How completions are sampled: argmax of log-probs / temperature + Gumbel noise (docs/sampling.md)."""

    temperature: Annotated[float, Field(gt=0, le=10)] = 1.0
    max_new_tokens: Annotated[int, Field(ge=1, le=MAX_NEW_TOKENS)]
    stop_ids: Annotated[Many[Count], Field(max_length=16)]


class TaskGranted(Event):
    """One group for one worker: everything that generation depends on, chosen by dispatch.

    prompt: token ids, shape [P]. seeds: one per completion, shape [G]. nonce: the challenge of the proof of
    possession. seconds: time allowed, counted from this event's stored timestamp.
    """

    stream: ClassVar[str] = "TASKS"
    subject: ClassVar[str] = "tasks.{worker}.{task}.{attempt}"
    publishers: ClassVar[frozenset[str]] = frozenset({"trainer"})
    key: ClassVar[tuple[str, ...]] = ("worker", "task", "attempt", "nonce")

    worker: Token
    task: Token
    attempt: Count
    environment: Text
    index: Count
    prompt: Ids
    seeds: Seeds
    sampling: Sampling
    policy_version: Count
    policy_digest: Digest
    nonce: Hash
    seconds: Annotated[float, Field(gt=0, le=86400)]

    @property
    def group_size(self) -> int:
        return len(self.seeds)


CloseReason = Literal["consumed", "filtered", "rejected", "void", "expired", "returned", "cancelled", "dead"]


class TaskClosed(Event):
    """A grant that BatchFormed did not close has ended; its credit is free."""

    stream: ClassVar[str] = "TASKS"
    subject: ClassVar[str] = "tasks.{worker}.{task}.{attempt}"
    publishers: ClassVar[frozenset[str]] = frozenset({"trainer"})
    key: ClassVar[tuple[str, ...]] = ("worker", "task", "attempt")

    worker: Token
    task: Token
    attempt: Count
    reason: CloseReason
    detail: Text = ""
