"""The validator: receives slices, judges them, publishes verdicts.

For each slice: gather what belongs to it, the cheap checks, the rewards, possession of the policy; then, when
the slice is drawn, one prefill of everything in it. Slices are judged several at a time, because a batch
costs hardly more than one. What fails by the validator's own fault is `crashed`, never the worker's wrong, and
fails for that slice alone.
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
from schemas import Check, Rollouts, Slashed, Verdict
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

    async def handle(self, records: Sequence[Record[Rollouts]]) -> None:
        """See to it that each slice that answers an open grant has its verdict, and that who lied is slashed.

        A slice that was judged before is not judged again: it came a second time because its validator died or
        its worker sent it again. The first of several in one batch counts.
        """
        judged = await asyncio.gather(*(self._verdict(record.event) for record in records))
        fresh: dict[str, Record[Rollouts]] = {}
        for record, there in zip(records, judged, strict=True):
            if there is not None:
                await self._slash(there.sequence, there.event)
            else:
                fresh.setdefault(record.subject, record)
        verdicts = await self.judge(list(fresh.values()))
        await asyncio.gather(*(self.publish(verdict) for verdict in verdicts))

    async def judge(self, records: Sequence[Record[Rollouts]]) -> list[Verdict]:
        """The verdicts of slices that have none yet, in their order; none for a slice without an open grant."""
        gathering = (gather(self.bus, record, self.policies, self.vocabulary) for record in records)
        submissions = await asyncio.gather(*gathering)
        cases = [Case(submission) for submission in submissions if submission is not None]
        await asyncio.gather(*(self._check(case) for case in cases))
        by_version: dict[int, list[Case]] = {}
        for case in cases:
            if case.going():
                by_version.setdefault(case.submission.granted.policy_version, []).append(case)
        for version in sorted(by_version, key=lambda version: version not in self.models):
            await self._audit(version, by_version[version])
        return [case.verdict() for case in cases]

    async def publish(self, verdict: Verdict) -> None:
        """Store the verdict and draw its consequence. Where another validator was quicker, its verdict counts."""
        try:
            sequence = await self.bus.publish(verdict, once=True)
        except AlreadyPublished as there:
            sequence, verdict = there.record.sequence, there.record.event
        await self._slash(sequence, verdict)

    async def _verdict(self, event: Rollouts) -> Record[Verdict] | None:
        names = {"worker": event.worker, "task": event.task, "attempt": event.attempt, "slice": event.slice}
        return await self.bus.last(Verdict, **names, ordinal=0)

    async def _slash(self, sequence: int, verdict: Verdict) -> None:
        """A wrong claim costs the worker its standing. Said again for the same verdict it is the same event."""
        wrong = [judgement for judgement in verdict.judgements if judgement.outcome == "rejected"]
        if not wrong:
            return
        failed = next(check for check in wrong[0].checks if not check.passed)
        reason = (
            f"{len(wrong)} of {len(verdict.judgements)} completions rejected: {failed.name} {failed.detail}"
        )
        log.warning("slashed", worker=verdict.worker, task=verdict.task, reason=reason)
        await self.bus.publish(Slashed(node=verdict.worker, evidence=(sequence,), reason=reason[:4096]))

    async def _check(self, case: Case) -> None:
        """The cheap checks, and the rewards of what they leave."""
        try:
            case.check()
            if going := case.going():
                texts = [self.prompts.text(finding.completion.ids.tolist()) for finding in going]
                outcomes = await self.scorer.score(case.submission.granted.index, texts)
                for finding, outcome in zip(going, outcomes, strict=True):
                    finding.reward(outcome)
        except Exception as error:
            case.crash(error)

    async def _audit(self, version: int, cases: list[Case]) -> None:
        """Possession for every slice, and the prefill for those that are drawn."""
        try:
            model = await self.models.get(version)
            for case in cases:
                await asyncio.to_thread(_possession, model, case)
        except Exception as error:
            for case in cases:
                case.crash(error)
        else:
            await self._prefill(model, [case for case in cases if self._drawn(case)])

    def _drawn(self, case: Case) -> bool:
        return drawn(self.audit_key, case.submission.rollouts.proof, self.config.audit.share)

    async def _prefill(self, model: Any, cases: list[Case]) -> None:
        """One prefill for all; when it fails one for each, so that no slice takes the others with it."""
        findings = [(case, finding) for case in cases for finding in case.going()]
        claims = [Claim.of(case.submission, finding.completion) for case, finding in findings]
        try:
            bands, tokens = self.config.audit.bands, self.config.batch.tokens
            measured = await asyncio.to_thread(audit, model, claims, bands, tokens)
        except Exception as error:
            if len(cases) == 1:
                return cases[0].crash(error)
            for case in cases:
                await self._prefill(model, [case])
        else:
            for (_, finding), checks in zip(findings, measured, strict=True):
                finding.audited(checks)


def _possession(model: Any, case: Case) -> None:
    """The worker's machine holds the policy: its answer is a hash over the weight blocks that the nonce chose."""
    passed = policy.answer(model, case.submission.granted.nonce) == case.submission.rollouts.answer
    case.all([Check(name="possession", passed=passed)], failed="rejected")
