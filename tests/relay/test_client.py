import asyncio
import os
import signal
import subprocess
import sys

import pytest
from aiohttp import web

from relay import Client, Fixed, WeightsUnavailable
from relay import manifest as manifests
from relay.listener import listen
from tests.relay.nodes import CHUNK, DIGEST, fill, origin, overwrite, policy, relay, same

MB = 1 << 20


async def test_tree_of_origin_two_relays_and_clients(tmp_path):
    folder = policy(tmp_path / "policy", 20 * MB)
    async with (
        origin(tmp_path / "origin") as top,
        relay(tmp_path / "left", top.url) as left,
        relay(tmp_path / "right", top.url) as right,
    ):
        manifest = fill(top, 0, folder, MB)
        for node in (left, right):
            node.store.register(0, manifest)
        sources = Fixed(left.url, right.url)
        fetched = await asyncio.gather(
            *(Client(tmp_path / f"client{number}", sources).fetch(manifest) for number in range(3))
        )
        assert all(same(folder, path) for path in fetched)
        served = [left.server.sent_bytes, right.server.sent_bytes]
        assert sum(served) == 3 * manifest.size
        assert min(served) > 0, "both relays are used"
        assert top.server.sent_bytes <= 2 * manifest.size, "a chunk travels once to each relay"


async def test_a_relay_serves_before_it_holds_the_version(tmp_path):
    folder = policy(tmp_path / "policy", 4 * CHUNK)
    async with origin(tmp_path / "origin") as top, relay(tmp_path / "relay", top.url) as below:
        manifest = fill(top, 0, folder)
        below.store.register(0, manifest)
        client = Client(tmp_path / "client", Fixed(below.url))
        missing = manifest.files[-1].chunks()[-1]
        top.store.path(missing).unlink()
        top.store.verify(missing)  # the origin lacks the last chunk for now
        fetching = asyncio.create_task(client.fetch(manifest))
        while below.server.sent_bytes < manifest.size - CHUNK:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert (below.store.versions(), fetching.done()) == ([], False)
        fill(top, 0, folder)
        assert same(folder, await fetching)


