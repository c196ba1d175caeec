"""Fetching what was announced before anybody asks: the newest version first, chunk by chunk."""

from __future__ import annotations

import asyncio

import structlog

from relay.errors import DiskFull, UnknownChunk, WeightsUnavailable
from relay.parallel import together
from relay.server import UPSTREAM_AT_ONCE, RelayServer
from schemas import PolicyPublished

log = structlog.get_logger()


class Prefetch:
    """Keeps UPSTREAM_AT_ONCE chunks on their way; each time the next one is of the newest version that lacks any.

    A chunk that cannot be had is left until something new is announced, or somebody asks the server for it.
    problem: why the last one could not be had; empty when nothing is the matter.
    """

    def __init__(self, server: RelayServer) -> None:
        self.problem = ""
        self._server = server
        self._announced = asyncio.Condition()
        self._left: set[str] = set()
        """Chunks that are on their way or cannot be had."""

    async def announce(self, event: PolicyPublished) -> None:
        """Register the version and begin to fetch it. Raises DiskFull."""
        await asyncio.to_thread(self._server.store.register, event.version, event.manifest)
        async with self._announced:
            self._left.clear()
            self._announced.notify_all()

    async def run(self) -> None:
        """Fetch for ever."""
        await together(*(self._fetch() for _ in range(UPSTREAM_AT_ONCE)))

    async def _fetch(self) -> None:
        while True:
            async with self._announced:
                chunk = await self._announced.wait_for(self._next)
                self._left.add(chunk)
            try:
                await self._server.obtain(chunk)
            except UnknownChunk:
                continue  # its version was dropped meanwhile
            except (WeightsUnavailable, DiskFull) as error:
                self.problem = str(error)
                log.warning("cannot prefetch", reason=self.problem)
            else:
                self.problem = ""
                self._left.discard(chunk)

    def _next(self) -> str:
        """The next chunk to fetch, "" when there is none."""
        store = self._server.store
        return next(
            (
                chunk
                for version in store.incomplete()
                for chunk in store.missing(version)
                if chunk not in self._left
            ),
            "",
        )
