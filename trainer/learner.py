"""The learner: one batch of samples -> k optimizer steps on the policy. Knows no events and no files.

Master weights and optimizer state are float32, whatever dtype is published. The model stays in eval mode:
dropout would make the importance ratio noise. On CPU the same samples in the same order, with the same number
of threads, give the same weights bit for bit.

Shape suffixes: B samples, T inputs, H hidden size, N trained tokens, V vocabulary.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from policy.sampling import token_logprobs
from schemas.config import Config
from trainer.losses import entropy, intellect2, k3, log_ratio
from trainer.packing import MicroBatch, Sample, pack

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class StepResult:
    """metrics: means over the trained tokens of the batch, and counts. skipped: why the policy did not change, or ""."""

    metrics: dict[str, float] = field(default_factory=dict)
    skipped: str = ""


@dataclass(frozen=True)
class LearnerState:
    """All that a learner needs to go on bit for bit.

    weights: parameters by name, float32. optimizer: `<parameter>.<quantity>` by name. optimizer_steps: done so far.
    """

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    optimizer_steps: int


class Learner:
    """Trains `model`, a transformers causal language model, in place."""

    def __init__(self, model: Any, config: Config) -> None:
        self.model = model.float().eval().requires_grad_(True)
        self.config = config
        self.parameters: dict[str, torch.nn.Parameter] = dict(model.named_parameters())
        self.optimizer_steps = 0
        settings = config.optimizer
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(),
            lr=settings.learning_rate,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            fused=True,
        )

    def step(self, samples: Sequence[Sample]) -> StepResult:
        """Train on one batch: `steps_per_batch` optimizer steps, each on an equal, contiguous share of it.

        Old log-probs are the trainer's own, of the weights before the first optimizer step. For the first share those
        are the log-probs of its training pass itself; only the others need a pass of their own. An optimizer
        step whose loss or gradient is not finite is left out and leaves no trace; `skipped` says why when
        none was applied. Raises ValueError for fewer samples than optimizer steps.
        """
        shares = [pack(share, self.config.batch.tokens) for share in self._shares(samples)]
        old_logprobs: list[list[Tensor | None]] = [[None] * len(shares[0])]
        old_logprobs += [[self._logprobs(batch) for batch in share] for share in shares[1:]]
        results = [self._optimizer_step(*both) for both in zip(shares, old_logprobs, strict=True)]
        applied = [result for result in results if not result.skipped]
        if not applied:
            return results[0]
        metrics = _average([result.metrics for result in applied])
        return StepResult({**metrics, "optimizer_steps": len(applied)})

    def publishable(self) -> dict[str, Tensor]:
        """Copies of parameters and persistent buffers by name, tied once; floating ones in the published dtype."""
        dtype, persistent = DTYPES[self.config.policy.dtype], self.model.state_dict().keys()
        buffers = {name: buffer for name, buffer in self.model.named_buffers() if name in persistent}
        return {
            name: tensor.detach().to(dtype if tensor.is_floating_point() else tensor.dtype, copy=True)
            for name, tensor in (self.parameters | buffers).items()
        }

    def state(self) -> LearnerState:
        """The state as views of the live tensors: save it before the next step."""
        optimizer = {
            f"{name}.{quantity}": value
            for name, parameter in self.parameters.items()
            for quantity, value in self.optimizer.state[parameter].items()
        }
        weights = {name: weight.detach() for name, weight in self.parameters.items()}
        return LearnerState(weights, optimizer, self.optimizer_steps)

    def restore(self, state: LearnerState) -> None:
        """Go on from `state`. Raises ValueError when it is of another model, and then changes nothing."""
        shapes = {name: tuple(weight.shape) for name, weight in self.parameters.items()}
        if shapes != {name: tuple(weight.shape) for name, weight in state.weights.items()}:
            raise ValueError("the saved weights are of another model; give the model that the run began with")
        self.optimizer.state.clear()
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(state.weights[name])
        for name, value in state.optimizer.items():
            parameter_name, quantity = name.rsplit(".", 1)
            self.optimizer.state[self.parameters[parameter_name]][quantity] = value.clone()
        self.optimizer_steps = state.optimizer_steps

    def _shares(self, samples: Sequence[Sample]) -> list[Sequence[Sample]]:
        count = self.config.optimizer.steps_per_batch
        if len(samples) < count:
            raise ValueError(
                f"{len(samples)} samples are too few for {count} optimizer steps (steps_per_batch)"
            )
        edges = [len(samples) * at // count for at in range(count + 1)]
        return [samples[start:stop] for start, stop in itertools.pairwise(edges)]

    def _optimizer_step(self, batches: list[MicroBatch], old_logprobs: list[Tensor | None]) -> StepResult:
        tokens = sum(len(batch.targets_N) for batch in batches)
        if not tokens:
            return StepResult(skipped="no token of the batch is trained on")
        self.optimizer.zero_grad()
        metrics = _total(self._backward(*both, tokens) for both in zip(batches, old_logprobs, strict=True))
        norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.config.optimizer.max_grad_norm)
        for name, value in (("loss", metrics["loss"]), ("gradient norm", norm)):
            if not torch.isfinite(value):
                return StepResult(skipped=f"the {name} is {value:g}")
        rate = self._learning_rate()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer_steps += 1
        values = {name: float(value) for name, value in metrics.items()}
        return StepResult({**values, "grad_norm": float(norm), "learning_rate": rate, "tokens": tokens})

    def _backward(self, batch: MicroBatch, old_logprobs_N: Tensor | None, tokens: int) -> dict[str, Tensor]:
        """Add this micro-batch's gradient; returns its part of the optimizer step's metrics."""
        config, temperature = self.config.loss, self.config.sampling.temperature
        logits_NV = self._logits(batch)
        logprobs_N = token_logprobs(logits_NV, batch.targets_N, temperature)
        entropies_N = entropy(logits_NV if config.entropy else logits_NV.detach(), temperature)
        if old_logprobs_N is None:
            old_logprobs_N = logprobs_N.detach()
        mismatch = engine_mismatch(batch.engine_logprobs_N, old_logprobs_N, tokens)
        if config.ratio_to == "behaviour":
            old_logprobs_N = torch.where(batch.audited_N, batch.engine_logprobs_N, old_logprobs_N)
        loss, metrics = intellect2(
            logprobs_N, old_logprobs_N, batch.advantages_N, entropies_N, tokens, config
        )
        torch.autograd.backward(loss)
        return {"loss": loss.detach(), **metrics, **mismatch}

    @torch.no_grad()
    def _logprobs(self, batch: MicroBatch) -> Tensor:
        return token_logprobs(self._logits(batch), batch.targets_N, self.config.sampling.temperature)

    def _logits(self, batch: MicroBatch) -> Tensor:
        """Logits [N, V] of the rows that produced trained tokens; the head never sees another row."""
        hidden_BTH: Tensor = self.model.base_model(
            input_ids=batch.inputs_BT, use_cache=False
        ).last_hidden_state
        logits_NV: Tensor = self.model.get_output_embeddings()(hidden_BTH.flatten(0, 1)[batch.rows_N])
        return logits_NV

    def _learning_rate(self) -> float:
        """Linear warm-up: the first optimizer step has 1/warmup_steps of the rate, then it stays."""
        settings = self.config.optimizer
        return settings.learning_rate * min(1.0, (self.optimizer_steps + 1) / max(1, settings.warmup_steps))


def engine_mismatch(engine_logprobs_N: Tensor, old_logprobs_N: Tensor, tokens: int) -> dict[str, Tensor]:
    """How far the worker's claims are from the trainer's log-probs: mean absolute difference, and KL(engine || trainer).

    Both in nats, summed over the micro-batch and divided by `tokens`. They hold the policy lag as well as the
    difference of the two implementations; with lag 0 only the latter. A claim is any number that float32
    holds: one token counts for LOG_RATIO_MAX at most.
    """
    difference_N = log_ratio(engine_logprobs_N, old_logprobs_N).abs()
    kl_N = k3(engine_logprobs_N, old_logprobs_N)
    return {"engine_mismatch": difference_N.sum() / tokens, "engine_kl": kl_N.sum() / tokens}


def _total(parts: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Metrics of micro-batches -> of their optimizer step."""
    whole: dict[str, Tensor] = {}
    for part in parts:
        for name, value in part.items():
            combine = torch.maximum if name.endswith("_max") else torch.add
            whole[name] = combine(whole[name], value) if name in whole else value
    return whole


def _average(parts: list[dict[str, float]]) -> dict[str, float]:
    """Metrics of optimizer steps -> of their batch."""
    whole = {}
    for name in parts[0]:
        values = [part[name] for part in parts]
        whole[name] = max(values) if name.endswith("_max") else sum(values) / len(values)
    return whole
