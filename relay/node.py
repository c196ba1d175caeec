"""A node of kind "relay": the origin, or a relay below a parent, as a component on the bus.

It learns of versions from PolicyPublished and fetches them from its parent; its heartbeats tell where it is and
what it holds. The origin learns of versions from the trainer's uploads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path

import structlog

from bus import Bus, BusError, Component
from bus.tasks import together
from relay.chunks import ChunkStore
from relay.errors import RelayError
from relay.listener import listen
from relay.prefetch import Prefetch
from relay.server import LONG_POLL_SECONDS, RelayServer
from relay.sources import Fixed, relay_url
from relay.transfer import Downloads, open_session
from schemas import PolicyPublished

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104
TOLD_VERSIONS = 64
SPACING_SECONDS = 0.2

log = structlog.get_logger()


@dataclass(frozen=True)
class RelayNode:
    """What is particular to one node; `component.task(node.serve)` makes a component a relay.

    directory: where chunks are kept, in a folder per run. host, port: where it listens; 0: any free port.
    parent: base URL of the node above; empty: the run's origin. origin: there is none above, and the trainer
    may upload. url: under which others reach this node; empty: http://host:port.
    """

    directory: Path
    host: str = "127.0.0.1"
    port: int = 0
    parent: str = ""
    origin: bool = False
    url: str = ""

    async def serve(self, component: Component) -> None:
        """Serve until cancelled. Raises BusError for an address that cannot be used and for a full disk."""
        try:
            async with AsyncExitStack() as stack:
                await self._serve(component, stack)
        except RelayError as error:
            raise BusError(str(error)) from None

    async def _serve(self, component: Component, stack: AsyncExitStack) -> None:
        if self.host in EVERYWHERE and not self.url:
            raise RelayError(
                f"a relay that listens on {self.host} must be told the URL at which others reach it (--advertise)"
            )
        created = await component.bus.wait_for_run()
        folder = self.directory / f"{component.run_name}-{created.event.id[:8]}"
        store = await asyncio.to_thread(ChunkStore, folder, component.config.relay.keep)
        parent = "" if self.origin else relay_url(self.parent or component.config.relay.origin)
        session = await stack.enter_async_context(open_session())
        upstream = Downloads(session, Fixed(parent), patience=LONG_POLL_SECONDS) if parent else None
        writers = (await component.bus.trust()).roles["trainer"]
        server = RelayServer(store, upstream, writers)
        bound = await stack.enter_async_context(listen(server.application(), self.host, self.port))
        url = relay_url(self.url or bound)
        stack.callback(component.beat, url="", versions=())
        component.beat(url=url, parent=parent)
        component.doing("serving as the origin" if self.origin else f"serving below {parent}")
        log.info("serving weights", url=url, parent=parent)

        prefetch = Prefetch(server)
        work = [_tell(component, server, prefetch)]
        if upstream:
            work += [prefetch.run(), _follow(component.bus, prefetch, store.keep)]
        await together(*work)


async def _tell(component: Component, server: RelayServer, prefetch: Prefetch) -> None:
    """Put what the node holds, has sent and suffers from into its heartbeats."""
    while True:
        server.changed.clear()
        component.capacity["sent_bytes"] = server.sent_bytes
        alarms = (prefetch.problem,) if prefetch.problem else ()
        component.beat(versions=tuple(server.store.versions()[-TOLD_VERSIONS:]), alarms=alarms)
        await asyncio.sleep(SPACING_SECONDS)
        await server.changed.wait()


async def _follow(bus: Bus, prefetch: Prefetch, keep: int) -> None:
    """Announce the last `keep` versions of the past, then every new one."""
    recent: deque[PolicyPublished] = deque(maxlen=keep)
    after = 0
    async with aclosing(bus.records(PolicyPublished, live=False)) as past:
        async for record in past:
            recent.append(record.event)
            after = record.sequence
    for event in recent:
        await prefetch.announce(event)
    async with aclosing(bus.read(PolicyPublished, after=after)) as coming:
        async for _, event in coming:
            await prefetch.announce(event)
