"""Listening: one address, and an end to connections that never ask anything."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections.abc import AsyncIterator

from aiohttp import web
from aiohttp.typedefs import Handler
from yarl import URL

from relay.errors import RelayError

KEEPALIVE_SECONDS = 30.0
SHUTDOWN_SECONDS = 0.3
"""For answers on their way. Longer helps no upload: once it stops, aiohttp drops what arrives. Twice this is less
than the second after which `bus.tasks.cancel` loses its patience."""
FIRST_REQUEST_SECONDS = 15.0
"""A new connection must have sent the headers of its first request by then; aiohttp itself waits for ever."""


@contextlib.asynccontextmanager
async def listen(application: web.Application, host: str, port: int) -> AsyncIterator[str]:
    """Serve `application` while the context lasts; yields its base URL. Port 0: any free one. Raises RelayError."""
    served: set[object] = set()

    @web.middleware
    async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
        served.add(request.protocol)
        return await handler(request)

    application.middlewares.append(note)
    runner = web.AppRunner(
        application,
        access_log=None,
        handler_cancellation=True,
        keepalive_timeout=KEEPALIVE_SECONDS,
        lingering_time=0.0,  # a refused body is not read
        shutdown_timeout=SHUTDOWN_SECONDS,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
            raise RelayError(f"{host}:{port} {why}; choose another address or port") from None
        sweeper = asyncio.create_task(_sweep(runner, served))
        try:
            bound = runner.addresses[0]
            yield str(URL.build(scheme="http", host=bound[0], port=bound[1]))
        finally:
            sweeper.cancel()
            await asyncio.gather(sweeper, return_exceptions=True)
    finally:
        await runner.cleanup()


async def _sweep(runner: web.AppRunner, served: set[object]) -> None:
    waiting_since: dict[object, float] = {}
    while True:
        await asyncio.sleep(FIRST_REQUEST_SECONDS / 10)
        connections = runner.server.connections if runner.server else []
        served.intersection_update(connections)
        now = time.monotonic()
        waiting_since = {each: waiting_since.get(each, now) for each in connections if each not in served}
        for connection in connections:
            if now - waiting_since.get(connection, now) > FIRST_REQUEST_SECONDS:
                connection.force_close()
