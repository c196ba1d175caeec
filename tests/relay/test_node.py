import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import aiohttp
import pytest

from bus import Bus, BusError
from bus.testing import Run
from relay import Client, Relays
from relay.node import RelayNode
from relay.publication import upload
from schemas import Heartbeat, Manifest, PolicyPublished
from tests.relay.nodes import DIGEST, policy, same

MB = 1 << 20


@contextlib.asynccontextmanager
async def node(run: Run, name: str, directory: Path, **particulars) -> AsyncIterator[None]:
    """A relay in this process, for the length of the context."""
    component = run.component("relay", name)
    component.task(RelayNode(directory / name, **particulars).serve)
    serving = asyncio.create_task(component.serve())
    try:
        yield
        assert not serving.done(), serving.result()
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@contextlib.asynccontextmanager
async def process(
    run: Run, name: str, directory: Path, *parent: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The same in a process that can be killed."""
    arguments = [name, run.url, run.name, str(run.keys), str(directory / name), *parent]
    serving = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.relay.serve", *arguments, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield serving
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(serving.pid, signal.SIGKILL)
        await serving.wait()


async def told(bus: Bus, name: str, enough: Callable[[Heartbeat], object], after: int = 0) -> Heartbeat:
    """The first heartbeat of a relay that is as wanted."""
    async with aclosing(bus.read(Heartbeat, kind="relay", after=after)) as heartbeats:
        async for _, event in heartbeats:
            if event.name == name and enough(event):
                return event
    raise AssertionError("heartbeats never end")


async def url_of(bus: Bus, name: str) -> str:
    return (await told(bus, name, lambda event: event.url)).url


async def publish(run: Run, bus: Bus, origin: str, version: int, folder: Path) -> Manifest:
    """What the trainer does: upload, then announce."""
    manifest = await upload(origin, folder, version, DIGEST, MB, run.identity("trainer"))
    await bus.publish(
        PolicyPublished(lineage=0, version=version, digest=DIGEST, manifest=manifest, holders=(origin,))
    )
    return manifest


@contextlib.asynccontextmanager
async def followed(bus: Bus) -> AsyncIterator[Relays]:
    relays = Relays()
    following = asyncio.create_task(relays.follow(bus))
    try:
        yield relays
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_a_policy_travels_down_the_tree_to_a_client(run, tmp_path):
    folder = policy(tmp_path / "policy", 20 * MB)
    async with run.connect("trainer") as bus, node(run, "origin", tmp_path, origin=True):
        origin = await url_of(bus, "origin")
        async with (
            node(run, "left", tmp_path, parent=origin),
            node(run, "right", tmp_path, parent=origin),
            followed(bus) as relays,
        ):
            urls = {await url_of(bus, "left"), await url_of(bus, "right")}
            manifest = await publish(run, bus, origin, 0, folder)
            path = await Client(tmp_path / "client", relays).fetch(manifest)
            assert same(folder, path)
            for name in ("left", "right"):
                assert (await told(bus, name, lambda event: event.versions == (0,))).parent == origin
            assert set(relays.urls()) == urls
            assert relays.last_resort() == [origin]
            sent = (await told(bus, "origin", lambda event: event.capacity.get("sent_bytes"))).capacity
            assert sent["sent_bytes"] <= 2 * manifest.size, "a chunk travels once to each relay"


async def test_a_relay_that_comes_late_fetches_what_is_still_kept(run, tmp_path):
    run = Run(run.url, run.keys, f"{run.name}-small")
    await run.create(run.config(relay={"keep": 3}, lag={"max_lag": 0}))
    async with run.connect("trainer") as bus, node(run, "origin", tmp_path, origin=True):
        origin = await url_of(bus, "origin")
        for version in range(5):
            await publish(run, bus, origin, version, policy(tmp_path / str(version), MB, seed=version))
        async with node(run, "late", tmp_path, parent=origin):
            await told(bus, "late", lambda event: event.versions == (2, 3, 4))


async def test_killed_relays_are_passed_by_and_keep_what_they_had(run, tmp_path):
    folder = policy(tmp_path / "policy", 24 * MB)
    async with run.connect("trainer") as bus, node(run, "origin", tmp_path, origin=True):
        origin = await url_of(bus, "origin")
        async with process(run, "relay", tmp_path, origin) as relay, followed(bus) as relays:
            await url_of(bus, "relay")
            manifest = await publish(run, bus, origin, 0, folder)
            fetching = asyncio.create_task(Client(tmp_path / "client", relays).fetch(manifest))
            while not (chunks := list((tmp_path / "relay").glob("*/chunks/[0-9a-f]*"))):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            os.kill(relay.pid, signal.SIGKILL)
            await relay.wait()
            assert same(folder, await fetching)
            assert len(chunks) < 24
            before = {
                path.name: path.stat().st_mtime_ns for path in (tmp_path / "relay").glob("*/chunks/[0-9a-f]*")
            }
        end = await bus.end("NODES")
        async with process(run, "relay", tmp_path, origin):
            await told(bus, "relay", lambda event: event.versions == (0,), after=end)
            after = {
                path.name: path.stat().st_mtime_ns for path in (tmp_path / "relay").glob("*/chunks/[0-9a-f]*")
            }
            assert before.items() <= after.items(), "no chunk was fetched twice"


async def test_only_the_runs_trainer_may_upload(run, tmp_path):
    folder = policy(tmp_path / "policy", 1000)
    async with run.connect("trainer") as bus, node(run, "origin", tmp_path, origin=True):
        origin = await url_of(bus, "origin")
        with pytest.raises(Exception, match="this key may not write here"):
            await upload(origin, folder, 0, DIGEST, MB, run.identity("trainer", "stranger"))
        async with aiohttp.ClientSession() as session, session.get(f"{origin}/healthz") as response:
            assert (await response.json())["versions"] == []


async def test_a_port_in_use_ends_the_component_with_one_line(run, tmp_path):
    async with run.connect("trainer") as bus, node(run, "origin", tmp_path, origin=True):
        port = int((await url_of(bus, "origin")).rsplit(":", 1)[1])
        second = run.component("relay", "second")
        second.task(RelayNode(tmp_path / "second", port=port, origin=True).serve)
        with pytest.raises(BusError, match=f"127.0.0.1:{port} is in use"):
            await second.serve()


async def test_listening_everywhere_needs_an_address_for_others(run, tmp_path):
    component = run.component("relay", "everywhere")
    component.task(RelayNode(tmp_path, host="0.0.0.0", origin=True).serve)
    with pytest.raises(BusError, match="must be told the URL"):
        await component.serve()
