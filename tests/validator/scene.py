"""A worker, a trainer and a validator on one run: a real policy from a real origin, rewards from a real process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

import environments
from bus import Bus, Record
from bus.testing import Run
from environments import Prompts, Scorer
from schemas import Completion, Rollouts, Sampling, Slashed, TaskGranted, Verdict
from tests.policy import tiny
from tests.validator import claims
from tests.validator.runs import published
from trainer.tiny import tokenizer
from validator.models import Models
from validator.validator import Validator
from workers.engine import GroupRequest
from workers.slices import Answer, slices
from workers.transformers_engine import TransformersEngine

ENVIRONMENT = {"letters": "abc", "min_length": 2, "max_length": 3, "count": 16}
POISON = tiny.VOCABULARY - 1
"""A token that is never drawn and whose embedding is NaN: what comes after it cannot be audited."""
KEY = bytes(32)


@dataclass
class Scene:
    """A worker with an engine, a trainer that grants, and a validator."""

    trainer: Bus
    worker: Bus
    engine: TransformersEngine
    validator: Validator

    async def granted(self, number: int) -> TaskGranted:
        random, engine = np.random.default_rng(number), self.engine
        grant = TaskGranted(
            worker=self.worker.public_key, task=str(number), attempt=0, environment="reverse-text", index=number,
            prompt=random.integers(3, POISON, 4), seeds=random.integers(0, 2**64, 2, dtype=np.uint64),
            sampling=Sampling(max_new_tokens=12, stop_ids=()),
            policy_version=engine.version, policy_digest=engine.digest, nonce=bytes(32), seconds=600.0,
        )  # fmt: skip
        await self.trainer.publish(grant)
        return grant

    async def sent(self, grant: TaskGranted, **changes: Any) -> Record[Rollouts]:
        """The worker's answer as it lies in the stream; `changes` are of the Rollouts."""
        (group,) = self.engine.generate([GroupRequest.of(grant)])
        ((proof, rollouts),) = slices(Answer(grant, group, self.engine.answer(grant.nonce)))
        await self.worker.publish(proof)
        sequence = await self.worker.publish(rollouts.replace(**changes))
        record = await self.worker.get(Rollouts, sequence)
        assert record is not None
        return record

    async def spoilt(
        self, grant: TaskGranted, change: Callable[[Completion], Completion]
    ) -> Record[Rollouts]:
        """An answer whose first completion is changed."""
        honest = await self.sent(grant)
        first, *others = honest.event.completions
        return await self.sent(grant, completions=(change(first), *others))

    async def verdict(self, grant: TaskGranted) -> Record[Verdict] | None:
        return await self.trainer.last(
            Verdict, worker=grant.worker, task=grant.task, attempt=0, slice=0, ordinal=0
        )

    async def outcomes(self, grant: TaskGranted) -> list[str]:
        record = await self.verdict(grant)
        assert record is not None
        return [judgement.outcome for judgement in record.event.judgements]

    async def slashed(self) -> list[Slashed]:
        return [record.event async for record in self.trainer.records(Slashed, live=False)]


def poisonous() -> PreTrainedModel:
    """A model that never draws POISON: the first hidden value is large everywhere, and its head weighs that alone."""
    made = tiny.model(tied=False)
    embedding, head = made.get_input_embeddings().weight, made.get_output_embeddings().weight
    with torch.no_grad():
        embedding[:, 0], head[:, 0] = 1.0, 0.0
        embedding[POISON], head[POISON, 0] = torch.nan, -10.0
    return made


@asynccontextmanager
async def scene(run: Run, folder: Path, model: PreTrainedModel, **audit: Any) -> AsyncIterator[Scene]:
    config = run.config(audit=audit)
    environment = environments.load("reverse-text", ENVIRONMENT)
    async with AsyncExitStack() as stack:
        policies, _ = await stack.enter_async_context(published(run, folder, model))
        trainer, worker, bus = [
            await stack.enter_async_context(run.connect(role)) for role in ("trainer", "worker", "validator")
        ]
        scorer = Scorer("reverse-text", ENVIRONMENT)
        stack.push_async_exit(scorer)  # its process starts with the first text
        judge = Validator(
            config, bus, policies, Models(policies, "float32", keep=1), scorer, Prompts(environment, tokenizer()),
            tiny.VOCABULARY, KEY,
        )  # fmt: skip
        engine = await asyncio.to_thread(claims.engine, folder / "engine", model)
        yield Scene(trainer, worker, engine, judge)