class Liar:
    """Serves well-formed chunks of the right size with wrong bytes, and counts what it is asked and told."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes, self.asked, self.reported = sizes, 0, 0

    def application(self) -> web.Application:
        application = web.Application()
        application.add_routes([
            web.get("/chunks/{chunk}", self.get),
            web.post("/chunks/{chunk}/report", self.report),
        ])  # fmt: skip
        return application

    async def get(self, request: web.Request) -> web.Response:
        self.asked += 1
        return web.Response(body=bytes(self.sizes[request.match_info["chunk"]]))

    async def report(self, request: web.Request) -> web.Response:
        self.reported += 1
        return web.Response(status=204)


async def test_a_relay_with_wrong_bytes_is_found_out_reported_and_avoided(tmp_path):
    folder = policy(tmp_path / "policy", 200 * CHUNK)
    async with origin(tmp_path / "origin") as top:
        manifest = fill(top, 0, folder)
        liar = Liar(manifest.sizes())
        async with listen(liar.application(), "127.0.0.1", 0) as url:
            path = await Client(tmp_path / "client", Fixed(top.url, url)).fetch(manifest)
        assert same(folder, path)
        assert 1 <= liar.asked <= 20, "some of the eight at once, then hardly any"
        assert liar.reported == liar.asked


@pytest.mark.parametrize("answer", ["too long", "too short", "redirect", "error"])
async def test_answers_that_are_no_chunk_are_survived(tmp_path, answer):
    async def get(request: web.Request) -> web.Response:
        size = manifest.sizes()[request.match_info["chunk"]]
        if answer == "redirect":
            raise web.HTTPFound("http://127.0.0.1:9/elsewhere")
        if answer == "error":
            raise web.HTTPForbidden
        return web.Response(body=bytes(size + 1 if answer == "too long" else size - 1))

    application = web.Application()
    application.router.add_get("/chunks/{chunk}", get)
    folder = policy(tmp_path / "policy", 20 * CHUNK)
    async with origin(tmp_path / "origin") as top, listen(application, "127.0.0.1", 0) as url:
        manifest = fill(top, 0, folder)
        assert same(folder, await Client(tmp_path / "client", Fixed(top.url, url)).fetch(manifest))


async def test_a_relay_that_dies_in_the_middle_costs_no_verified_byte(tmp_path):
    folder = policy(tmp_path / "policy", 24 * MB)
    async with origin(tmp_path / "origin") as top:
        manifest = fill(top, 0, folder, MB)
        async with relay(tmp_path / "relay", top.url) as dying:
            fill(dying, 0, folder, MB)
            client = Client(tmp_path / "client", Fixed(top.url, dying.url))
            fetching = asyncio.create_task(client.fetch(manifest))
            while dying.server.sent_bytes < 2 * MB:  # noqa: ASYNC110
                await asyncio.sleep(0)
        assert not fetching.done()
        assert same(folder, await fetching)
        received = top.server.sent_bytes + dying.server.sent_bytes
        assert received <= manifest.size + 8 * MB, "at most the chunks in flight again"


async def test_a_client_that_was_killed_goes_on_where_it_was(tmp_path):
    folder = policy(tmp_path / "policy", 24 * MB)
    async with origin(tmp_path / "origin") as top:
        manifest = fill(top, 0, folder, MB)
        (tmp_path / "manifest").write_bytes(manifests.pack(manifest))
        script = (
            "import asyncio, pathlib, sys\n"
            "from relay import Client, Fixed, manifest\n"
            "manifest = manifest.unpack(pathlib.Path(sys.argv[1]).read_bytes())\n"
            "asyncio.run(Client(sys.argv[2], Fixed(sys.argv[3])).fetch(manifest))\n"
        )
        arguments = [str(tmp_path / "manifest"), str(tmp_path / "client"), top.url]
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, *arguments)
        while top.server.sent_bytes < 8 * MB:  # noqa: ASYNC110
            await asyncio.sleep(0)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        (partial,) = (tmp_path / "client").glob("*.partial")
        assert not list((tmp_path / "client").glob("*.manifest"))
        before = top.server.sent_bytes
        assert same(folder, await Client(tmp_path / "client", Fixed(top.url)).fetch(manifest))
        assert not partial.exists()
        assert top.server.sent_bytes - before <= manifest.size - 8 * MB + 9 * MB, "the chunks in flight"


async def test_what_an_earlier_version_holds_is_not_fetched_again(tmp_path):
    first, second = policy(tmp_path / "first", 10 * CHUNK), policy(tmp_path / "second", 10 * CHUNK)
    overwrite(second / "model.safetensors", 3 * CHUNK + 7, b"changed")
    async with origin(tmp_path / "origin") as top:
        client = Client(tmp_path / "client", Fixed(top.url))
        await client.fetch(fill(top, 0, first))
        before = top.server.sent_bytes
        assert same(second, await client.fetch(fill(top, 1, second)))
        assert top.server.sent_bytes - before == CHUNK


async def test_the_last_versions_are_kept_and_nothing_of_others_is_touched(tmp_path):
    async with origin(tmp_path / "origin", keep=8) as top:
        client = Client(tmp_path / "client", Fixed(top.url), keep=2)
        (tmp_path / "client").mkdir()
        (tmp_path / "client" / "somebody's").mkdir()
        paths = [
            await client.fetch(fill(top, version, policy(tmp_path / str(version), CHUNK, seed=version)))
            for version in range(4)
        ]
        assert [path.exists() for path in paths] == [False, False, True, True]
        names = {path.name for path in (tmp_path / "client").iterdir()}
        assert names == {
            "somebody's",
            *(f"{path.name}{end}" for path in paths[2:] for end in ("", ".manifest")),
        }


async def test_a_version_that_is_here_needs_no_relay_unless_it_is_damaged(tmp_path):
    folder = policy(tmp_path / "policy", 4 * CHUNK)
    async with origin(tmp_path / "origin") as top:
        manifest = fill(top, 0, folder)
        path = await Client(tmp_path / "client", Fixed(top.url)).fetch(manifest)
        assert await Client(tmp_path / "client", Fixed()).fetch(manifest) == path
        overwrite(path / "model.safetensors", 0, b"rot")
        assert same(folder, await Client(tmp_path / "client", Fixed(top.url)).fetch(manifest))


async def test_two_fetches_of_one_version_are_one(tmp_path):
    folder = policy(tmp_path / "policy", 8 * CHUNK)
    async with origin(tmp_path / "origin") as top:
        manifest = fill(top, 0, folder)
        client = Client(tmp_path / "client", Fixed(top.url))
        one, other = await asyncio.gather(client.fetch(manifest), client.fetch(manifest))
        assert one == other
        assert top.server.sent_bytes == manifest.size


class Tiered(Fixed):
    """Relays, and an origin that is to be spared."""

    def __init__(self, relays: list[str], origin: str) -> None:
        super().__init__(*relays)
        self.origin = origin

    def last_resort(self) -> list[str]:
        return [self.origin]


async def test_the_origin_is_spared_while_a_relay_may_soon_have_the_chunk(tmp_path):
    folder = policy(tmp_path / "policy", 8 * CHUNK)
    async with origin(tmp_path / "origin") as top, relay(tmp_path / "relay", top.url) as below:
        manifest = fill(top, 0, folder)
        client = Client(tmp_path / "client", Tiered([below.url], top.url))
        fetching = asyncio.create_task(client.fetch(manifest))
        await asyncio.sleep(0.1)  # the relay has not heard of the version yet
        below.store.register(0, manifest)
        assert same(folder, await fetching)
        assert (top.server.sent_bytes, below.server.sent_bytes) == (manifest.size, manifest.size)


async def test_the_origin_is_asked_when_no_relay_can_be_reached(tmp_path):
    folder = policy(tmp_path / "policy", 8 * CHUNK)
    async with origin(tmp_path / "origin") as top:
        manifest = fill(top, 0, folder)
        async with relay(tmp_path / "relay", top.url) as gone:
            pass
        sources = Tiered([gone.url], top.url)
        assert same(folder, await Client(tmp_path / "client", sources).fetch(manifest))


async def test_nobody_has_it(tmp_path):
    manifest = manifests.build(policy(tmp_path / "policy", CHUNK), DIGEST, CHUNK)
    async with origin(tmp_path / "origin") as top:
        with pytest.raises(WeightsUnavailable, match=f"{top.url}: does not have it"):
            await Client(tmp_path / "client", Fixed(top.url), patience=0.1).fetch(manifest)
    with pytest.raises(WeightsUnavailable, match="no relay is known"):
        await Client(tmp_path / "client", Fixed(), patience=0.1).fetch(manifest)
    with pytest.raises(WeightsUnavailable, match="Cannot connect"):
        await Client(tmp_path / "client", Fixed(top.url), patience=0.1).fetch(manifest)


def test_the_room_needs_no_torch():
    code = "import sys, relay, relay.server, relay.publication; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0
