"""The first event of a run, and the refusal to continue one under another configuration."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import structlog

from bus import Bus, Writer
from schemas import RunCreated, RunEnded
from schemas.config import Config, ConfigError
from trainer.secret import Secret

log = structlog.get_logger()

MAY_CHANGE = frozenset({"bus", "checkpoint", "relay", "audit", "evaluation"})
"""Sections that a resumed run may change; so may run.steps. The rest decides what the numbers mean."""


async def create_or_resume(bus: Bus, config: Config, secret: Secret) -> bool:
    """Make the run's streams and its RunCreated where they are missing. False when the run has ended already.

    So a trainer that is killed after its last event and started again ends well. Raises ConfigError when the
    run was created with another configuration or secret, or has finished with fewer steps than are wanted now.
    """
    await bus.create_streams(config.bus)
    await bus.claim()
    created, ended = await _existing(bus)
    if created is None:
        writer = await Writer.open(bus)
        await writer.publish(
            RunCreated(
                run=config.run.name,
                config=config.public(),
                software={
                    name: importlib.metadata.version(name) for name in ("torch", "transformers", "nats-py")
                },
                trusted={role: keys for role, keys in config.trust.model_dump().items() if keys},
                commitment=secret.commitment,
            )
        )
        return True
    if created.commitment != secret.commitment:
        raise ConfigError(f"the secret of run {config.run.name} is another one; point run.secret to its file")
    if changed := _differences(created.config, config.public()):
        raise ConfigError(
            f"run {config.run.name} was created with other values of {', '.join(changed)}; "
            "restore them or choose another run.name"
        )
    if ended is not None:
        if ended.reason == "finished" and ended.steps < config.run.steps:
            raise ConfigError(
                f"run {config.run.name} has ended after {ended.steps} steps, {config.run.steps} are wanted; "
                "choose another run.name"
            )
        log.warning("the run has ended already", run=config.run.name, reason=ended.reason, steps=ended.steps)
    return ended is None


async def _existing(bus: Bus) -> tuple[RunCreated | None, RunEnded | None]:
    created: RunCreated | None = None
    ended: RunEnded | None = None
    async for record in bus.records(RunCreated, RunEnded, after=0, live=False):
        if isinstance(record.event, RunCreated):
            created = created or record.event
        elif isinstance(record.event, RunEnded):
            ended = record.event
    return created, ended


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return [
        f"{section}.{key}"
        for section in sorted(new.keys() - MAY_CHANGE)
        for key in new[section]
        if (section, key) != ("run", "steps") and old.get(section, {}).get(key) != new[section][key]
    ]
