"""Judgements of the trusted side, and what follows for a worker."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.event import Count, Event, Hash, Many, Struct, Text, Token

Outcome = Literal["accepted", "unaudited", "void", "rejected", "crashed"]
SOUND: frozenset[Outcome] = frozenset({"accepted", "unaudited"})
"""Outcomes of completions that may be trained on."""


class Check(Struct):
    """One check of one completion: what was measured, against which limit, and whether it held."""

    name: Text
    passed: bool
    value: float | None = None
    limit: float | None = None
    detail: Text = ""


class Judgement(Struct):
    """The outcome for one completion.

    checks: what the audit measured, and the check that failed, if one did; cheap checks that held are not listed.
    accepted: audited and sound. unaudited: cheap checks sound, not drawn for audit. void: not usable, nobody
    is blamed. rejected: a wrong claim. crashed: the validator's own fault. reward: computed here, never
    claimed; None unless accepted or unaudited, or when scoring failed (then the outcome is crashed).
    metrics: the environment's, e.g. {"exact": 1.0}.
    """

    index: Count
    outcome: Outcome
    reward: float | None = None
    metrics: Annotated[dict[Text, float], Field(max_length=32)] = Field(default_factory=dict)
    checks: Annotated[Many[Check], Field(max_length=64)] = ()
    tokens: Count = 0


class Verdict(Event):
    """One validator's judgement of one slice; written once for each ordinal (1: a second opinion).

    rollouts_sequence: the judged message's sequence in ROLLOUTS.
    """

    stream: ClassVar[str] = "VERDICTS"
    subject: ClassVar[str] = "verdicts.{worker}.{task}.{attempt}.{slice}.{ordinal}"
    publishers: ClassVar[frozenset[str]] = frozenset({"validator"})
    key: ClassVar[tuple[str, ...]] = ("worker", "task", "attempt", "slice", "ordinal")

    worker: Token
    task: Token
    attempt: Count
    slice: Count
    ordinal: Count = 0
    rollouts_sequence: Count
    judgements: Annotated[Many[Judgement], Field(min_length=1, max_length=4096)]


class Standing(Event):
    """Base of the events about one node, on `standings.<node>`."""

    stream: ClassVar[str] = "STANDINGS"
    subject: ClassVar[str] = "standings.{node}"
    publishers: ClassVar[frozenset[str]] = frozenset({"validator", "trainer", "operator"})

    node: Token
    reason: Text = ""


class Slashed(Standing):
    """The node lied: no more grants, and what it sent is withdrawn unless a BatchFormed holds it already.

    evidence: sequences in VERDICTS.
    """

    key: ClassVar[tuple[str, ...]] = ("node", "evidence")
    evidence: Annotated[Many[Count], Field(max_length=64)] = ()


class Quarantined(Standing):
    """The node is faulty: no more grants until it is reinstated; what was accepted stays."""

    key: ClassVar[tuple[str, ...]] = ("node", "evidence")
    evidence: Annotated[Many[Count], Field(max_length=64)] = ()


class Reinstated(Standing):
    """An operator lets the node work again."""

    publishers: ClassVar[frozenset[str]] = frozenset({"operator"})


class Credited(Standing):
    """The contribution ledger: tokens of this node that the batch of `step` trained on."""

    publishers: ClassVar[frozenset[str]] = frozenset({"trainer"})
    key: ClassVar[tuple[str, ...]] = ("node", "step")
    step: Count
    tokens: Count


class AuditKeyCommitted(Standing):
    """A validator's commitment, BLAKE3(key), to the key with which it draws audits; at its start."""

    publishers: ClassVar[frozenset[str]] = frozenset({"validator"})
    key: ClassVar[tuple[str, ...]] = ("node", "commitment")
    commitment: Hash


class AuditKeyRevealed(Standing):
    """The audit key itself; after RunEnded, so that anyone can check the draws."""

    publishers: ClassVar[frozenset[str]] = frozenset({"validator"})
    key: ClassVar[tuple[str, ...]] = ("node",)
    audit_key: Hash
