"""The run itself, the nodes that carry it, the operator's commands, and messages nobody could handle."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints

from schemas.event import Count, Digest, Event, Hash, Many, Text, Token

PublicKey = Annotated[str, StringConstraints(pattern=r"^U[A-Z2-7]{55}$")]
"""An NKEY public user key: the name under which a node is known."""


class RunCreated(Event):
    """First event of a run: what it is, who is trusted, and a commitment to its secret.

    config: the resolved configuration (`schemas.config`). trusted: role -> public keys; the signer is the
    trainer. commitment: BLAKE3 of the secret from which seeds are derived.
    """

    stream: ClassVar[str] = "RUN"
    subject: ClassVar[str] = "run"
    publishers: ClassVar[frozenset[str]] = frozenset({"trainer"})

    run: Token
    config: dict[str, Any]
    software: dict[Text, Text] = Field(default_factory=dict)
    trusted: dict[Text, Many[PublicKey]] = Field(default_factory=dict)
    commitment: Hash


class LineageStarted(Event):
    """Weights could not be reproduced: a new line of versions begins, and everything granted before ends.

    lineage: its number, from 1. step, version: where it starts; version was never used before.
    """

    stream: ClassVar[str] = "RUN"
    subject: ClassVar[str] = "run"
    publishers: ClassVar[frozenset[str]] = frozenset({"trainer"})
    key: ClassVar[tuple[str, ...]] = ("lineage",)

    lineage: Count
    step: Count
    version: Count
    digest: Digest
    reason: Text


class RunEnded(Event):
    """Last event of a run; the secret is revealed, so that anyone can check the seeds."""

    stream: ClassVar[str] = "RUN"
    subject: ClassVar[str] = "run"
    publishers: ClassVar[frozenset[str]] = frozenset({"trainer"})
    key: ClassVar[tuple[str, ...]] = ("secret",)

    reason: Literal["finished", "stopped", "failed"]
    detail: Text = ""
    steps: Count
    version: Count
    digest: Digest
    secret: Hash


class Heartbeat(Event):
    """What a node does or waits for; every few seconds and at every change.

    state: one phrase, e.g. "generating 8 groups" or "waiting for grants". seconds: how long it has been so.
    capacity: measured figures, e.g. {"tokens_per_s": 5200}. url, parent, versions: of a relay.
    """

    stream: ClassVar[str] = "NODES"
    subject: ClassVar[str] = "nodes.{kind}.{node}"
    publishers: ClassVar[frozenset[str]] = frozenset({"node"})
    owner: ClassVar[str | None] = "node"

    kind: Token
    node: Token
    name: Text = ""
    state: Text = ""
    waiting: bool = False
    seconds: Annotated[float, Field(ge=0)] = 0.0
    capacity: Annotated[dict[Text, float], Field(max_length=64)] = Field(default_factory=dict)
    alarms: Annotated[Many[Text], Field(max_length=16)] = ()
    url: Text = ""
    parent: Text = ""
    versions: Annotated[Many[Count], Field(max_length=64)] = ()


class Control(Event):
    """An operator's command. Every command is an event of its own: pause, resume, pause are three."""

    stream: ClassVar[str] = "CONTROL"
    subject: ClassVar[str] = "control"
    publishers: ClassVar[frozenset[str]] = frozenset({"operator"})

    action: Literal["pause", "resume", "stop"]
    reason: Text = ""


class DeadLetter(Event):
    """A message that its consumer gave up on: where it is, why, and how often it was tried."""

    stream: ClassVar[str] = "DEAD"
    subject: ClassVar[str] = "dead.{source}"
    publishers: ClassVar[frozenset[str]] = frozenset({"node"})
    key: ClassVar[tuple[str, ...]] = ("source", "sequence", "consumer")

    source: Token
    sequence: Count
    original_subject: Text
    consumer: Text
    reason: Text
    deliveries: Count
