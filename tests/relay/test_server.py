import asyncio
import base64
import io

import aiohttp
import pytest
from blake3 import blake3

from bus.identity import Identity
from relay import RelayError
from relay import listener as listening
from relay import manifest as manifests
from relay.authority import BODY, KEY, SIGNATURE, sign
from relay.listener import listen
from tests.relay.nodes import CHUNK, DIGEST, TRAINER, fill, origin, policy, relay


async def status(method: str, url: str, **options) -> int:
    async with aiohttp.ClientSession() as session, session.request(method, url, **options) as response:
        await response.read()
        return response.status


async def test_chunks_are_served_whole_in_ranges_and_by_head(tmp_path):
    async with origin(tmp_path / "origin") as node, aiohttp.ClientSession() as session:
        manifest = fill(node, 0, policy(tmp_path / "policy", 3 * CHUNK + 5))
        weights = (tmp_path / "policy" / "model.safetensors").read_bytes()
        first, *_, last = manifest.files[-1].chunks()
        async with session.get(f"{node.url}/chunks/{last}") as response:
            assert (response.status, await response.read()) == (200, weights[-5:])
        async with session.get(f"{node.url}/chunks/{first}", headers={"Range": "bytes=10-19"}) as response:
            assert (response.status, await response.read()) == (206, weights[10:20])
        async with session.head(f"{node.url}/chunks/{first}") as response:
            assert (response.status, response.headers["Content-Length"]) == (200, str(CHUNK))
        async with session.get(f"{node.url}/healthz") as response:
            assert await response.json() == {"versions": [0], "sent_bytes": 15}


async def test_unknown_hashes_and_other_paths_are_404(tmp_path):
    (tmp_path / "secret").write_text("not yours")
    async with origin(tmp_path / "origin") as node, relay(tmp_path / "relay", node.url) as below:
        fill(node, 0, policy(tmp_path / "policy", CHUNK))
        for url in (node.url, below.url):
            for path in (
                "0" * 64,
                "0" * 63,
                "A" * 64,
                "%2e%2e%2fmanifests%2f0",
                "..%2f..%2fsecret",
                "../../secret",
                "%00",
            ):
                raw = aiohttp.client.URL(f"{url}/chunks/{path}", encoded=True)
                assert await status("GET", raw) == 404
                assert await status("HEAD", raw) == 404
        assert await status("PUT", f"{below.url}/manifests/1", data=b"") == 404, (
            "only the origin takes uploads"
        )


def headers_of(node, path: str, body: bytes, identity: Identity = TRAINER) -> dict[str, str]:
    return sign(identity, "PUT", path, blake3(body).hexdigest())


async def test_only_the_trainers_signature_writes(tmp_path):
    manifest = manifests.build(policy(tmp_path / "policy", CHUNK), DIGEST, CHUNK)
    body, path = manifests.pack(manifest), "/manifests/3"
    good = sign(TRAINER, "PUT", path, blake3(body).hexdigest())
    forgeries = {
        "no headers": {},
        "another key": sign(Identity.create(), "PUT", path, blake3(body).hexdigest()),
        "another key's signature": {
            **good,
            SIGNATURE: sign(Identity.create(), "PUT", path, "0" * 64)[SIGNATURE],
        },
        "another path": sign(TRAINER, "PUT", "/manifests/4", blake3(body).hexdigest()),
        "another method": sign(TRAINER, "GET", path, blake3(body).hexdigest()),
        "another body hash": {**good, BODY: "0" * 64},
        "not base64": {**good, SIGNATURE: "%%%"},
        "short signature": {**good, SIGNATURE: base64.b64encode(b"short").decode()},
        "no key": {**good, KEY: "UABC"},
    }
    async with origin(tmp_path / "origin") as node:
        for name, headers in forgeries.items():
            answer = await status("PUT", node.url + path, data=body, headers=headers, expect100=True)
            assert answer == 401, name
        assert not list((tmp_path / "origin" / "manifests").iterdir())
        assert await status("PUT", node.url + path, data=body[:-1] + b"x", headers=good) == 400
        assert await status("PUT", node.url + path, data=body, headers=good) == 200


async def test_a_refused_body_is_not_read(tmp_path):
    async with origin(tmp_path / "origin") as node:
        host, port = node.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"PUT /manifests/0 HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        answer = await reader.read()  # to the end: the server closes without waiting for the body
        assert answer.startswith(b"HTTP/1.1 401 ")
        writer.close()
        await writer.wait_closed()


