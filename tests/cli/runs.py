"""Records as the streams give them, and views made of these."""

from __future__ import annotations

import itertools
from typing import Any

from bus import Record
from cli.view import RunView
from schemas import BatchFormed, Event, GroupRef, Heartbeat, Judgement, Verdict
from schemas.verdicts import Outcome
from tests.schemas.examples import EXAMPLES, WORKER

NOW = 1_500_000_000.0


def view(*events: Event, at: float = NOW) -> RunView:
    """The view of these events, stored at one moment."""
    made = RunView()
    apply(made, *events, at=at)
    return made


def apply(made: RunView, *events: Event, at: float = NOW) -> None:
    for sequence, event in zip(itertools.count(1), events, strict=False):
        made.apply(Record(sequence, event, "demo.subject", at, "U" * 56, "0" * 64))


def heartbeat(name: str, **fields: Any) -> Heartbeat:
    """Of the node of EXAMPLES unless `node` says another."""
    values = {"kind": "worker", "node": WORKER, "state": "generating 8 groups", **fields}
    return Heartbeat(name=name, **values)


def verdict(*outcomes: Outcome, worker: str = WORKER, tokens: int = 5) -> Verdict:
    """One slice of a worker, judged so."""
    example = EXAMPLES["Verdict"]
    failed = example.judgements[1].checks  # type: ignore[attr-defined]
    judgements = tuple(
        Judgement(
            index=index,
            outcome=outcome,
            reward=0.5 if outcome in ("accepted", "unaudited") else None,
            checks=failed if outcome == "rejected" else (),
            tokens=tokens,
        )
        for index, outcome in enumerate(outcomes)
    )
    return example.replace(worker=worker, judgements=judgements)  # type: ignore[return-value]


def batch(from_version: int, *groups: tuple[str, int], size: int = 2) -> BatchFormed:
    """A batch of groups given as (worker, version that generated)."""
    example = EXAMPLES["BatchFormed"]
    ref: GroupRef = example.groups[0]  # type: ignore[attr-defined]
    refs = tuple(
        ref.model_copy(update={"worker": worker, "policy_version": version}) for worker, version in groups
    )
    return example.replace(  # type: ignore[return-value]
        from_version=from_version, groups=refs, advantages=[0.0] * (size * len(groups))
    )
