"""Puts a validator together on the component runtime."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import torch
from blake3 import blake3

import environments
import policy
from bus import Component, Record
from bus.tasks import together
from environments import Prompts, Scorer
from relay.policies import Policies
from schemas import AuditKeyCommitted, Rollouts, Verdict
from validator.models import Models
from validator.validator import Validator

SLICES_AT_ONCE = 16
"""Judged together: one prefill for all of them."""
MODELS = 2
"""Policies held in memory at most: nearly all slices are of the newest or of the one before it, and an older one
costs an exchange of weights."""
ACK_SECONDS = 10.0
"""After so long the slices of a validator that died are judged by another, or by itself once it is back."""


async def serve(url: str, run: str, keys: Path | None, name: str, threads: int, directory: Path) -> None:
    """Judge the slices of a run until it has ended. directory: where weights are kept.

    Raises BusError, ConfigError.
    """
    if threads:
        torch.set_num_threads(threads)
    component = Component(kind="validator", name=name, url=url, run=run, keys=keys)
    ready: asyncio.Future[Validator] = asyncio.get_running_loop().create_future()

    @component.task
    async def prepare(component: Component) -> None:
        await component.bus.require(Verdict)
        policies = Policies(component.bus, directory, keep=component.config.relay.keep)
        await together(policies.follow(), _prepare(component, policies, ready))

    @component.on(Rollouts, batch=SLICES_AT_ONCE, ack_wait=ACK_SECONDS, records=True)
    async def judge(records: list[Record[Rollouts]]) -> None:
        validator = await asyncio.shield(ready)
        component.doing(f"judging {len(records)} slices")
        await validator.handle(records)
        component.waiting("for rollouts")

    await component.serve()


async def _prepare(component: Component, policies: Policies, ready: asyncio.Future[Validator]) -> None:
    """Make the validator once there is a policy, and keep its scorer alive."""
    config = component.config
    component.waiting("for the first policy")
    template = await policies.folder((await policies.after(-1)).version)
    environment = environments.load(config.environment.name, config.environment.arguments)
    prompts = Prompts(environment, policy.tokenizer(template))
    audit_key = secrets.token_bytes(32)
    commitment = AuditKeyCommitted(node=component.public_key, commitment=blake3(audit_key).digest())
    await component.bus.publish(commitment)
    async with Scorer(config.environment.name, config.environment.arguments) as scorer:
        models = Models(policies, config.policy.dtype, keep=min(MODELS, config.lag.max_lag + 1))
        vocabulary = policy.vocabulary(template)
        ready.set_result(
            Validator(config, component.bus, policies, models, scorer, prompts, vocabulary, audit_key)
        )
        component.waiting("for rollouts")
        await asyncio.Event().wait()
