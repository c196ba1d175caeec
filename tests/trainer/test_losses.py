import math

import pytest
import torch

from policy.sampling import token_logprobs
from schemas.config import Loss
from trainer.losses import entropy, intellect2, k3

CONFIG = Loss(kl=0.05, entropy=0.01)


def by_hand(logprob, old, advantage, entropy, config):
    """One token's loss in float64, straight from the recipe."""
    ratio = math.exp(logprob - old)
    capped = min(max(ratio, 0.0), config.delta)
    clipped = min(max(capped, 1 - config.epsilon), 1 + config.epsilon)
    kl = math.exp(old - logprob) - (old - logprob) - 1
    return max(-capped * advantage, -clipped * advantage) + config.kl * kl - config.entropy * entropy


def tokens(ratios, advantages, dtype=torch.float64):
    """(logprobs, old logprobs, advantages, entropies) of one token for each ratio and advantage."""
    old = torch.linspace(-3, -0.5, len(ratios), dtype=dtype)
    new = old + torch.tensor(ratios, dtype=dtype).log()
    return new.requires_grad_(), old, torch.tensor(advantages, dtype=dtype), torch.full_like(old, 0.7)


RATIOS = [0.3, 0.79, 0.81, 1.0, 1.19, 1.21, 3.9, 4.1, 50.0]


@pytest.mark.parametrize("advantage", [1.5, -1.5, 0.0])
@pytest.mark.parametrize("ratio", RATIOS)
def test_one_token_equals_the_hand_computation(ratio, advantage):
    new, old, advantages, entropies = tokens([ratio], [advantage])
    loss, _ = intellect2(new, old, advantages, entropies, 1, CONFIG)
    assert loss.item() == pytest.approx(by_hand(new.item(), old.item(), advantage, 0.7, CONFIG), rel=1e-12)


@pytest.mark.parametrize(
    ("ratio", "advantage", "slope"),
    # The gradient in logprob is -ratio * advantage, or 0 where a bound holds.
    [
        (1.0, 2.0, -2.0), (1.0, -2.0, 2.0), (1.3, 2.0, 0.0), (0.5, 2.0, -1.0),
        (0.5, -2.0, 0.0), (3.0, -2.0, 6.0), (5.0, -2.0, 0.0),
    ],
)  # fmt: skip
def test_the_gradient_stops_where_a_bound_holds(ratio, advantage, slope):
    new, old, advantages, entropies = tokens([ratio], [advantage])
    intellect2(new, old, advantages, entropies, 1, Loss())[0].backward()
    assert new.grad.item() == pytest.approx(slope, rel=1e-9)


def test_the_gradient_equals_finite_differences():
    new, old, advantages, entropies = tokens(RATIOS * 2, [1.5] * len(RATIOS) + [-0.5] * len(RATIOS))
    entropies.requires_grad_()

    def loss(logprobs, entropies):
        return intellect2(logprobs, old, advantages, entropies, 7, CONFIG)[0]

    assert torch.autograd.gradcheck(loss, (new, entropies), eps=1e-7)


def test_the_kl_term_carries_a_gradient():
    new, old, _, _ = tokens([0.5, 2.0], [0.0, 0.0])
    k3(new, old).sum().backward()
    # d/dlp [exp(old - lp) - (old - lp) - 1] = 1 - 1/ratio
    torch.testing.assert_close(new.grad, torch.tensor([-1.0, 0.5], dtype=torch.float64))


def test_k3_estimates_the_divergence():
    torch.manual_seed(0)
    policy, reference = torch.randn(2, 5, dtype=torch.float64).log_softmax(-1)
    exact = (policy.exp() * (policy - reference)).sum()
    # The expectation under the policy of the estimator is the divergence itself.
    torch.testing.assert_close((policy.exp() * k3(policy, reference)).sum(), exact)


def test_no_token_gives_loss_zero_and_zero_gradients():
    logits = torch.zeros(3, 4, requires_grad=True)
    none = logits[:0]
    logprobs = token_logprobs(none, torch.zeros(0, dtype=torch.int64), 1.0)
    loss, metrics = intellect2(logprobs, logprobs.detach(), torch.zeros(0), entropy(none, 1.0), 0, CONFIG)
    loss.backward()
    assert loss.item() == 0
    assert logits.grad.tolist() == torch.zeros(3, 4).tolist()
    assert all(value.item() == 0 for value in metrics.values())


@pytest.mark.parametrize("log_ratio", [50.0, -50.0, 200.0, -200.0, 3e38, -3e38])
@pytest.mark.parametrize("advantage", [1.0, -1.0, 0.0])
def test_huge_log_ratios_stay_finite(log_ratio, advantage):
    old = torch.tensor([-1.0])
    new = (old + log_ratio).requires_grad_()
    loss, metrics = intellect2(new, old, torch.tensor([advantage]), torch.tensor([0.5]), 1, CONFIG)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(new.grad).all()
    assert all(torch.isfinite(value) for value in metrics.values())


def test_delta_bounds_the_loss_of_a_negative_advantage():
    new, old, advantages, entropies = tokens([1000.0], [-1.0])
    assert intellect2(new, old, advantages, entropies, 1, Loss())[0].item() == pytest.approx(4.0)


def test_micro_batches_add_up_to_the_whole():
    whole = tokens(RATIOS * 2, [1.5] * len(RATIOS) + [-0.5] * len(RATIOS))
    loss, metrics = intellect2(*whole, len(whole[0]), CONFIG)
    parts = [
        intellect2(*(tensor[at : at + 5] for tensor in whole), len(whole[0]), CONFIG)
        for at in range(0, 18, 5)
    ]
    torch.testing.assert_close(sum(part for part, _ in parts), loss)
    for name, value in metrics.items():
        combine = max if name.endswith("_max") else sum
        torch.testing.assert_close(combine(part[name] for _, part in parts), value)


def test_metrics_count_what_each_bound_holds():
    new, old, advantages, entropies = tokens(
        [0.5, 0.5, 2.0, 2.0, 9.0, 1.0], [-1.0, 1.0, -1.0, 1.0, -1.0, 1.0]
    )
    _, metrics = intellect2(new, old, advantages, entropies, 6, Loss())
    assert metrics["clip_low"].item() == pytest.approx(1 / 6)
    assert metrics["clip_high"].item() == pytest.approx(1 / 6)
    assert metrics["clip_delta"].item() == pytest.approx(1 / 6)
    assert metrics["ratio_mean"].item() == pytest.approx(15 / 6)
    assert metrics["ratio_max"].item() == pytest.approx(9.0)
    assert metrics["entropy"].item() == pytest.approx(0.7)


def test_entropy_and_logprobs_equal_float64():
    torch.manual_seed(0)
    logits, temperature = torch.randn(6, 11) * 5, 0.7
    exact = torch.log_softmax(logits.double() / temperature, -1)
    torch.testing.assert_close(
        entropy(logits, temperature).double(), -(exact.exp() * exact).sum(-1), rtol=1e-5, atol=1e-6
    )
    ids = torch.arange(6)
    torch.testing.assert_close(
        token_logprobs(logits, ids, temperature).double(), exact[ids, ids], rtol=1e-5, atol=1e-5
    )


def test_entropy_is_its_logarithm_for_equal_logits():
    assert entropy(torch.zeros(1, 76), 1.0).item() == pytest.approx(math.log(76))
