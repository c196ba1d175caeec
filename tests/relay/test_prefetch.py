import asyncio
import contextlib

from relay.prefetch import Prefetch
from schemas import PolicyPublished
from tests.relay.nodes import CHUNK, DIGEST, fill, origin, overwrite, policy, relay


def announcement(version, manifest):
    return PolicyPublished(lineage=0, version=version, digest=DIGEST, manifest=manifest)


@contextlib.asynccontextmanager
async def running(prefetch: Prefetch):
    task = asyncio.create_task(prefetch.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(server, condition) -> None:
    while not condition():
        server.changed.clear()
        await server.changed.wait()


async def test_the_newest_version_comes_first(tmp_path):
    async with origin(tmp_path / "origin") as top, relay(tmp_path / "relay", top.url) as below:
        prefetch = Prefetch(below.server)
        for version in range(3):
            folder = policy(tmp_path / str(version), 20 * CHUNK, seed=version)
            await prefetch.announce(announcement(version, fill(top, version, folder)))
        async with running(prefetch):
            await until(below.server, below.store.versions)
            assert below.store.versions() == [2]
            await until(below.server, lambda: below.store.versions() == [0, 1, 2])


async def test_what_cannot_be_had_holds_up_nothing_new(tmp_path):
    async with origin(tmp_path / "origin") as top, relay(tmp_path / "relay", top.url, patience=0.2) as below:
        prefetch = Prefetch(below.server)
        lost = fill(top, 0, policy(tmp_path / "lost", 20 * CHUNK))
        for chunk in lost.sizes():
            overwrite(top.store.path(chunk), 0, b"rot")
            top.store.verify(chunk)
        async with running(prefetch):
            await prefetch.announce(announcement(0, lost))
            await until(below.server, lambda: prefetch.problem)
            assert "does not have it" in prefetch.problem
            await prefetch.announce(announcement(1, fill(top, 1, policy(tmp_path / "new", CHUNK, seed=1))))
            await until(below.server, lambda: below.store.versions() == [1])


async def test_a_parent_that_was_away_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr("relay.prefetch.RETRY_SECONDS", 0.3)
    async with contextlib.AsyncExitStack() as stack:
        top = await stack.enter_async_context(origin(tmp_path / "origin"))
        below = await stack.enter_async_context(relay(tmp_path / "relay", top.url, patience=0.1))
        manifest = fill(top, 0, policy(tmp_path / "policy", 4 * CHUNK))
        chunk = manifest.files[-1].chunks()[0]
        content = top.store.path(chunk).read_bytes()
        overwrite(top.store.path(chunk), 0, b"rot")
        top.store.verify(chunk)
        prefetch = Prefetch(below.server)
        await prefetch.announce(announcement(0, manifest))
        async with running(prefetch):
            await until(below.server, lambda: prefetch.problem)
            top.store.put(chunk, content)
            await until(below.server, below.store.versions)
