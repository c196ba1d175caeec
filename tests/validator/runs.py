"""Policies published in a real run: an origin, announcements, and what follows them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from transformers import PreTrainedModel

import policy
from bus.testing import Run
from relay.policies import Policies
from relay.publication import upload
from schemas import PolicyPublished
from tests.relay.nodes import TRAINER, Node, origin


@asynccontextmanager
async def published(run: Run, folder: Path, *models: PreTrainedModel) -> AsyncIterator[tuple[Policies, Node]]:
    """Each model as a version, from 0, at an origin below `folder`; and Policies that follow them."""
    async with origin(folder / "origin", keep=8) as top, run.connect("trainer") as bus:
        for version, model in enumerate(models):
            await announce(run, top, folder, version, model, policy.digest(model))
        policies = Policies(bus, folder / "weights", keep=8)
        following = asyncio.create_task(policies.follow())
        try:
            await policies.after(len(models) - 2)
            yield policies, top
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def announce(
    run: Run, top: Node, folder: Path, version: int, model: PreTrainedModel, digest: str
) -> None:
    """Upload a model and announce it with this digest, true or not."""
    saved = folder / f"version-{version}"
    model.save_pretrained(saved)
    manifest = await upload(top.url, saved, version, digest, 1 << 16, TRAINER)
    event = PolicyPublished(lineage=0, version=version, digest=digest, manifest=manifest, holders=(top.url,))
    async with run.connect("trainer") as bus:
        await bus.publish(event)
