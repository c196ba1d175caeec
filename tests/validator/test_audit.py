"""Audits of a real policy: who generated with it passes, whoever did anything else does not."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from policy import Replayed
from schemas import Check
from schemas.config import Bands
from tests.trainer import tiny
from tests.validator import claims
from tests.validator.claims import LENGTH, VOCABULARY, Ids
from validator.audit import Claim, NonFiniteLogits, _sampled, audit
from validator.calibration import MEASURED, bands
from workers.transformers_engine import TransformersEngine

TOKENS = 1024
"""Budget of a forward pass: an audit of all claims needs several."""


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return tiny.model().eval()


@pytest.fixture(scope="module")
def engine(model: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> TransformersEngine:
    return claims.engine(tmp_path_factory.mktemp("policy"), model)


@pytest.fixture(scope="module")
def honest(engine: TransformersEngine) -> list[Claim]:
    return claims.generate(engine, [claims.grant(number) for number in range(4)])


@pytest.fixture(scope="module")
def calibrated(model: PreTrainedModel, honest: list[Claim]) -> Bands:
    return bands(audit(model, honest, Bands(), TOKENS))


def failed(checks: list[Check]) -> set[str]:
    return {check.name for check in checks if not check.passed}


def rejected(model: PreTrainedModel, cheats: Sequence[Claim], within: Bands) -> list[set[str]]:
    """The names of the checks that each claim fails."""
    return [failed(checks) for checks in audit(model, cheats, within, TOKENS)]


def ids(claim: Claim) -> Ids:
    return claim.completion.ids.copy()


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_honest_completions_pass_at_every_batch_shape(
    model: PreTrainedModel, engine: TransformersEngine, calibrated: Bands, batch: int
) -> None:
    """With stop tokens and other temperatures, so that lengths differ; grants that did not set the bands."""
    grants = [claims.grant(20 + number, (0.7, 1.0, 1.3)[number % 3], (0, 1)) for number in range(batch)]
    made = claims.generate(engine, grants)
    assert rejected(model, made, calibrated) == [set()] * len(made)
    assert rejected(model, made, Bands()) == [set()] * len(made)


def test_honest_completions_pass_in_bfloat16(tmp_path: Path) -> None:
    """Where a batch changes more than the last bits."""
    coarse = tiny.model().eval().to(torch.bfloat16)
    engine = claims.engine(tmp_path, coarse)
    made = [claims.generate(engine, [claims.grant(number) for number in range(batch)]) for batch in (1, 8)]
    measured = audit(coarse, [claim for batch in made for claim in batch], Bands(), TOKENS)
    assert {check.name for checks in measured for check in checks if check.value} >= {"toploc exponents"}
    assert [failed(checks) for checks in measured] == [set()] * len(measured)
    within = bands(measured)
    assert within != bands([])
    fresh = claims.generate(engine, [claims.grant(number) for number in range(40, 44)])
    assert rejected(coarse, fresh, within) == [set()] * len(fresh)


def test_the_measured_values_do_not_depend_on_the_budget(model: PreTrainedModel, honest: list[Claim]) -> None:
    whole, parts = audit(model, honest, Bands(), 10**6), audit(model, honest, Bands(), 1)
    for one, other in zip(whole, parts, strict=True):
        assert [check.name for check in one] == [check.name for check in other]
        for left, right in zip(one, other, strict=True):
            assert left.value == pytest.approx(right.value, abs=1e-3 if "log" in left.name else 2)


def test_every_band_is_measured_here(model: PreTrainedModel, honest: list[Claim]) -> None:
    (checks, *_) = audit(model, honest[:1], Bands(), TOKENS)
    assert {check.name for check in checks} == {*MEASURED, "replay mismatches"}
    assert {field for field, _ in MEASURED.values()} == set(Bands.model_fields) - {"replay_mismatches"}


def test_nothing_to_audit(model: PreTrainedModel) -> None:
    assert audit(model, [], Bands(), TOKENS) == []


@pytest.mark.parametrize("cheat", ["other seed", "greedy", "temperature 0.5", "other model's tokens"])
def test_tokens_that_the_seed_did_not_draw(
    model: PreTrainedModel,
    engine: TransformersEngine,
    honest: list[Claim],
    calibrated: Bands,
    tmp_path_factory: pytest.TempPathFactory,
    cheat: str,
) -> None:
    """Proofs and log-probs are all that the right policy gives for them: only the replay sees it."""
    grants = [claims.grant(number) for number in range(4)]
    by = engine
    match cheat:
        case "other seed":
            grants = [grant.replace(seeds=grant.seeds + np.uint64(1)) for grant in grants]
        case "greedy":
            grants = [claims.grant(number, 1e-4) for number in range(4)]
        case "temperature 0.5":
            grants = [claims.grant(number, 0.5) for number in range(4)]
        case _:
            by = claims.engine(tmp_path_factory.mktemp("other"), tiny.model(seed=1))
    tokens = [made.completion.ids for made in claims.generate(by, grants)]
    cheats = [
        claims.prefilled(model, claim, elsewhere) for claim, elsewhere in zip(honest, tokens, strict=True)
    ]
    for names in rejected(model, cheats, Bands()) + rejected(model, cheats, calibrated):
        assert names
        assert names <= {"replay margin", "replay mismatches"}


def test_another_model_all_the_way(
    model: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory, honest: list[Claim]
) -> None:
    other = claims.engine(tmp_path_factory.mktemp("other"), tiny.model(seed=1))
    made = claims.generate(other, [claim.grant for claim in honest[:: claims.GROUP_SIZE]])
    for names in rejected(model, made, Bands()):
        assert {"replay margin", "replay mismatches", "log-probs mean", "toploc exponents"} <= names


def test_a_stale_policys_proof(model: PreTrainedModel, honest: list[Claim], calibrated: Bands) -> None:
    """Right tokens, right log-probs; only the activations are those of the weights some steps ago."""
    stale = claims.drifted(model, 0.1)
    cheats = [
        claim._replace(proof=claims.prefilled(stale, claim, claim.completion.ids).proof) for claim in honest
    ]
    for names in rejected(model, cheats, calibrated):
        assert names
        assert names <= {"toploc exponents", "toploc mantissa mean", "toploc mantissa median"}


def test_one_edited_token(model: PreTrainedModel, honest: list[Claim]) -> None:
    """Replaced by the token that the policy finds least likely there."""
    cheats = []
    for at, claim in enumerate(honest):
        edited = ids(claim)
        prefix = torch.from_numpy(np.concatenate([claim.grant.prompt, edited[: 5 + at]]).astype(np.int64))
        with torch.no_grad():
            edited[5 + at] = model(prefix.unsqueeze(0)).logits[0, -1].argmin()
        cheats.append(claims.prefilled(model, claim, edited))
    for names in rejected(model, cheats, Bands()):
        assert "replay margin" in names


def test_an_early_end(model: PreTrainedModel, honest: list[Claim]) -> None:
    """Cut short by a stop token that did not win its race."""
    stop = next(
        token
        for token in range(VOCABULARY)
        if not any(token in claim.completion.ids[:20] for claim in honest)
    )
    cheats = []
    for claim in honest:
        granted = claim._replace(grant=claims.grant(int(claim.grant.task), stop_ids=(stop,)))
        cheats.append(claims.prefilled(model, granted, np.append(ids(claim)[:19], np.uint32(stop)), "stop"))
    for names in rejected(model, cheats, Bands()):
        assert "replay margin" in names


@pytest.mark.parametrize("forged", [-2.5, -100.0, -9999.0])
def test_one_forged_log_prob(model: PreTrainedModel, honest: list[Claim], forged: float) -> None:
    def forge(logprobs: np.ndarray) -> None:
        logprobs[7] += forged

    cheats = [claims.claiming(claim, forge) for claim in honest]
    for names in rejected(model, cheats, Bands()):
        assert "log-probs worst" in names
        assert names <= {"log-probs worst", "log-probs mean"}


def test_forged_log_probs_that_differ_little_each(model: PreTrainedModel, honest: list[Claim]) -> None:
    def forge(logprobs: np.ndarray) -> None:
        logprobs -= 0.6

    cheats = [claims.claiming(claim, forge) for claim in honest]
    assert rejected(model, cheats, Bands()) == [{"log-probs mean"}] * len(cheats)


def test_a_proof_of_another_completion(model: PreTrainedModel, honest: list[Claim]) -> None:
    cheats = [claim._replace(proof=other.proof) for claim, other in itertools.pairwise(honest)]
    for names in rejected(model, cheats, Bands()):
        assert "toploc exponents" in names


def test_values_are_finite_where_the_policy_rules_a_token_out(honest: list[Claim]) -> None:
    ruled_out = torch.full((LENGTH,), torch.inf)
    checks = _sampled(honest[0], Replayed(ruled_out, -ruled_out), Bands())
    assert failed(checks) == {check.name for check in checks}
    assert all(np.isfinite(check.value) for check in checks)


def test_a_broken_policy_is_nobodys_fault(honest: list[Claim]) -> None:
    broken, claim = tiny.model().eval(), honest[0]
    unused = next(
        token for token in range(VOCABULARY) if token not in (*claim.grant.prompt, *claim.completion.ids)
    )
    with torch.no_grad():
        broken.get_output_embeddings().weight[unused] = torch.nan
    with pytest.raises(NonFiniteLogits, match="NaN in completion 0"):
        audit(broken, [claim], Bands(), TOKENS)
