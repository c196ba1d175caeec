"""The policy loss, from log-probs to one number; pure functions, no model and no batch layout.

It sees only the tokens that are trained on, as flat tensors [N]; padding, prompts and environment tokens
never get here. Formulas, sources and edge cases: docs/losses.md.

Shape suffixes: N trained tokens of a micro-batch, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from schemas.config import Loss

LOG_RATIO_MAX = 20.0
"""Log-ratios are clamped to +-this before exp: exp(20) = 4.9e8, so that no ratio, square or sum overflows."""


def intellect2(
    logprobs_N: Tensor,
    old_logprobs_N: Tensor,
    advantages_N: Tensor,
    entropies_N: Tensor,
    tokens: int,
    config: Loss,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Two-sided clipped policy gradient with KL and entropy terms (INTELLECT-2, arXiv 2505.07291).

    Args:
        logprobs_N: log-probs of the trained tokens under the current policy; carries the gradient.
        old_logprobs_N: the same under the policy that ratio and KL refer to, without gradient.
        advantages_N: the advantage of each token's completion.
        entropies_N: entropy, in nats, of each token's sampling distribution.
        tokens: trained tokens of the whole optimizer step, so that the losses of its micro-batches add up
            to the loss of one large batch, whatever the split.

    Returns the loss (0 with zero gradients for N = 0) and metrics. A metric adds up over micro-batches to
    its mean over all tokens, except those named `*_max`, whose maximum is the whole's.
    """
    ratio_N = log_ratio(logprobs_N, old_logprobs_N).exp()
    capped_N = ratio_N.clamp(max=config.delta)
    clipped_N = capped_N.clamp(1 - config.epsilon, 1 + config.epsilon)
    policy_N = torch.maximum(-capped_N * advantages_N, -clipped_N * advantages_N)
    kl_N = k3(logprobs_N, old_logprobs_N)
    loss_N = policy_N + config.kl * kl_N - config.entropy * entropies_N

    rises_N, falls_N = advantages_N > 0, advantages_N < 0
    totals = {
        "ratio_mean": ratio_N,
        "clip_low": falls_N & (ratio_N < 1 - config.epsilon),
        "clip_high": rises_N & (ratio_N > 1 + config.epsilon),
        "clip_delta": falls_N & (ratio_N > config.delta),
        "kl": kl_N,
        "entropy": entropies_N,
    }
    metrics = {name: value_N.detach().sum() / max(tokens, 1) for name, value_N in totals.items()}
    metrics["ratio_max"] = ratio_N.detach().max() if len(ratio_N) else ratio_N.new_zeros(())
    return loss_N.sum() / max(tokens, 1), metrics


def log_ratio(logprobs_N: Tensor, reference_logprobs_N: Tensor) -> Tensor:
    """log(policy / reference) of each token, shape [N], within +-LOG_RATIO_MAX; no gradient beyond that."""
    return (logprobs_N - reference_logprobs_N).clamp(-LOG_RATIO_MAX, LOG_RATIO_MAX)


def k3(logprobs_N: Tensor, reference_logprobs_N: Tensor) -> Tensor:
    """KL(policy || reference) of each token, shape [N]: exp(d) - d - 1 with d = reference - policy.

    Never negative, and unbiased for tokens that the policy sampled (GRPO, arXiv 2402.03300, equation 4;
    http://joschu.net/blog/kl-approx.html).
    """
    difference_N = log_ratio(reference_logprobs_N, logprobs_N)
    return difference_N.exp() - difference_N - 1


def entropy(logits_NV: Tensor, temperature: float) -> Tensor:
    """Entropy in nats of the sampling distribution softmax(logits / temperature), shape [N]."""
    logprobs_NV = torch.log_softmax(logits_NV / temperature, dim=-1)
    return -(logprobs_NV.exp() * logprobs_NV).sum(dim=-1)
