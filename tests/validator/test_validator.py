"""Judging on a real bus (tests/validator/scene.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

import policy
from bus.testing import Run
from schemas import Completion, Judgement, Segment, TaskClosed, TaskGranted, Verdict
from tests.policy import tiny
from tests.validator.scene import POISON, poisonous, scene


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return poisonous()


def poisoned(completion: Completion) -> Completion:
    """Its second token is the poison."""
    ids = completion.ids.copy()
    ids[1] = POISON
    return completion.model_copy(update={"segments": (Segment(source="model", ids=ids),)})


def boasting(completion: Completion) -> Completion:
    """Log-probs that overflow a sum in float32."""
    most = np.full(len(completion.ids), -3e38, np.float32)
    return completion.model_copy(update={"logprobs": most})


def modest(completion: Completion) -> Completion:
    """Log-probs that differ a little, within every band."""
    return completion.model_copy(update={"logprobs": completion.logprobs * np.float32(1.01)})


def rejected(grant: TaskGranted, sequence: int) -> Verdict:
    """What another validator said."""
    wrong = Judgement(index=0, outcome="rejected", checks=[{"name": "replay margin", "passed": False}])
    return Verdict(
        worker=grant.worker,
        task=grant.task,
        attempt=0,
        slice=0,
        rollouts_sequence=sequence,
        judgements=(wrong,),
    )


async def test_an_honest_slice_is_accepted_with_its_rewards(
    run: Run, tmp_path: Path, model: PreTrainedModel
) -> None:
    async with scene(run, tmp_path, model) as there:
        grant = await there.granted(0)
        record = await there.sent(grant)
        await there.validator.handle([record])
        verdict = await there.verdict(grant)
        assert verdict is not None
        assert verdict.event.rollouts_sequence == record.sequence
        for judgement in verdict.event.judgements:
            assert judgement.outcome == "accepted", judgement.checks
            assert judgement.reward is not None
            assert {"possession", "replay margin", "log-probs worst"} <= {
                check.name for check in judgement.checks
            }
        assert await there.slashed() == []


async def test_without_a_draw_there_is_no_prefill(run: Run, tmp_path: Path, model: PreTrainedModel) -> None:
    async with scene(run, tmp_path, model, share=0.0) as there:
        grant = await there.granted(0)
        await there.validator.handle([await there.spoilt(grant, poisoned)])
        assert await there.outcomes(grant) == ["unaudited", "unaudited"]


async def test_a_slice_is_judged_once(run: Run, tmp_path: Path, model: PreTrainedModel) -> None:
    """Redelivered, sent again with other bytes, or sent twice before anyone looked."""
    async with scene(run, tmp_path, model) as there:
        grant = await there.granted(0)
        first, second = await there.sent(grant), await there.spoilt(grant, modest)
        assert first.sequence < second.sequence
        passes: list[torch.Size] = []
        held = await there.validator.models.get(0)
        held.model.register_forward_hook(lambda module, inputs, output: passes.append(output[0].shape))
        await there.validator.handle([first, second])
        assert [rows for rows, _, _ in passes] == [len(first.event.completions)]
        await there.validator.handle([first])
        await there.validator.handle([second])
        verdict = await there.verdict(grant)
        assert verdict is not None
        assert verdict.event.rollouts_sequence == first.sequence
        assert await there.trainer.end("VERDICTS") == verdict.sequence == 1
        assert len(passes) == 1
        assert await there.slashed() == []


async def test_a_verdict_whose_slashing_was_lost_slashes_when_its_slice_comes_again(
    run: Run, tmp_path: Path, model: PreTrainedModel
) -> None:
    """The trainer has closed the grant meanwhile, because the verdict was there."""
    async with scene(run, tmp_path, model) as there:
        grant = await there.granted(0)
        record = await there.sent(grant)
        sequence = await there.validator.bus.publish(rejected(grant, record.sequence), once=True)
        closed = TaskClosed(worker=grant.worker, task=grant.task, attempt=0, reason="rejected")
        await there.trainer.publish(closed)
        await there.validator.handle([record])
        await there.validator.handle([record])
        (slashed,) = {event.id: event for event in await there.slashed()}.values()
        assert (slashed.node, slashed.evidence) == (grant.worker, (sequence,))
        assert slashed.reason == "1 of 1 completions rejected: replay margin "
        assert await there.trainer.end("VERDICTS") == sequence


async def test_the_quicker_of_two_validators_counts(run: Run, tmp_path: Path, model: PreTrainedModel) -> None:
    async with scene(run, tmp_path, model) as there:
        grant = await there.granted(0)
        record = await there.sent(grant)
        (slower,) = await there.validator.judge([record])
        sequence = await there.trainer.end("VERDICTS") + 1
        assert await there.validator.bus.publish(rejected(grant, record.sequence), once=True) == sequence
        await there.validator.publish(slower)
        assert [event.evidence for event in await there.slashed()] == [(sequence,)]
        assert await there.outcomes(grant) == ["rejected"]


async def test_tasks_that_are_invented_or_closed_fill_no_stream(
    run: Run, tmp_path: Path, model: PreTrainedModel
) -> None:
    async with scene(run, tmp_path, model) as there:
        closed = await there.granted(0)
        records = [await there.sent(closed)]
        await there.trainer.publish(
            TaskClosed(worker=closed.worker, task=closed.task, attempt=0, reason="expired")
        )
        records += [await there.sent(closed.replace(task=name)) for name in ("1", "free_lunch")]
        await there.validator.handle(records)
        assert await there.trainer.end("VERDICTS") == 0


async def test_a_wrong_answer_to_the_nonce_is_rejected(
    run: Run, tmp_path: Path, model: PreTrainedModel
) -> None:
    async with scene(run, tmp_path, model) as there:
        grant = await there.granted(0)
        of_another = policy.answer(tiny.model(seed=1), grant.nonce)
        await there.validator.handle([await there.sent(grant, answer=of_another)])
        assert await there.outcomes(grant) == ["rejected", "rejected"]
        (slashed,) = await there.slashed()
        assert "2 of 2 completions rejected: possession" in slashed.reason


async def test_log_probs_that_overflow_are_the_workers_lie(
    run: Run, tmp_path: Path, model: PreTrainedModel
) -> None:
    async with scene(run, tmp_path, model) as there:
        grants = [await there.granted(number) for number in range(2)]
        records = [await there.spoilt(grants[0], boasting), await there.sent(grants[1])]
        await there.validator.handle(records)
        assert await there.outcomes(grants[0]) == ["rejected", "accepted"]
        assert await there.outcomes(grants[1]) == ["accepted", "accepted"]


async def test_a_slice_that_breaks_the_audit_takes_no_other_with_it(
    run: Run, tmp_path: Path, model: PreTrainedModel
) -> None:
    async with scene(run, tmp_path, model) as there:
        grants = [await there.granted(number) for number in range(3)]
        records = [await there.sent(grant) for grant in grants]
        records[1] = await there.spoilt(grants[1], poisoned)
        await there.validator.handle(records)
        assert await there.outcomes(grants[0]) == await there.outcomes(grants[2]) == ["accepted", "accepted"]
        assert await there.outcomes(grants[1]) == ["crashed", "crashed"]
        verdict = await there.verdict(grants[1])
        assert verdict is not None
        assert "NonFiniteHidden" in verdict.event.judgements[0].checks[-1].detail
        assert await there.slashed() == []


@pytest.mark.parametrize("broken", ["text", "score"])
async def test_a_slice_that_cannot_be_scored_takes_no_other_with_it(
    run: Run, tmp_path: Path, model: PreTrainedModel, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    async with scene(run, tmp_path, model) as there:
        grants = [await there.granted(number) for number in range(2)]
        records = [await there.spoilt(grants[0], poisoned), await there.sent(grants[1])]
        text, score = there.validator.prompts.text, there.validator.scorer.score

        def breaking_text(ids: list[int]) -> str:
            if POISON in ids:
                raise ValueError("no text")
            return text(ids)

        async def breaking_score(index: int, texts: list[str]) -> list[Any]:
            if index == grants[0].index:
                raise OSError("no process")
            return await score(index, texts)

        if broken == "text":
            monkeypatch.setattr(there.validator.prompts, "text", breaking_text)
        else:
            monkeypatch.setattr(there.validator.scorer, "score", breaking_score)
        await there.validator.handle(records)
        assert await there.outcomes(grants[0]) == ["crashed", "crashed"]
        assert await there.outcomes(grants[1]) == ["accepted", "accepted"]
