"""Real origins and relays on loopback for the tests of this room."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from bus.identity import Identity
from relay import Fixed
from relay import manifest as manifests
from relay.chunks import ChunkStore
from relay.listener import listen
from relay.server import RelayServer
from relay.transfer import Downloads, open_session
from schemas import Manifest

TRAINER = Identity.create()
DIGEST = "d" * 64
CHUNK = 1 << 16


@dataclass(frozen=True)
class Node:
    url: str
    server: RelayServer

    @property
    def store(self) -> ChunkStore:
        return self.server.store


@contextlib.asynccontextmanager
async def origin(directory: Path, keep: int = 4, port: int = 0) -> AsyncIterator[Node]:
    server = RelayServer(ChunkStore(directory, keep), writers={TRAINER.public_key})
    async with listen(server.application(), "127.0.0.1", port) as url:
        yield Node(url, server)


@contextlib.asynccontextmanager
async def relay(directory: Path, parent: str, keep: int = 4, patience: float = 3.0) -> AsyncIterator[Node]:
    async with open_session() as session:
        server = RelayServer(
            ChunkStore(directory, keep), Downloads(session, Fixed(parent), patience=patience)
        )
        async with listen(server.application(), "127.0.0.1", 0) as url:
            yield Node(url, server)


def policy(directory: Path, size: int, seed: int = 0) -> Path:
    """A folder like a policy's: random weights of `size` bytes, a small file and an empty one."""
    directory.mkdir()
    (directory / "model.safetensors").write_bytes(random.Random(seed).randbytes(size))
    (directory / "config.json").write_text('{"model_type": "llama"}')
    (directory / "merges.txt").touch()
    return directory


def fill(node: Node, version: int, directory: Path, chunk_bytes: int = CHUNK) -> Manifest:
    """Give a node a whole version without HTTP."""
    manifest = manifests.build(directory, DIGEST, chunk_bytes)
    node.store.register(version, manifest)
    for file in manifest.files:
        content = (directory / file.name).read_bytes()
        for at, chunk in enumerate(file.chunks()):
            node.store.put(chunk, content[at * chunk_bytes : (at + 1) * chunk_bytes])
    return manifest


def same(left: Path, right: Path) -> bool:
    """Whether two folders hold the same files."""
    contents = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in (left, right)]
    return contents[0] == contents[1]


def overwrite(path: Path, offset: int, data: bytes) -> None:
    """Damage a file in place."""
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)
