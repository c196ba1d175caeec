import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.trainer import tiny
from trainer.learner import Learner
from trainer.losses import intellect2
from trainer.packing import pack

ROUNDING = {"rtol": 1e-4, "atol": 1e-6}


def learner(**sections):
    return Learner(tiny.model(), tiny.config(**sections))


def gradients(samples, **sections):
    """The gradient of one optimizer step on `samples`, before it is clipped."""
    trained = learner(optimizer={"max_grad_norm": 1e9}, **sections)
    assert not trained.step(samples).skipped
    return {name: parameter.grad.clone() for name, parameter in trained.parameters.items()}


def assert_same(one, other, **tolerance):
    torch.testing.assert_close(one, other, **(tolerance or {"rtol": 0, "atol": 0}))


def test_the_loss_of_a_step_equals_a_plain_float64_computation():
    model, samples = tiny.model().double().eval(), tiny.samples()
    total, tokens = 0.0, 0
    for sample in samples:
        ids = torch.from_numpy(np.concatenate([sample.prompt, sample.completion]))
        logprobs = torch.log_softmax(model(input_ids=ids[None]).logits[0] / 0.7, -1)
        for place in np.flatnonzero(sample.trained) + len(sample.prompt):
            logprob = logprobs[place - 1, ids[place]]
            # On the policy itself the ratio is 1: the loss is -A, its gradient -A d logprob.
            total = total - sample.advantage * (logprob - logprob.detach()).exp()
            tokens += 1
    (total / tokens).backward()
    got = gradients(samples, sampling={"temperature": 0.7})
    for name, parameter in model.named_parameters():
        assert_same(got[name].double(), parameter.grad, **ROUNDING)


def test_one_micro_batch_equals_many():
    samples = tiny.samples()
    loss = {"kl": 0.1, "entropy": 0.1}
    whole, parts = (gradients(samples, loss=loss, batch={"tokens": tokens}) for tokens in (10_000, 16))
    assert len(pack(samples, 16)) > 4
    assert_same(whole, parts, **ROUNDING)


def test_padding_changes_no_tokens_weight():
    """Beside a long sample that is not trained on, every gradient stays what it was."""
    samples = tiny.samples()
    long = replace(
        samples[0], completion=np.ones(40, int), trained=np.zeros(40, bool), engine_logprobs=np.zeros(0)
    )
    assert_same(gradients(samples), gradients([*samples, long]), **ROUNDING)


def test_what_the_padding_holds_changes_nothing(monkeypatch):
    samples = tiny.samples()
    before = gradients(samples)
    monkeypatch.setattr("trainer.packing.PADDING", 17)
    assert_same(before, gradients(samples))


@pytest.mark.parametrize("steps_per_batch", [1, 3])
def test_the_same_samples_give_the_same_weights_bit_for_bit(steps_per_batch):
    sections = {"optimizer": {"steps_per_batch": steps_per_batch}, "batch": {"tokens": 40}}
    one, other = learner(**sections), learner(**sections)
    for seed in range(3):
        assert one.step(tiny.samples(seed=seed)) == other.step(tiny.samples(seed=seed))
    assert_same(one.publishable(), other.publishable())


def test_the_first_pass_gives_the_log_probs_that_a_pass_of_its_own_would_give():
    """With one optimizer step the detached log-probs of the training pass stand for the old ones."""
    trained = learner()
    (batch,) = pack(tiny.samples(), 10_000)
    with_gradient = trained._logits(batch)
    with torch.no_grad():
        assert_same(with_gradient.detach(), trained._logits(batch))


def test_old_log_probs_are_of_the_policy_before_the_first_optimizer_step(monkeypatch):
    trained, seen = learner(optimizer={"steps_per_batch": 3, "learning_rate": 1e-2}), []
    samples = tiny.samples()
    before = [trained._logprobs(*pack(samples[at : at + 4], 10_000)) for at in (0, 4, 8)]

    def spy(logprobs_N, old_logprobs_N, *rest):
        seen.append((logprobs_N.detach().clone(), old_logprobs_N.clone()))
        return intellect2(logprobs_N, old_logprobs_N, *rest)

    monkeypatch.setattr("trainer.learner.intellect2", spy)
    result = trained.step(samples)
    for expected, (_, old) in zip(before, seen, strict=True):
        assert_same(old, expected)
    assert_same(*seen[0])
    assert not torch.equal(*seen[2])
    assert result.metrics["optimizer_steps"] == 3
    assert result.metrics["kl"] > 0
    assert result.metrics["ratio_max"] > 1


