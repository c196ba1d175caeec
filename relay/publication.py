"""Publishing a policy: the files of a folder become chunks at the origin, before anything is announced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import hdrs
from blake3 import blake3

from bus.identity import Identity
from bus.retry import delays
from relay import manifest as manifests
from relay.authority import sign
from relay.errors import OriginAway, UploadFailed
from relay.files import Place
from relay.parallel import for_each
from relay.sources import relay_url
from relay.transfer import CONNECT_SECONDS, SLOWEST, open_session
from schemas.weights import Manifest

AT_ONCE = 4
PATIENCE_SECONDS = 30.0
"""Within which a restarted origin is waited for."""
ANSWER_SECONDS = 60.0
PIECE_BYTES = 1 << 18


async def upload(
    origin_url: str, directory: Path | str, version: int, digest: str, chunk_bytes: int, identity: Identity
) -> Manifest:
    """Put all files of `directory` at the origin as `version`, and return once the origin holds them whole.

    digest: of the weights after loading. identity: the trainer's. Chunks that the origin has are not sent
    again, so a repeated upload is cheap. Raises ValueError for a folder that cannot be published and
    UploadFailed.
    """
    manifest = await asyncio.to_thread(manifests.build, directory, digest, chunk_bytes)
    places = {
        chunk: Place(Path(directory) / file.name, at * chunk_bytes)
        for file in manifest.files
        for at, chunk in enumerate(file.chunks())
    }
    sizes = manifest.sizes()
    async with open_session() as session:
        origin = _Origin(session, relay_url(origin_url), identity)

        async def send(chunk: str) -> None:
            body = await asyncio.to_thread(places[chunk].read, sizes[chunk])
            await origin.put(f"/chunks/{chunk}", body, chunk)

        for _ in range(2):  # the second answer is the proof that nothing is missing
            packed = manifests.pack(manifest)
            answer = await origin.put(f"/manifests/{version}", packed, blake3(packed).hexdigest())
            missing = [chunk for chunk in answer.get("missing", ()) if chunk in places]
            if not missing:
                return manifest
            await for_each(missing, AT_ONCE, send)
        raise UploadFailed(
            f"{origin.url} took version {version} but says that {len(missing)} chunks are missing"
        )


class _Origin:
    """Signed requests to one origin; a lost connection or a busy origin is tried again."""

    def __init__(self, session: aiohttp.ClientSession, url: str, identity: Identity) -> None:
        self.session = session
        self.url = url
        self.identity = identity

    async def put(self, path: str, body: bytes, body_hash: str) -> dict[str, Any]:
        """The decoded answer, {} when it has no body. Raises UploadFailed."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        for pause in delays():
            try:
                return await self._put(path, body, body_hash)
            except (aiohttp.ClientError, TimeoutError) as error:
                if time.monotonic() > deadline:
                    why = str(error) or "no answer in time"
                    raise OriginAway(
                        f"cannot upload to {self.url}: {why}; is the origin running there?"
                    ) from None
            await asyncio.sleep(pause)
        raise AssertionError("delays never end")

    async def _put(self, path: str, body: bytes, body_hash: str) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(
            total=ANSWER_SECONDS + len(body) / SLOWEST, sock_connect=CONNECT_SECONDS
        )
        headers = sign(self.identity, "PUT", path, body_hash) | {hdrs.CONTENT_LENGTH: str(len(body))}
        async with self.session.put(
            self.url + path,
            data=_pieces(body),
            headers=headers,
            timeout=timeout,
            expect100=True,
            allow_redirects=False,
        ) as response:
            if response.status in (200, 201):
                return await response.json() if response.content_type == "application/json" else {}
            if response.status == 204:
                return {}
            reason = (await response.content.read(1024)).decode(errors="replace")
            if response.status in (408, 502, 503, 504):
                raise aiohttp.ClientError(f"HTTP status {response.status}: {reason}")
            raise UploadFailed(f"{self.url} refused {path[:24]}: HTTP status {response.status}: {reason}")


async def _pieces(body: bytes) -> AsyncIterator[memoryview]:
    """The body bit by bit: the event loop is not held up by one large write."""
    for at in range(0, len(body), PIECE_BYTES):
        yield memoryview(body)[at : at + PIECE_BYTES]
