"""Completions of a tiny random policy with some entropy, honest and not, as claims to be audited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

import policy
from schemas import Completion, Sampling, TaskGranted
from tests.trainer import events, tiny
from validator.audit import Claim
from workers.engine import Generated, GroupRequest
from workers.slices import completion
from workers.transformers_engine import TransformersEngine

LENGTH = 64
GROUP_SIZE = 4
VOCABULARY = tiny.VOCABULARY

Ids = NDArray[np.uint32]


def engine(directory: Path, model: PreTrainedModel) -> TransformersEngine:
    model.save_pretrained(directory)
    made = TransformersEngine(str(model.dtype).removeprefix("torch."))
    made.load(directory, 0, policy.digest(model))
    return made


def grant(number: int, temperature: float = 1.0, stop_ids: tuple[int, ...] = ()) -> TaskGranted:
    """A prompt of its own length, seeds of its own; without stop ids every completion has LENGTH tokens."""
    random = np.random.default_rng(number)
    sampling = Sampling(temperature=temperature, max_new_tokens=LENGTH, stop_ids=stop_ids)
    return events.grant(number).replace(
        prompt=random.integers(0, VOCABULARY, 2 + number % 5),
        seeds=random.integers(0, 2**64, GROUP_SIZE, dtype=np.uint64),
        sampling=sampling,
    )


def generate(by: TransformersEngine, grants: Sequence[TaskGranted]) -> list[Claim]:
    """What an engine answers to these grants, all in one batch."""
    groups = by.generate([GroupRequest.of(grant) for grant in grants])
    return [
        Claim(grant, completion(grant, index, made), made.proof)
        for grant, group in zip(grants, groups, strict=True)
        for index, made in enumerate(group)
    ]


def prefilled(model: PreTrainedModel, claim: Claim, ids: Ids, finish: str = "length") -> Claim:
    """Tokens from anywhere, with the proof and the log-probs that the right policy gives them: all else is true."""
    (hidden,) = policy.prefill(model, [claim.grant.prompt], [ids])
    temperatures = [claim.grant.sampling.temperature]
    (own,) = policy.replay(model.get_output_embeddings(), [hidden], [ids], [claim.seed], temperatures)
    (proof,) = policy.toploc.build([hidden])
    made = Generated(ids, own.logprobs.numpy(), proof, finish)
    return Claim(claim.grant, completion(claim.grant, claim.completion.index, made), proof)


def drifted(model: PreTrainedModel, by: float) -> PreTrainedModel:
    """The policy some training steps ago: every weight off by this share of its tensor's spread."""
    other = tiny.model()
    other.load_state_dict(model.state_dict())
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in other.parameters():
            spread = weight.std() if weight.numel() > 1 else weight.abs()
            weight.add_(by * spread * torch.randn(weight.shape, generator=random))
    return other


def claiming(claim: Claim, change: Callable[[NDArray[np.float32]], None]) -> Claim:
    """The same completion with other log-probs."""
    logprobs = claim.completion.logprobs.copy()
    change(logprobs)
    made = Generated(claim.completion.ids, logprobs, claim.proof, claim.completion.finish)
    return Claim(claim.grant, _again(claim, made), claim.proof)


def _again(claim: Claim, made: Generated) -> Completion:
    return completion(claim.grant, claim.completion.index, made)
