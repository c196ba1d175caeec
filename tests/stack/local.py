"""A whole run in this process: the real server, HTTP, gradients, proofs; only the processes are one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import torch

import trainer.start
import validator.start
import workers.start
from bus import Bus, Component, Identity, key_file
from cli import summary
from cli.local import free_port
from cli.view import RunView
from relay.node import RelayNode
from schemas.config import Config, EnvironmentSection, parse
from trainer.tiny import Tiny, initialise, tokenizer

ENVIRONMENT = {"letters": "abc", "min_length": 2, "max_length": 3, "count": 16}


def random_model(folder: Path, seed: int = 0) -> Path:
    """The demo's model, smaller and without any warm-up."""
    settings = Tiny(environment=EnvironmentSection(arguments=ENVIRONMENT), layers=1, hidden=32, seed=seed)
    model = initialise(settings)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def configure(url: str, folder: Path, **sections: dict[str, Any]) -> Config:
    """A small, quick run; `sections` override key by key."""
    keys = folder / "keys"

    def key(role: str) -> str:
        return Identity.load_or_create(key_file(role, role, keys)).public_key

    values: dict[str, dict[str, Any]] = {
        "policy": {"model": str(random_model(folder / "model"))},
        "run": {"name": "small", "steps": 3},
        "bus": {"url": url, "max_bytes": 64 << 20},
        "environment": {"arguments": ENVIRONMENT, "held_out": 4},
        "sampling": {"max_new_tokens": 6, "seconds": 30.0},
        "batch": {"groups": 3, "group_size": 4, "tokens": 512},
        "optimizer": {"learning_rate": 1e-3, "warmup_steps": 0, "max_grad_norm": 0.5},
        "relay": {"origin": f"http://127.0.0.1:{free_port()}"},
        "checkpoint": {"every": 2},
        "trust": {role: [key(role)] for role in ("validator", "evaluator", "operator")},
    }
    return parse(
        {name: {**values.get(name, {}), **sections.get(name, {})} for name in {**values, **sections}}
    )


class Local:
    """The processes of a run as tasks. Names are those of the keys."""

    def __init__(self, config: Config, folder: Path) -> None:
        self.config, self.folder = config, folder
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.join = (config.bus.url, config.run.name, folder / "keys")

    def trainer(self) -> asyncio.Task[None]:
        work = trainer.start.serve(self.config, self.folder / "trainer", self.folder / "keys")
        return self._start("trainer", work)

    def validator(self) -> None:
        self._start("validator", validator.start.serve(*self.join, "validator", 1, self.folder / "validator"))

    def worker(self, name: str = "worker", batch: int = 4, dishonest: bool = False) -> None:
        work = workers.start.serve(*self.join, name, batch, 1, self.folder / name, dishonest)
        self._start(name, work)

    def evaluator(self) -> asyncio.Task[None]:
        work = workers.start.serve_evaluator(*self.join, "evaluator", 1, self.folder / "evaluator")
        return self._start("evaluator", work)

    def relays(self) -> None:
        self.origin()
        self.relay()

    def origin(self) -> None:
        port = int(self.config.relay.origin.rpartition(":")[2])
        self._serve("origin", RelayNode(self.folder / "origin", port=port, origin=True))

    def relay(self) -> None:
        self._serve("relay", RelayNode(self.folder / "relay"))

    def _serve(self, name: str, node: RelayNode) -> None:
        url, run, keys = self.join
        component = Component("relay", name, url=url, run=run, keys=keys, ends_with_run=False)
        component.task(node.serve)
        self._start(name, component.serve())

    def identity(self, kind: str, name: str) -> Identity:
        return Identity.load_or_create(key_file(kind, name, self.folder / "keys"))

    def key(self, kind: str, name: str) -> str:
        return self.identity(kind, name).public_key

    def _start(self, name: str, work: Any) -> asyncio.Task[None]:
        self.tasks[name] = asyncio.create_task(work, name=name)
        return self.tasks[name]

    async def end(self, name: str) -> None:
        """Stop one of them, as a signal would."""
        task = self.tasks.pop(name)
        task.cancel()
        await asyncio.wait((task,))

    async def stop(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


@asynccontextmanager
async def local(config: Config, folder: Path) -> AsyncIterator[Local]:
    """Tasks end with the block; an error in one of them fails the block's `finished`."""
    torch.set_num_threads(1)
    running = Local(config, folder)
    try:
        yield running
    finally:
        await running.stop()


async def finished(running: Local, name: str = "trainer", seconds: float = 90.0) -> None:
    """Wait for one task to end well; any that fails first is raised."""
    wanted = running.tasks[name]
    async with asyncio.timeout(seconds):
        while not wanted.done():
            pending = [task for task in running.tasks.values() if not task.done()]
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in running.tasks.values():
                if task.done():
                    task.result()
    wanted.result()


async def read(config: Config) -> RunView:
    """What the streams hold."""
    async with Bus.connect(config.bus.url, config.run.name) as bus:
        return await summary.read(bus)


def of_worker(view: RunView, worker: str, choose: Callable[[str], bool]) -> int:
    """Completions of one worker with such outcomes."""
    return sum(count for (who, outcome), count in view.outcomes.items() if who == worker and choose(outcome))
