"""Fetching what was announced before anybody asks: the newest version first, chunk by chunk."""

from __future__ import annotations

import asyncio

import structlog

from bus.tasks import together
from relay.errors import DiskFull, UnknownChunk, WeightsUnavailable
from relay.server import RelayServer
from relay.transfer import AT_ONCE
from schemas import PolicyPublished

RETRY_SECONDS = 15.0

log = structlog.get_logger()


class Prefetch:
    """Keeps AT_ONCE chunks on their way; each time the next one is of the newest version that lacks any.

    A chunk that cannot be had is put off for RETRY_SECONDS, or until something new is announced; meanwhile the
    server still tries for whoever asks. problem: why the last one could not be had; empty when all is well.
    """

    def __init__(self, server: RelayServer) -> None:
        self.problem = ""
        self._server = server
        self._news = asyncio.Condition()
        self._moving: set[str] = set()
        self._put_off: set[str] = set()

    async def announce(self, event: PolicyPublished) -> None:
        """Register the version and begin to fetch it. Raises DiskFull."""
        await asyncio.to_thread(self._server.store.register, event.version, event.manifest)
        await self._look_again()

    async def run(self) -> None:
        """Fetch for ever."""
        await together(self._retry(), *(self._fetch() for _ in range(AT_ONCE)))

    async def _retry(self) -> None:
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            await self._look_again()

    async def _look_again(self) -> None:
        async with self._news:
            self._put_off.clear()
            self._news.notify_all()

    async def _fetch(self) -> None:
        while True:
            async with self._news:
                chunk = await self._news.wait_for(self._next)
                self._moving.add(chunk)
            try:
                await self._server.obtain(chunk)
                self.problem = ""
            except UnknownChunk:
                pass  # its version was dropped meanwhile
            except (WeightsUnavailable, DiskFull) as error:
                self.problem = str(error)
                self._put_off.add(chunk)
                self._server.changed.set()
                log.warning("cannot prefetch", reason=self.problem)
            finally:
                self._moving.discard(chunk)

    def _next(self) -> str:
        """The next chunk to fetch, "" when there is none."""
        store = self._server.store
        wanted = (chunk for version in store.incomplete() for chunk in store.missing(version))
        return next(
            (chunk for chunk in wanted if chunk not in self._moving and chunk not in self._put_off), ""
        )
