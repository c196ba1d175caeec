"""Puts rollout workers and evaluators together on the component runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

import environments
import policy
from bus import Component
from bus.tasks import beside, together
from environments import Environment, Prompts, Scorer
from relay.policies import Policies
from schemas import EvalCompleted
from workers.dishonest import Dishonest
from workers.evaluator import Evaluator
from workers.rollout import RolloutWorker
from workers.transformers_engine import TransformersEngine


async def serve(
    url: str,
    run: str,
    keys: Path | None,
    name: str,
    batch: int,
    threads: int,
    directory: Path,
    dishonest: bool,
) -> None:
    """Generate rollouts for a run until it has ended. directory: where weights are kept. Raises BusError."""
    if threads:
        torch.set_num_threads(threads)
    component = Component(kind="worker", name=name, url=url, run=run, keys=keys)
    workers: list[RolloutWorker] = []

    @component.task
    async def work(component: Component) -> None:
        config = component.config
        policies = Policies(component.bus, directory, keep=config.lag.max_lag + 2)
        engine = TransformersEngine(config.policy.dtype)
        worker = RolloutWorker(component, policies, Dishonest(engine) if dishonest else engine, batch)
        workers.append(worker)
        await together(policies.follow(), worker.run())

    @component.on_stop
    async def give_back(component: Component) -> None:
        for worker in workers:
            await worker.stop()

    await component.serve()


async def serve_evaluator(
    url: str, run: str, keys: Path | None, name: str, threads: int, directory: Path
) -> None:
    """Measure the policies of a run on its held-out tasks until the last one is measured. Raises BusError, ConfigError."""
    if threads:
        torch.set_num_threads(threads)
    component = Component(kind="evaluator", name=name, url=url, run=run, keys=keys, ends_with_run=False)

    @component.task
    async def evaluate(component: Component) -> None:
        await component.bus.require(EvalCompleted)
        config = component.config
        environment = environments.load(config.environment.name, config.environment.arguments)
        _, held_out = environments.split(environment, config.environment.held_out, config.run.seed)
        policies = Policies(component.bus, directory, keep=2)
        indices = held_out[: config.evaluation.prompts]
        await beside(_evaluate(component, policies, environment, indices), policies.follow())

    await component.serve()


async def _evaluate(
    component: Component, policies: Policies, environment: Environment, indices: Sequence[int]
) -> None:
    config = component.config
    component.waiting("for the first policy")
    template = await policies.folder((await policies.after(-1)).version)
    prompts = Prompts(environment, policy.tokenizer(template))
    async with Scorer(config.environment.name, config.environment.arguments) as scorer:
        engine = TransformersEngine(config.policy.dtype)
        await Evaluator(component, policies, engine, prompts, scorer, indices).run()
