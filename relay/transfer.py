"""Getting one chunk over HTTP from whichever source delivers it: used by clients and by relays for their parent."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import aiohttp
import structlog

from bus.retry import delays
from relay.errors import BadChunk, WeightsUnavailable
from relay.files import Bytes
from relay.selection import Selection
from relay.sources import Sources

CONNECT_SECONDS = 5.0
SILENCE_SECONDS = 20.0
"""A source that sends nothing for so long has failed; longer than a server's LONG_POLL_SECONDS."""
AT_ONCE = 8
"""Chunks on their way at a time, and so in memory."""
LAST_RESORT_SECONDS = 1.0
"""Relays that do not have a chunk yet are given so long before the sources of last resort are asked."""
NOT_HERE = "does not have it"
SLOWEST = 32 << 10
"""Bytes a second below which a transfer is given up."""

log = structlog.get_logger()


class NotHere(Exception):
    """The source does not have the chunk yet, or no longer: no fault of its own."""


def open_session() -> aiohttp.ClientSession:
    """A session for hostile peers: no cookies, no decompression, bounded headers and read-ahead."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        read_bufsize=1 << 20,
    )


class Downloads:
    """Fetches chunks from `sources`, AT_ONCE at a time; gives up on one that nobody has for `patience` seconds."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        sources: Sources,
        selection: Selection | None = None,
        patience: float = 60.0,
    ) -> None:
        self.session = session
        self.sources = sources
        self.selection = selection or Selection()
        self.patience = patience
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def chunk(self, chunk: str, size: int, keep: Callable[[Bytes], None]) -> None:
        """Hand the chunk's `size` bytes to `keep`, called in a thread, which raises BadChunk when they are wrong.

        Every source is tried once, then again after a pause that grows. Raises WeightsUnavailable, and whatever
        else `keep` raises.
        """
        started = time.monotonic()
        for pause in delays():
            waited = time.monotonic() - started
            outcomes = await self._ask_each(chunk, size, keep, late=waited > LAST_RESORT_SECONDS)
            if outcomes is None:
                return
            if waited > self.patience:
                tried = (
                    "; ".join(f"{url}: {outcome}" for url, outcome in outcomes.items()) or "no relay is known"
                )
                raise WeightsUnavailable(
                    f"chunk {chunk[:12]} was not to be had within {self.patience:g} s ({tried}); "
                    "is a relay running, and is this version still kept?"
                )
            await asyncio.sleep(pause)

    async def _ask_each(
        self, chunk: str, size: int, keep: Callable[[Bytes], None], late: bool
    ) -> dict[str, str] | None:
        """None once the chunk is kept, else why each source did not deliver."""
        outcomes: dict[str, str] = {}
        while left := self._left(outcomes, late):
            url = self.selection.choose(left)
            try:
                async with self._slots:  # held only while asking, not in the pauses between
                    started = time.monotonic()
                    await asyncio.to_thread(keep, await self._get(url, chunk, size))
                    self.selection.succeeded(url, size, time.monotonic() - started)
                return None
            except NotHere:
                outcomes[url] = NOT_HERE
            except BadChunk as error:
                self.selection.corrupted(url)
                outcomes[url] = str(error)
                log.warning("wrong chunk, asking another relay", source=url, reason=str(error))
                await self._report(url, chunk)
            except (aiohttp.ClientError, TimeoutError) as error:
                self.selection.failed(url)
                outcomes[url] = str(error) or "no answer in time"
        return outcomes

    def _left(self, outcomes: dict[str, str], late: bool) -> list[str]:
        """Who is still to be asked: every relay, then the last resort, but not when a relay may soon have it."""
        left = [url for url in self.sources.urls() if url not in outcomes]
        if not left and (late or NOT_HERE not in outcomes.values()):
            left = [url for url in self.sources.last_resort() if url not in outcomes]
        return left

    async def _get(self, url: str, chunk: str, size: int) -> bytearray:
        timeout = aiohttp.ClientTimeout(
            total=SILENCE_SECONDS + size / SLOWEST, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS
        )
        async with self.session.get(
            f"{url}/chunks/{chunk}", timeout=timeout, allow_redirects=False
        ) as response:
            if response.status in (404, 503):
                raise NotHere
            if response.status != 200:
                raise aiohttp.ClientError(f"HTTP status {response.status}")
            data, filled = bytearray(size), 0
            async for piece in response.content.iter_any():
                if filled + len(piece) > size:
                    raise BadChunk(f"chunk {chunk[:12]}: more than its {size} bytes")
                data[filled : filled + len(piece)] = piece
                filled += len(piece)
        if filled < size:
            raise BadChunk(f"chunk {chunk[:12]}: {filled} bytes instead of {size}")
        return data

    async def _report(self, url: str, chunk: str) -> None:
        """Tell the source, so that it hashes its copy again and drops it."""
        timeout = aiohttp.ClientTimeout(total=CONNECT_SECONDS)
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with self.session.post(
                f"{url}/chunks/{chunk}/report", timeout=timeout, allow_redirects=False
            ):
                pass
