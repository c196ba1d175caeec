"""The HTTP face of a chunk store, the same for the origin and for every relay below it.

    GET, HEAD /chunks/<hash>          the bytes; 404 for a hash of no kept version, 503 for "not yet, ask again"
    POST      /chunks/<hash>/report   "your bytes were wrong": hashed again, dropped when they are
    PUT       /manifests/<version>    origin only, signed: what comes next; answers with the chunks it lacks
    PUT       /chunks/<hash>          origin only, signed: a chunk of a manifest that was put before
    GET       /healthz                versions held whole, bytes sent

A chunk that a kept version names but that is not here yet is fetched from upstream once, however many ask; all of
them wait for it. So a relay serves a version while that version is still arriving (cut-through, chunk by chunk).
"""

from __future__ import annotations

import asyncio
from collections.abc import Container

from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter

from relay import manifest as manifests
from relay.authority import Unauthorised, authorise
from relay.chunks import ChunkStore
from relay.errors import BadChunk, DiskFull, UnknownChunk, WeightsUnavailable
from relay.manifest import MAX_PACKED
from relay.parallel import SingleFlight
from relay.transfer import SLOWEST, Downloads

LONG_POLL_SECONDS = 10.0
BODY_SECONDS = 30.0
"""A request's body has so long to arrive, and SLOWEST bytes a second on top."""


class RelayServer:
    """Serves `store`; a relay has an `upstream`, the origin has none and trusts the keys of `writers`."""

    def __init__(
        self, store: ChunkStore, upstream: Downloads | None = None, writers: Container[str] = frozenset()
    ) -> None:
        self.store = store
        self.upstream = upstream
        self.writers = writers
        self.sent_bytes = 0
        self.changed = asyncio.Event()
        """Set whenever the store or `sent_bytes` changes; whoever waits for it clears it."""
        self._flights = SingleFlight()

    def application(self) -> web.Application:
        application = web.Application()
        chunk = r"/chunks/{chunk:[0-9a-f]{64}}"
        application.add_routes([
            web.get(chunk, self._get_chunk, allow_head=False),
            web.head(chunk, self._head_chunk),
            web.post(chunk + "/report", self._report_chunk),
            web.get("/healthz", self._health),
        ])  # fmt: skip
        if self.upstream is None:
            application.add_routes([
                web.put(chunk, self._put_chunk, expect_handler=_not_yet),
                web.put(r"/manifests/{version:[0-9]{1,15}}", self._put_manifest, expect_handler=_not_yet),
            ])  # fmt: skip
        application.on_cleanup.append(self._close)
        return application

    async def obtain(self, chunk: str) -> None:
        """Return once the store holds the chunk, fetched from upstream if need be, once for all who ask.

        Raises UnknownChunk, WeightsUnavailable (always at the origin, which has no upstream) and DiskFull.
        """
        if self.store.holds(chunk):
            return
        size = self.store.size(chunk)
        if size is None:
            raise UnknownChunk(f"chunk {chunk[:12]} belongs to no version that is kept")
        if self.upstream is None:
            raise WeightsUnavailable(f"chunk {chunk[:12]} was not uploaded yet")
        await self._flights.run(chunk, lambda: self._fetch(chunk, size))

    async def _fetch(self, chunk: str, size: int) -> None:
        assert self.upstream is not None
        await self.upstream.chunk(chunk, size, lambda data: self.store.put(chunk, data))
        self.changed.set()

    async def _get_chunk(self, request: web.Request) -> web.StreamResponse:
        chunk = request.match_info["chunk"]
        try:
            async with asyncio.timeout(LONG_POLL_SECONDS):
                await self.obtain(chunk)
        except UnknownChunk as error:
            raise web.HTTPNotFound(text=str(error)) from None
        except (WeightsUnavailable, DiskFull, TimeoutError) as error:
            reason = str(error) or f"chunk {chunk[:12]} is still on its way"
            raise web.HTTPServiceUnavailable(text=reason, headers={hdrs.RETRY_AFTER: "1"}) from None
        return _ChunkResponse(self, chunk)

    async def _head_chunk(self, request: web.Request) -> web.StreamResponse:
        chunk = request.match_info["chunk"]
        if not self.store.holds(chunk):
            raise web.HTTPNotFound
        return _ChunkResponse(self, chunk)

    async def _report_chunk(self, request: web.Request) -> web.Response:
        chunk = request.match_info["chunk"]
        if self.store.holds(chunk):
            await self._flights.run(f"verify {chunk}", lambda: self._verify(chunk))
        return web.Response(status=204)

    async def _verify(self, chunk: str) -> None:
        await asyncio.to_thread(self.store.verify, chunk)
        self.changed.set()

    async def _put_manifest(self, request: web.Request) -> web.Response:
        body_hash = self._authorise(request)
        length = request.content_length
        if length is None or length > MAX_PACKED:
            raise web.HTTPRequestEntityTooLarge(max_size=MAX_PACKED, actual_size=length or 0)
        version, body = int(request.match_info["version"]), await _read_body(request, length)
        try:
            manifests.check(body_hash, length, body)
            manifest = manifests.unpack(bytes(body))
            kept = await asyncio.to_thread(self.store.register, version, manifest)
        except (BadChunk, ValueError) as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        except DiskFull as error:
            raise web.HTTPInsufficientStorage(text=str(error)) from None
        if not kept:
            raise web.HTTPConflict(
                text=f"version {version} is older than the {self.store.keep} that are kept"
            )
        self.changed.set()
        return web.json_response({"missing": self.store.missing(version)})

    async def _put_chunk(self, request: web.Request) -> web.Response:
        chunk = request.match_info["chunk"]
        if self._authorise(request) != chunk:
            raise web.HTTPBadRequest(text="the body's hash is not the hash in the path")
        size = self.store.size(chunk)
        if size is None:
            raise web.HTTPNotFound(text="this chunk belongs to no manifest; put the manifest first")
        if request.content_length != size:
            raise web.HTTPBadRequest(text=f"this chunk has {size} bytes, not {request.content_length}")
        if self.store.holds(chunk):
            return web.Response(status=204)
        body = await _read_body(request, size)
        try:
            await asyncio.to_thread(self.store.put, chunk, body)
        except (BadChunk, UnknownChunk) as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        except DiskFull as error:
            raise web.HTTPInsufficientStorage(text=str(error)) from None
        self.changed.set()
        return web.Response(status=201)

    def _authorise(self, request: web.Request) -> str:
        try:
            return authorise(request.headers, request.method, request.path, self.writers)
        except Unauthorised as error:
            raise web.HTTPUnauthorized(text=str(error)) from None

    async def _health(self, request: web.Request) -> web.Response:
        return web.json_response({"versions": self.store.versions(), "sent_bytes": self.sent_bytes})

    async def _close(self, application: web.Application) -> None:
        await self._flights.close()