def test_shares_are_equal_contiguous_and_complete():
    shares = learner(optimizer={"steps_per_batch": 4})._shares(range(10))
    assert [list(share) for share in shares] == [[0, 1], [2, 3, 4], [5, 6], [7, 8, 9]]


def test_too_few_samples_for_the_optimizer_steps_are_refused():
    with pytest.raises(ValueError, match="2 samples are too few for 3 optimizer steps"):
        learner(optimizer={"steps_per_batch": 3}).step(tiny.samples(2))


def test_training_raises_what_was_good_and_lowers_what_was_bad():
    trained, samples = learner(optimizer={"learning_rate": 3e-3}), tiny.samples()
    (batch,) = pack(samples, 10_000)
    before = trained._logprobs(batch)
    for _ in range(5):
        trained.step(samples)
    change = trained._logprobs(batch) - before
    assert (change * batch.advantages_N).mean() > 0


def test_the_entropy_bonus_raises_entropy():
    samples = [replace(sample, advantage=0.0) for sample in tiny.samples()]
    trained = learner(loss={"entropy": 1.0})
    entropies = [trained.step(samples).metrics["entropy"] for _ in range(5)]
    assert entropies == sorted(entropies)
    assert entropies[0] < entropies[-1]


def test_the_learning_rate_warms_up_linearly():
    trained = learner(optimizer={"learning_rate": 1e-3, "warmup_steps": 4})
    rates = [trained.step(tiny.samples()).metrics["learning_rate"] for _ in range(6)]
    assert rates == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3, 1e-3, 1e-3, 1e-3])


def test_the_gradient_is_clipped_to_its_norm():
    trained = learner(optimizer={"max_grad_norm": 0.01})
    assert trained.step(tiny.samples()).metrics["grad_norm"] > 0.01
    norm = math.sqrt(sum(parameter.grad.square().sum().item() for parameter in trained.parameters.values()))
    assert norm == pytest.approx(0.01, rel=1e-3)


def test_engine_mismatch_is_zero_for_the_trainers_own_log_probs_and_measures_what_is_added():
    trained, samples = learner(), tiny.samples()
    logprobs = [trained._logprobs(*pack([sample], 100)).numpy() for sample in samples]
    honest = [replace(sample, engine_logprobs=own) for sample, own in zip(samples, logprobs, strict=True)]
    shifted = [
        replace(sample, engine_logprobs=own + 0.5) for sample, own in zip(samples, logprobs, strict=True)
    ]
    metrics = learner().step(honest).metrics
    assert metrics["engine_mismatch"] == pytest.approx(0, abs=1e-5)
    assert metrics["engine_kl"] == pytest.approx(0, abs=1e-5)
    metrics = learner().step(shifted).metrics
    assert metrics["engine_mismatch"] == pytest.approx(0.5, rel=1e-4)
    assert metrics["engine_kl"] == pytest.approx(math.exp(-0.5) + 0.5 - 1, rel=1e-3)


def test_the_ratio_to_the_behaviour_policy_says_how_far_the_policy_has_moved():
    trained, samples = learner(loss={"ratio_to": "behaviour"}), tiny.samples()
    logprobs = [trained._logprobs(*pack([sample], 100)).numpy() for sample in samples]
    older = [
        replace(sample, engine_logprobs=own + 0.1) for sample, own in zip(samples, logprobs, strict=True)
    ]
    metrics = trained.step(older).metrics
    assert metrics["ratio_mean"] == pytest.approx(math.exp(-0.1), rel=1e-4)


@pytest.mark.parametrize("ratio_to", ["behaviour", "proximal"])
def test_a_claim_that_no_audit_confirmed_leaves_the_metrics_finite_and_the_update_alone(ratio_to):
    samples = [replace(sample, audited=False) for sample in tiny.samples()]
    forged = [replace(s, engine_logprobs=np.full(s.trained.sum(), -3e38, np.float32)) for s in samples]
    honest, cheated = learner(loss={"ratio_to": ratio_to}), learner(loss={"ratio_to": ratio_to})
    honest.step(samples)
    metrics = cheated.step(forged).metrics
    assert all(math.isfinite(value) for value in metrics.values())
    assert_same(honest.publishable(), cheated.publishable())


