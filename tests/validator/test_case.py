"""How the checks of a slice become its verdict."""

from __future__ import annotations

import numpy as np

from environments import Scored, ScoringFailed
from schemas import Check, Verdict
from schemas.verdicts import Outcome
from tests.validator.submissions import GRANT, STOP, WELL_FORMED, completion, proof, submission
from validator.case import Case

HELD = Check(name="toploc exponents", passed=True, value=1.0, limit=38.0)
BROKEN = Check(name="replay margin", passed=False, value=3.0, limit=1.0)


def two(*ids: int) -> Case:
    """Two completions; the second has these ids."""
    completions = (completion(), completion(*ids, index=1))
    return Case(submission(*completions, proven=proof((0, WELL_FORMED), (1, WELL_FORMED))))


def outcomes(verdict: Verdict) -> list[Outcome]:
    return [judgement.outcome for judgement in verdict.judgements]


def test_a_verdict_names_the_slice_and_judges_in_its_order() -> None:
    verdict = two().verdict()
    assert (verdict.worker, verdict.task, verdict.attempt, verdict.slice) == (GRANT.worker, GRANT.task, 0, 0)
    assert (verdict.rollouts_sequence, verdict.ordinal) == (9, 0)
    assert [judgement.index for judgement in verdict.judgements] == [0, 1]
    assert [judgement.tokens for judgement in verdict.judgements] == [2, 2]


def test_the_first_check_that_fails_decides_and_alone_is_noted() -> None:
    late_and_wrong = submission(completion(999, STOP, logprobs=[9.0, 9.0]), sent=GRANT.seconds + 1)
    case = Case(late_and_wrong)
    case.check()
    (judgement,) = case.verdict().judgements
    assert (judgement.outcome, [check.name for check in judgement.checks]) == ("void", ["in time"])


def test_a_wrong_completion_leaves_the_others_going() -> None:
    case = two(999, STOP)
    case.check()
    assert [finding.completion.index for finding in case.going()] == [0]
    assert outcomes(case.verdict()) == ["unaudited", "rejected"]


def test_rewards_are_those_of_sound_completions_only() -> None:
    case = two()
    for finding, reward in zip(case.going(), (0.25, 1.0), strict=True):
        finding.reward(Scored(reward, {"exact": reward}))
    first, second = case.going()
    first.audited([HELD])
    second.audited([HELD, BROKEN])
    accepted, rejected = case.verdict().judgements
    assert (accepted.outcome, accepted.reward, accepted.metrics) == ("accepted", 0.25, {"exact": 0.25})
    assert (rejected.outcome, rejected.reward, rejected.metrics) == ("rejected", None, {})
    assert (accepted.checks, rejected.checks) == ((HELD,), (HELD, BROKEN))


def test_a_reward_that_cannot_be_computed_is_no_reward_of_zero() -> None:
    case = two()
    first, second = case.going()
    first.reward(ScoringFailed("took longer than 10 s" + "!" * 5000))
    second.reward(Scored(0.5, {}))
    crashed, unaudited = case.verdict().judgements
    assert (crashed.outcome, crashed.reward) == ("crashed", None)
    assert crashed.checks[0].detail.startswith("took longer")
    assert (unaudited.outcome, unaudited.reward) == ("unaudited", 0.5)


def test_the_validators_own_failure_leaves_what_was_found_before() -> None:
    case = two(999, STOP)
    case.check()
    case.crash(RuntimeError("out of memory"))
    crashed, rejected = case.verdict().judgements
    assert (crashed.outcome, rejected.outcome) == ("crashed", "rejected")
    assert (crashed.checks[0].name, crashed.checks[0].detail) == ("validator", "RuntimeError: out of memory")


def test_what_holds_for_the_slice_is_noted_for_each_that_goes_on() -> None:
    case = two()
    case.all([Check(name="possession", passed=False)], failed="rejected")
    assert outcomes(case.verdict()) == ["rejected", "rejected"]
    assert not case.going()


def test_hostile_claims_make_no_check_with_a_value_that_is_not_finite() -> None:
    case = Case(submission(completion(logprobs=np.full(2, np.finfo(np.float32).max))))
    case.check()
    assert outcomes(case.verdict()) == ["rejected"]
