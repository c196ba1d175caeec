"""Honest rollouts of one model on this machine, judged as a validator would: what `cairn calibrate` measures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count

import numpy as np

import environments
import policy
from environments import Prompts
from schemas import Check, TaskGranted
from schemas.config import Bands, Config
from validator.audit import Claim, audit
from validator.calibration import bands
from workers.engine import Generated, GroupRequest
from workers.slices import completion
from workers.transformers_engine import TransformersEngine

GROUP_SIZE = 4
NOBODY = "U" + "A" * 55


def measure(config: Config, batches: Sequence[int], say: Callable[[int], None]) -> Bands:
    """Bands from groups generated 1, 8, 32... at a time and audited by a model of its own.

    say: called with each of `batches` when it begins.
    """
    folder = policy.folder(config.policy.model)
    environment = environments.load(config.environment.name, config.environment.arguments)
    prompts = Prompts(environment, policy.tokenizer(folder))
    model = policy.load(folder, config.policy.dtype, policy.device())
    digest = policy.digest(model)
    engine = TransformersEngine(config.policy.dtype)
    engine.load(folder, 0, digest)
    numbers = count()
    audits: list[list[Check]] = []
    for batch in batches:
        say(batch)
        grants = [_grant(config, prompts, next(numbers), digest) for _ in range(batch)]
        made = engine.generate([GroupRequest.of(grant) for grant in grants])
        claims = [claim for grant, group in zip(grants, made, strict=True) for claim in _claims(grant, group)]
        audits += audit(model, claims, config.audit.bands, config.batch.tokens)
    return bands(audits)


def _grant(config: Config, prompts: Prompts, number: int, digest: str) -> TaskGranted:
    index = number % len(prompts)
    return TaskGranted(
        worker=NOBODY,
        task=str(number),
        attempt=0,
        environment=config.environment.name,
        index=index,
        prompt=prompts.ids(index),
        seeds=np.random.default_rng(number).integers(0, 2**63, GROUP_SIZE, dtype=np.uint64),
        sampling=prompts.sampling(config.sampling),
        policy_version=0,
        policy_digest=digest,
        nonce=bytes(32),
        seconds=config.sampling.seconds,
    )


def _claims(grant: TaskGranted, group: list[Generated]) -> Iterator[Claim]:
    for index, made in enumerate(group):
        yield Claim(grant, completion(grant, index, made), made.proof)
