"""max_lag = 0 with one worker is the synchronous algorithm, bit for bit: here it is written as one plain loop."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

import environments
import policy
from bus.server import Server
from environments import Prompts
from schemas import Sampling
from schemas.config import Config
from tests.stack.local import configure, finished, local, read
from trainer.advantages import group_advantages, has_signal
from trainer.curriculum import Curriculum
from trainer.learner import Learner
from trainer.packing import Sample
from trainer.secret import Secret
from workers.engine import Generated, GroupRequest
from workers.transformers_engine import TransformersEngine


def plain_loop(config: Config, secret: Secret, scratch: Path) -> list[str]:
    """The digests of all policies: sample until enough groups have signal, train on them, repeat."""
    environment = environments.load(config.environment.name, config.environment.arguments)
    indices, _ = environments.split(environment, config.environment.held_out, config.run.seed)
    curriculum = Curriculum(indices, config.run.seed)
    template = Path(config.policy.model)
    prompts = Prompts(environment, policy.tokenizer(template))
    learner = Learner(policy.load(template, "float32"), config)
    engine = TransformersEngine(config.policy.dtype)
    sampling = Sampling(max_new_tokens=config.sampling.max_new_tokens, stop_ids=prompts.stop_ids)
    numbers = itertools.count()
    digests = [policy.digest(learner.publishable())]
    for version in range(config.run.steps):
        policy.save(learner.publishable(), template, scratch / str(version))
        engine.load(scratch / str(version), version, digests[-1])
        samples: list[Sample] = []
        while len(samples) < config.batch.groups * config.batch.group_size:
            number = next(numbers)
            index = curriculum.index(number)
            seeds = secret.seeds(str(number), 0, version, config.batch.group_size)
            (group,) = engine.generate([GroupRequest(prompts.ids(index), seeds, sampling)])
            task = environment.tasks()[index]
            rewards = [environment.reward(task, prompts.text(made.ids.tolist())) for made in group]
            if has_signal(rewards):
                advantages = group_advantages(rewards).tolist()
                samples += [sample(prompts.ids(index), *one) for one in zip(group, advantages, strict=True)]
        learner.step(samples)
        digests.append(policy.digest(learner.publishable()))
    return digests


def sample(prompt: np.ndarray, made: Generated, advantage: float) -> Sample:
    return Sample(prompt, made.ids, np.ones(len(made.ids), bool), made.logprobs, advantage)


async def test_lag_zero_equals_the_plain_loop_bit_for_bit(nats_server: Server, tmp_path: Path) -> None:
    config = configure(nats_server.url, tmp_path, run={"name": "sync", "steps": 4}, lag={"max_lag": 0})
    async with local(config, tmp_path) as running:
        running.trainer()
        running.relays()
        running.validator()
        running.worker(batch=1)  # one group at a time: the batch shapes of the plain loop
        await finished(running)
    view = await read(config)
    assert set(view.lags) == {0}
    secret = Secret.load_or_create(tmp_path / "trainer" / "secret")
    assert [published.digest for published in view.policies] == plain_loop(config, secret, tmp_path / "plain")
    assert len({published.digest for published in view.policies}) == config.run.steps + 1
