"""A TCP proxy in front of a real server, to lose answers and connections at a chosen moment."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self
from urllib.parse import urlsplit


class Proxy:
    """deaf: while True, what the server says is dropped (also for connections made meanwhile)."""

    def __init__(self, url: str) -> None:
        self._upstream = urlsplit(url)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.deaf = False

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def cut(self) -> None:
        """Reset every connection."""
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(
            self._upstream.hostname, self._upstream.port
        )
        self._writers |= {writer, server_writer}
        for source, target, droppable in ((reader, server_writer, False), (server_reader, writer, True)):
            task = asyncio.create_task(self._pipe(source, target, droppable))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pipe(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, droppable: bool
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                if not (droppable and self.deaf):
                    target.write(data)
                    await target.drain()
        target.close()
        self._writers.discard(target)
        with contextlib.suppress(ConnectionError):
            await target.wait_closed()
