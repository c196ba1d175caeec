"""For tests, ours and those of programs built on this: a real server and a run that has begun.

In a conftest.py: `from bus.testing import nats_server, run`. Then

    async def test_something(run):
        async with run.connect("worker") as bus:
            await bus.publish(...)
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from bus.client import Bus
from bus.component import Component
from bus.identity import Identity, key_file
from bus.server import Server
from bus.streams import SUBJECTS, name_of
from schemas import RunCreated
from schemas.config import Config, parse

TRUSTED_ROLES = ("trainer", "validator", "evaluator", "operator")


class Run:
    """A run on a server, and the keys of its nodes.

    name, url: where it is. keys: folder of the key files; `<role>-test` is trusted in each of TRUSTED_ROLES.
    """

    def __init__(self, url: str, keys: Path, name: str) -> None:
        self.url = url
        self.keys = keys
        self.name = name

    def identity(self, role: str, name: str = "test") -> Identity:
        return Identity.load_or_create(key_file(role, name, self.keys))

    def connect(self, role: str, name: str = "test") -> AbstractAsyncContextManager[Bus]:
        """A Bus that signs with the key `<role>-<name>`; other names than "test" are strangers."""
        return Bus.connect(self.url, self.name, self.identity(role, name), name=f"{role}-{name}")

    def component(self, role: str, name: str = "test", **arguments: Any) -> Component:
        """A component of that kind, with the key `<role>-<name>`."""
        return Component(role, name, url=self.url, run=self.name, keys=self.keys, **arguments)

    def config(self, **tables: Mapping[str, Any]) -> Config:
        """A small configuration of this run, e.g. `config(batch={"groups": 2})`."""
        values: dict[str, dict[str, Any]] = {
            "policy": {"model": "none"},
            "run": {"name": self.name},
            "bus": {"url": self.url, "max_bytes": 16 << 20},
        }
        return parse({**values, **{key: {**values.get(key, {}), **table} for key, table in tables.items()}})

    async def create(self, config: Config | None = None) -> RunCreated:
        """Make the streams and publish RunCreated, as the trainer."""
        config = config or self.config()
        created = RunCreated(
            run=self.name,
            config=config.model_dump(mode="json"),
            trusted={role: (self.identity(role).public_key,) for role in TRUSTED_ROLES},
            commitment=secrets.token_bytes(32),
        )
        async with self.connect("trainer") as bus:
            await bus.create_streams(config.bus)
            await bus.publish(created)
        return created

    async def delete(self) -> None:
        """Give the server back what it reserved for the streams."""
        async with self.connect("trainer") as bus:
            await asyncio.gather(
                *(bus.connection.api(f"STREAM.DELETE.{name_of(self.name, each)}") for each in SUBJECTS)
            )


async def new_run(url: str, keys: Path, name: str = "") -> Run:
    """A run that has begun, under a name of its own."""
    run = Run(url, keys, name or f"test-{secrets.token_hex(4)}")
    await run.create()
    return run


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One nats-server for all tests of a session; tests use runs of different names."""
    with Server(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
async def run(nats_server: Server, tmp_path: Path) -> AsyncIterator[Run]:
    """A run with streams, RunCreated and trusted keys."""
    run = await new_run(nats_server.url, tmp_path / "keys")
    yield run
    await run.delete()
