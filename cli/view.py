"""A run as people see it: a fold over its streams. The live view, the demo's table and its JSON are made of it."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from bus import Record
from bus.logs import printable
from schemas import (
    BatchFormed,
    Control,
    EvalCompleted,
    Heartbeat,
    PolicyPublished,
    RunEnded,
    Slashed,
    StepCompleted,
    Verdict,
)
from schemas.verdicts import SOUND

STREAMS: tuple[type[Any], ...] = (
    BatchFormed, Control, EvalCompleted, Heartbeat, PolicyPublished, RunEnded, Slashed, StepCompleted, Verdict,
)  # fmt: skip

NAME_LENGTH = 32


@dataclass
class RunView:
    """What was read so far. Times are the server's, seconds since 1970."""

    steps: list[StepCompleted] = field(default_factory=list)
    evals: dict[int, EvalCompleted] = field(default_factory=dict)
    policies: list[PolicyPublished] = field(default_factory=list)
    nodes: dict[str, tuple[Heartbeat, float]] = field(default_factory=dict)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(worker, outcome) -> completions"""
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(worker, failed check) -> completions"""
    trained: Counter[str] = field(default_factory=Counter)
    """worker -> completions in batches"""
    slashed: dict[str, str] = field(default_factory=dict)
    lags: Counter[int] = field(default_factory=Counter)
    tokens: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=4096))
    """Accepted completion tokens of the last verdicts, by time."""
    tokens_total: int = 0
    judged: tuple[float, float] | None = None
    """Times of the first and of the last verdict."""
    control: Control | None = None
    """The operator's last command."""
    ended: RunEnded | None = None

    def apply(self, record: Record[Any]) -> None:
        match record.event:
            case StepCompleted() as step:
                self.steps.append(step)
            case EvalCompleted() as done:
                self.evals[done.version] = done
            case PolicyPublished() as published:
                self.policies.append(published)
            case Heartbeat() as beat:
                self.nodes[beat.node] = (beat, record.timestamp)
            case Slashed() as slashed:
                self.slashed[slashed.node] = slashed.reason
            case BatchFormed() as batch:
                self._batch(batch)
            case Verdict() as verdict:
                self._verdict(verdict, record.timestamp)
            case Control() as command:
                self.control = command
            case RunEnded() as ended:
                self.ended = ended

    def _batch(self, batch: BatchFormed) -> None:
        each = len(batch.advantages) // len(batch.groups)
        for group in batch.groups:
            self.trained[group.worker] += each
            self.lags[batch.from_version - group.policy_version] += 1

    def _verdict(self, verdict: Verdict, timestamp: float) -> None:
        for judgement in verdict.judgements:
            self.outcomes[verdict.worker, judgement.outcome] += 1
            for check in judgement.checks:
                if not check.passed:
                    self.reasons[verdict.worker, check.name] += 1
        tokens = sum(j.tokens for j in verdict.judgements if j.outcome in SOUND)
        self.tokens.append((timestamp, tokens))
        self.tokens_total += tokens
        self.judged = (self.judged[0] if self.judged else timestamp, timestamp)

    def done(self) -> int:
        """Steps done; a new lineage may have gone back."""
        return self.steps[-1].step + 1 if self.steps else 0

    def tokens_per_second(self, window: float = 15.0) -> float:
        """Accepted completion tokens a second over the last `window` seconds."""
        since = time.time() - window
        return sum(tokens for at, tokens in self.tokens if at > since) / window

    def completions(self, *outcomes: str, worker: str | None = None) -> int:
        """How many completions, of all workers or of one, had one of these outcomes."""
        return sum(
            count
            for (who, outcome), count in self.outcomes.items()
            if outcome in outcomes and worker in (None, who)
        )

    def accepted(self, worker: str | None = None) -> int:
        return self.completions(*SOUND, worker=worker)

    def rejected(self, worker: str | None = None) -> int:
        return self.completions("rejected", worker=worker)

    def policy_bytes_sent(self) -> int:
        """Bytes of the chunks that a client downloads to have every version: those that are new in each."""
        held: set[str] = set()
        sent = 0
        for published in self.policies:
            sizes = published.manifest.sizes()
            sent += sum(size for chunk, size in sizes.items() if chunk not in held)
            held = set(sizes)
        return sent

    def name(self, node: str) -> str:
        """What people call a node: as it calls itself, made harmless, or the beginning of its key."""
        told = self.nodes[node][0].name if node in self.nodes else ""
        return printable(told[:NAME_LENGTH]) or node[:9]