def everything(trained):
    state = trained.state()
    return {name: tensor.clone() for name, tensor in (state.weights | state.optimizer).items()}


@pytest.mark.parametrize(
    ("advantage", "reason"),
    [(math.nan, "the loss is nan"), (math.inf, "the loss is"), (1e30, "the gradient norm is inf")],
)
def test_a_step_that_is_not_finite_is_skipped_and_leaves_no_trace(advantage, reason):
    trained, samples = learner(), tiny.samples()
    trained.step(samples)
    before = everything(trained)
    result = trained.step([replace(samples[0], advantage=advantage), *samples[1:]])
    assert result.skipped.startswith(reason)
    assert not result.metrics
    assert_same(everything(trained), before)
    assert trained.optimizer_steps == 1
    untouched = learner()
    untouched.step(samples)
    untouched.step(samples)
    trained.step(samples)
    assert_same(everything(trained), everything(untouched))


def test_of_several_optimizer_steps_only_the_broken_one_is_left_out():
    trained, samples = learner(optimizer={"steps_per_batch": 3}), tiny.samples()
    result = trained.step([*samples[:5], replace(samples[5], advantage=math.nan), *samples[6:]])
    assert not result.skipped
    assert result.metrics["optimizer_steps"] == 2
    assert all(math.isfinite(value) for value in result.metrics.values())


def test_a_batch_without_a_trained_token_is_skipped():
    trained = learner()
    before = everything(trained)
    bare = [
        replace(s, trained=np.zeros(len(s.completion), bool), engine_logprobs=np.zeros(0))
        for s in tiny.samples()
    ]
    assert trained.step(bare).skipped == "no token of the batch is trained on"
    assert_same(everything(trained), before)


def test_an_empty_micro_batch_among_others_adds_nothing():
    samples = tiny.samples()
    bare = replace(
        samples[0], trained=np.zeros(len(samples[0].completion), bool), engine_logprobs=np.zeros(0)
    )
    budget = {"tokens": 16}
    got = gradients([*samples, *[bare] * 8], batch=budget)
    assert_same(got, gradients(samples, batch=budget), **ROUNDING)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_publishable_tensors_have_the_published_dtype_and_are_copies(dtype):
    trained = Learner(tiny.model().to(torch.bfloat16), tiny.config(policy={"model": "tiny", "dtype": dtype}))
    published = trained.publishable()
    assert {str(tensor.dtype) for tensor in published.values()} == {f"torch.{dtype}"}
    assert "lm_head.weight" not in published
    assert {parameter.dtype for parameter in trained.parameters.values()} == {torch.float32}
    kept = {name: tensor.clone() for name, tensor in published.items()}
    trained.step(tiny.samples())
    assert_same(published, kept)


def test_persistent_buffers_are_published_and_others_are_not():
    model = tiny.model()
    model.register_buffer("places", torch.arange(3))
    model.register_buffer("cache", torch.zeros(3), persistent=False)
    published = Learner(model, tiny.config(policy={"model": "tiny", "dtype": "bfloat16"})).publishable()
    assert published["places"].tolist() == [0, 1, 2]
    assert set(published) == set(dict(model.named_parameters())) | {"places"}


def test_a_restored_learner_goes_on_bit_for_bit():
    sections = {"optimizer": {"warmup_steps": 5, "steps_per_batch": 2}}
    straight, first, second = (learner(**sections) for _ in range(3))
    for seed in (0, 1):
        straight.step(tiny.samples(seed=seed))
        first.step(tiny.samples(seed=seed))
    second.step(tiny.samples(seed=9))
    second.restore(first.state())
    first.step(tiny.samples(seed=7))  # the restored state is the second learner's own
    for seed in (2, 3):
        assert straight.step(tiny.samples(seed=seed)) == second.step(tiny.samples(seed=seed))
    assert_same(everything(straight), everything(second))


def test_the_state_of_another_model_is_refused():
    other = learner()
    state = other.state()
    state.weights.pop("model.norm.weight")
    before = everything(other)
    with pytest.raises(ValueError, match="another model"):
        other.restore(state)
    assert_same(everything(other), before)
