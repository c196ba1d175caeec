"""A whole run on this machine: nats-server, origin, relays, trainer, validator, workers, evaluator, as processes.

Each is started by a public command; the same commands on several machines make the same run.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from bus.identity import Identity, key_file
from cli.stack import Stack


@dataclass(frozen=True)
class LocalRun:
    """What a local run consists of.

    folder: keys, logs, weights, checkpoints and the event store lie below it. config: the TOML file, overrides
    on top of it. workers: honest ones. cheats: dishonest ones. threads: CPU threads of each process.
    """

    folder: Path
    run: str
    url: str
    config: Path
    overrides: dict[str, str]
    workers: int = 2
    cheats: int = 0
    relays: int = 2
    batch: int = 16
    threads: int = 1

    def key(self, kind: str, name: str = "") -> str:
        """The public key of one of the run's processes."""
        return Identity.load_or_create(key_file(kind, name, self.folder / "keys")).public_key

    def start(self, stack: Stack) -> None:
        """Start every process; the order does not matter, each waits for what it needs."""
        port = free_port()
        parent = f"http://127.0.0.1:{port}"
        join = ["--url", self.url, "--run", self.run, "--keys", str(self.folder / "keys")]
        threads = ["--threads", str(self.threads)]
        settings = {"bus.url": self.url, "run.name": self.run, "relay.origin": parent, **self.overrides}
        stack.start(
            "trainer", "train", str(self.config), "--directory", str(self.folder / "trainer"),
            "--keys", str(self.folder / "keys"), "--trust-local", *threads,
            *(f"--{name}={value}" for name, value in settings.items()),
        )  # fmt: skip
        origin = ["--name", "origin", "--origin", "--port", str(port)]
        stack.start("origin", "relay", *join, *origin, *self._weights("origin"))
        for number in range(1, self.relays + 1):
            name = f"relay-{number}"
            stack.start(name, "relay", *join, "--name", name, "--parent", parent, *self._weights(name))
        stack.start("validator", "validator", *join, *threads, *self._weights("validator"))
        batch = ["--batch", str(self.batch)]
        for number in range(1, self.workers + 1):
            name = f"worker-{number}"
            stack.start(name, "worker", *join, *threads, "--name", name, *batch, *self._weights(name))
        for number in range(1, self.cheats + 1):
            name = f"cheat-{number}"
            stack.start(name, "worker", *join, *threads, "--name", name, "--dishonest", *self._weights(name))
        stack.start("evaluator", "evaluator", *join, *threads, *self._weights("evaluator"))

    def _weights(self, name: str) -> list[str]:
        return ["--directory", str(self.folder / "weights" / name)]


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