async def test_chunks_are_taken_only_as_the_manifest_says(tmp_path):
    folder = policy(tmp_path / "policy", CHUNK + 10)
    manifest = manifests.build(folder, DIGEST, CHUNK)
    chunk, data = manifest.files[-1].chunks()[0], (folder / "model.safetensors").read_bytes()[:CHUNK]
    async with origin(tmp_path / "origin") as node:
        path = f"/chunks/{chunk}"
        headers = headers_of(node, path, data)
        assert await status("PUT", node.url + path, data=data, headers=headers) == 404, "no manifest names it"
        body = manifests.pack(manifest)
        headers_ = headers_of(node, "/manifests/0", body)
        assert await status("PUT", f"{node.url}/manifests/0", data=body, headers=headers_) == 200
        assert await status("GET", node.url + path) == 503, "known, but not here yet"
        assert await status("PUT", node.url + path, data=data[1:], headers=headers) == 400
        wrong = bytes(CHUNK)
        assert await status("PUT", node.url + path, data=wrong, headers=headers) == 400
        assert await status("PUT", node.url + path, data=wrong, headers=headers_of(node, path, wrong)) == 400
        assert await status("PUT", node.url + path, data=data, headers=headers) == 201
        assert await status("PUT", node.url + path, data=data, headers=headers) == 204, "already here"


async def test_a_repeated_old_manifest_changes_nothing(tmp_path):
    async with origin(tmp_path / "origin", keep=2) as node:
        for version in range(4):
            fill(node, version, policy(tmp_path / str(version), CHUNK, seed=version))
        body = manifests.pack(manifests.build(tmp_path / "1", DIGEST, CHUNK))
        headers = headers_of(node, "/manifests/1", body)
        assert await status("PUT", f"{node.url}/manifests/1", data=body, headers=headers) == 409
        assert node.store.versions() == [2, 3]


async def test_bodies_are_bounded(tmp_path):
    body = bytes(manifests.MAX_PACKED + 1)
    async with origin(tmp_path / "origin") as node:
        headers = headers_of(node, "/manifests/0", body)
        url = f"{node.url}/manifests/0"
        answer = await status("PUT", url, data=io.BytesIO(body), headers=headers, expect100=True)
        assert answer == 413


async def test_silent_connections_are_closed_and_hold_nobody_back(tmp_path, monkeypatch):
    monkeypatch.setattr(listening, "FIRST_REQUEST_SECONDS", 0.2)
    async with origin(tmp_path / "origin") as node:
        manifest = fill(node, 0, policy(tmp_path / "policy", CHUNK))
        host, port = node.url.removeprefix("http://").split(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(100)]
        silent[0][1].write(b"GET /chunks/")  # a slow loris
        assert await status("GET", f"{node.url}/chunks/{manifest.files[-1].chunks()[0]}") == 200
        assert await asyncio.gather(*(reader.read() for reader, _ in silent)) == [b""] * 100
        for _, writer in silent:
            writer.close()


async def test_many_askers_cost_one_upstream_request(tmp_path):
    async with origin(tmp_path / "origin") as node, relay(tmp_path / "relay", node.url) as below:
        manifest = fill(node, 0, policy(tmp_path / "policy", 4 * CHUNK))
        below.store.register(0, manifest)
        chunks = list(manifest.sizes())
        answers = await asyncio.gather(
            *(status("GET", f"{below.url}/chunks/{chunk}") for chunk in chunks for _ in range(20))
        )
        assert set(answers) == {200}
        assert node.server.sent_bytes == manifest.size
        assert below.server.sent_bytes == 20 * manifest.size


async def test_a_relay_asks_again_until_its_parent_has_the_chunk(tmp_path):
    async with origin(tmp_path / "origin") as node, relay(tmp_path / "relay", node.url) as below:
        folder = policy(tmp_path / "policy", CHUNK)
        manifest = manifests.build(folder, DIGEST, CHUNK)
        below.store.register(0, manifest)
        waiting = asyncio.create_task(status("GET", f"{below.url}/chunks/{manifest.files[-1].chunks()[0]}"))
        while not below.server._flights._running:  # noqa: ASYNC110
            await asyncio.sleep(0)
        fill(node, 0, folder)
        assert await waiting == 200


async def test_a_rotten_chunk_is_dropped_when_reported_and_fetched_again(tmp_path):
    async with origin(tmp_path / "origin") as node, relay(tmp_path / "relay", node.url) as below:
        manifest = fill(node, 0, policy(tmp_path / "policy", CHUNK))
        fill(below, 0, tmp_path / "policy")
        chunk = manifest.files[-1].chunks()[0]
        below.store.path(chunk).write_bytes(bytes(CHUNK))
        assert await status("POST", f"{below.url}/chunks/{'0' * 64}/report") == 204
        assert await status("POST", f"{below.url}/chunks/{chunk}/report") == 204
        assert below.store.missing(0) == [chunk]
        assert await status("GET", f"{below.url}/chunks/{chunk}") == 200
        assert below.store.versions() == [0]


async def test_a_port_in_use_is_one_clear_line(tmp_path):
    async with origin(tmp_path / "origin") as node:
        port = int(node.url.rsplit(":", 1)[1])
        with pytest.raises(RelayError, match=f"127.0.0.1:{port} is in use; choose another"):
            async with listen(node.server.application(), "127.0.0.1", port):
                pass
