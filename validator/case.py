"""One slice while it is judged: the checks so far of each completion, and what they came to."""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from environments import Scored, ScoringFailed
from schemas import Check, Completion, Judgement, Verdict
from schemas.verdicts import SOUND, Outcome
from validator.checks import RULES
from validator.submission import Submission

log = structlog.get_logger()


@dataclass
class Finding:
    """One completion: it goes on as `unaudited` until a check fails or an audit has found it sound."""

    completion: Completion
    outcome: Outcome = "unaudited"
    checks: list[Check] = field(default_factory=list)
    scored: Scored | None = None

    @property
    def going(self) -> bool:
        return self.outcome == "unaudited"

    def add(self, checks: list[Check], failed: Outcome) -> None:
        """Note checks; if one of them does not hold, `failed` is the outcome."""
        self.checks += checks
        if not all(check.passed for check in checks):
            self.outcome = failed

    def reward(self, outcome: Scored | ScoringFailed) -> None:
        """A reward that cannot be computed is the trusted side's failure, never a reward of 0."""
        if isinstance(outcome, Scored):
            self.scored = outcome
        else:
            self.add([Check(name="reward", passed=False, detail=outcome.reason[:4096])], failed="crashed")

    def audited(self, checks: list[Check]) -> None:
        """Note the checks of an audit, after which the completion is accepted or rejected."""
        self.add(checks, failed="rejected")
        if self.going:
            self.outcome = "accepted"

    def judgement(self) -> Judgement:
        scored = self.scored if self.outcome in SOUND else None
        return Judgement(
            index=self.completion.index,
            outcome=self.outcome,
            reward=scored.reward if scored else None,
            metrics=scored.metrics if scored else {},
            checks=tuple(self.checks),
            tokens=len(self.completion.ids),
        )


class Case:
    """One slice with its findings, in the slice's order."""

    def __init__(self, submission: Submission) -> None:
        self.submission = submission
        self.findings = [Finding(completion) for completion in submission.rollouts.completions]

    def check(self) -> None:
        """The cheap checks of every completion, each until the first that fails; only that one is noted."""
        for finding in self.findings:
            for rule in RULES:
                if fault := rule.fault(self.submission, finding.completion):
                    check = Check(name=rule.name, passed=False, detail=fault)
                    finding.add([check], rule.failed)
                    break

    def going(self) -> list[Finding]:
        """Findings that no check has ended."""
        return [finding for finding in self.findings if finding.going]

    def all(self, checks: list[Check], failed: Outcome) -> None:
        """Note checks that hold or fail for the whole slice."""
        for finding in self.going():
            finding.add(checks, failed)

    def crash(self, error: Exception) -> None:
        """The validator itself failed at this slice: whatever it was, it is not the worker's fault."""
        event = self.submission.rollouts
        log.error("a slice cannot be judged", worker=event.worker, task=event.task, exc_info=error)
        detail = f"{type(error).__name__}: {error}"[:4096]
        self.all([Check(name="validator", passed=False, detail=detail)], failed="crashed")

    def verdict(self) -> Verdict:
        event = self.submission.rollouts
        return Verdict(
            worker=event.worker,
            task=event.task,
            attempt=event.attempt,
            slice=event.slice,
            rollouts_sequence=self.submission.record.sequence,
            judgements=tuple(finding.judgement() for finding in self.findings),
        )