class _ChunkResponse(web.FileResponse):
    """A chunk by sendfile; a reader slower than SLOWEST is cut off, and what was sent is counted."""

    def __init__(self, server: RelayServer, chunk: str) -> None:
        super().__init__(server.store.path(chunk), headers={hdrs.CONTENT_TYPE: "application/octet-stream"})
        self._server, self._size = server, server.store.size(chunk) or 0

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        try:
            async with asyncio.timeout(BODY_SECONDS + self._size / SLOWEST):
                writer = await super().prepare(request)
        except TimeoutError:
            raise ConnectionResetError("the reader is too slow") from None
        if request.method == hdrs.METH_GET and self.status in (200, 206):
            self._server.sent_bytes += self.content_length or 0
            self._server.changed.set()
        return writer


async def _not_yet(request: web.Request) -> None:
    """Answers `Expect: 100-continue` later, in _read_body, when the body is really wanted."""


async def _read_body(request: web.Request, length: int) -> bytearray:
    """Exactly `length` bytes (known from the headers) within a bounded time."""
    if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    body, filled = bytearray(length), 0
    try:
        async with asyncio.timeout(BODY_SECONDS + length / SLOWEST):
            async for piece in request.content.iter_any():
                body[filled : filled + len(piece)] = piece
                filled += len(piece)
    except TimeoutError:
        raise web.HTTPRequestTimeout(text="the body did not arrive in time") from None
    return body
