"""The validator: receives slices, judges them, publishes verdicts.

For each slice: gather what belongs to it, the cheap checks, the rewards, possession of the policy; then, when
the slice is drawn, one prefill of everything in it. Slices are judged several at a time, because a batch
costs hardly more than one. What fails by the validator's own fault is `crashed`, never the worker's wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import structlog

import policy
from bus import AlreadyPublished, Bus, Record
from environments import Prompts, Scorer
from relay.policies import Policies
from schemas import Check, Rollouts, Slashed, TaskGranted, Verdict
from schemas.config import Config
from validator.audit import Claim, audit
from validator.case import Case
from validator.draw import drawn
from validator.models import Models
from validator.submission import gather

log = structlog.get_logger()


class Validator:
    """Judges slices of one run. vocabulary: how many token ids the run's model knows."""

    def __init__(
        self,
        config: Config,
        bus: Bus,
        policies: Policies,
        models: Models,
        scorer: Scorer,
        prompts: Prompts,
        vocabulary: int,
        audit_key: bytes,
    ) -> None:
        self.config, self.bus, self.policies, self.models = config, bus, policies, models
        self.scorer, self.prompts, self.vocabulary, self.audit_key = scorer, prompts, vocabulary, audit_key

    async def judge(self, records: Sequence[Record[Rollouts]]) -> list[Verdict]:
        """One verdict for each slice, in their order."""
        gathering = (gather(self.bus, record, self.policies, self.vocabulary) for record in records)
        cases = [Case(submission) for submission in await asyncio.gather(*gathering)]
        by_version: dict[int, list[Case]] = {}
        for case in cases:
            case.check()
            if case.going():
                by_version.setdefault(_grant(case).policy_version, []).append(case)
        await asyncio.gather(*(self._reward(case) for together in by_version.values() for case in together))
        for version, together in by_version.items():
            await self._audit(version, together)
        return [case.verdict() for case in cases]

    async def publish(self, verdict: Verdict) -> None:
        """Store the verdict; a wrong claim costs the worker its standing.

        Where the slice has one already, as after a crash, that one counts.
        """
        try:
            sequence = await self.bus.publish(verdict, once=True)
        except AlreadyPublished as there:
            sequence, verdict = there.record.sequence, there.record.event
        wrong = [judgement for judgement in verdict.judgements if judgement.outcome == "rejected"]
        if wrong:
            failed = next(check for check in wrong[0].checks if not check.passed)
            reason = f"{len(wrong)} of {len(verdict.judgements)} completions rejected: {failed.name} {failed.detail}"
            log.warning("slashed", worker=verdict.worker, task=verdict.task, reason=reason)
            await self.bus.publish(Slashed(node=verdict.worker, evidence=(sequence,), reason=reason))

    async def _reward(self, case: Case) -> None:
        going, grant = case.going(), _grant(case)
        texts = [self.prompts.text(finding.completion.ids.tolist()) for finding in going]
        for finding, outcome in zip(going, await self.scorer.score(grant.index, texts), strict=True):
            finding.reward(outcome)

    async def _audit(self, version: int, cases: list[Case]) -> None:
        """Possession for every slice, and the prefill for those that are drawn."""
        try:
            model = await self.models.get(version)
            for case in cases:
                await asyncio.to_thread(_possession, model, case)
            await asyncio.to_thread(self._prefill, model, [case for case in cases if self._drawn(case)])
        except Exception as error:  # whatever it is, it is not the workers' fault
            log.exception("the audit failed", version=version)
            detail = f"{type(error).__name__}: {error}"[:4096]
            for case in cases:
                case.all([Check(name="audit", passed=False, detail=detail)], failed="crashed")

    def _drawn(self, case: Case) -> bool:
        return drawn(self.audit_key, case.submission.rollouts.proof, self.config.audit.share)

    def _prefill(self, model: Any, cases: list[Case]) -> None:
        findings = [(case, finding) for case in cases for finding in case.going()]
        claims = [Claim.of(case.submission, finding.completion) for case, finding in findings]
        checks = audit(model, claims, self.config.audit.bands, self.config.batch.tokens)
        for (_, finding), measured in zip(findings, checks, strict=True):
            finding.add(measured, failed="rejected")
            if finding.going:
                finding.outcome = "accepted"


def _grant(case: Case) -> TaskGranted:
    grant = case.submission.grant
    assert grant is not None, "no check goes on without a grant"
    return grant.event


def _possession(model: Any, case: Case) -> None:
    """The worker's machine holds the policy: its answer is a hash over the weight blocks that the nonce chose."""
    passed = policy.answer(model, _grant(case).nonce) == case.submission.rollouts.answer
    case.all([Check(name="possession", passed=passed)], failed="rejected")
