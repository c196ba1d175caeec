"""Which relays there are: those whose heartbeat on the bus is fresh, and those named when a policy was announced."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from bus import Bus, Record
from bus.tasks import together
from schemas import Heartbeat, PolicyPublished

FRESH_SECONDS = 10.0
MAX_RELAYS = 256


class Sources(Protocol):
    """Base URLs at which chunks may be asked for now; both may be empty for a while."""

    def urls(self) -> Sequence[str]:
        """Relays, to be asked first."""
        ...

    def last_resort(self) -> Sequence[str]:
        """The origin, above all: asked when no relay can be reached, or none has the chunk for a while."""
        ...


def relay_url(text: str) -> str:
    """A base URL without its last slash. Raises ValueError unless it is http(s)://host[:port][/path] and nothing more."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or len(text) > 256:
        raise ValueError(f"{text[:80]!r} is not a relay's URL; http://host:port is expected")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError(f"{text[:80]!r}: a relay's URL has no user, query or fragment")
    _ = parts.port  # ValueError when it is no port
    return text.rstrip("/")


class Fixed:
    """Always the same relays."""

    def __init__(self, *urls: str) -> None:
        self._urls = tuple(relay_url(url) for url in urls)

    def urls(self) -> Sequence[str]:
        return self._urls

    def last_resort(self) -> Sequence[str]:
        return ()


class Relays:
    """The relays of a run as their heartbeats tell, and the holders that the last announcement named."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}
        self._holders: tuple[str, ...] = ()
        self._ahead = -math.inf
        """The server's clock minus this process's monotonic clock, as far as is known."""

    def urls(self) -> Sequence[str]:
        return list(dict.fromkeys(node.url for node in self._fresh() if node.has_parent))

    def last_resort(self) -> Sequence[str]:
        origins = [node.url for node in self._fresh() if not node.has_parent]
        relays = self.urls()
        return [url for url in dict.fromkeys([*origins, *self._holders]) if url not in relays]

    async def follow(self, bus: Bus) -> None:
        """Keep this up to date for ever; run it as a task of the component."""
        await together(self._follow_heartbeats(bus), self._follow_announcements(bus))

    def heard(self, record: Record[Heartbeat]) -> None:
        """Take in one heartbeat; one without a usable URL means that the node does not serve."""
        self._ahead = max(self._ahead, record.timestamp - time.monotonic())
        self._nodes.pop(record.signer, None)
        with contextlib.suppress(ValueError):
            url = relay_url(record.event.url)
            self._nodes[record.signer] = _Node(url, bool(record.event.parent), record.timestamp)
        if len(self._nodes) > MAX_RELAYS:
            del self._nodes[next(iter(self._nodes))]  # the one heard of longest ago

    def announced(self, policy: PolicyPublished) -> None:
        """Take in who held a version whole when it was announced."""
        self._holders = tuple(url for url in policy.holders if _usable(url))

    def _fresh(self) -> list[_Node]:
        oldest = time.monotonic() + self._ahead - FRESH_SECONDS
        return [node for node in self._nodes.values() if node.heard >= oldest]

    async def _follow_heartbeats(self, bus: Bus) -> None:
        async with aclosing(bus.records(Heartbeat, kind="relay")) as records:
            async for record in records:
                self.heard(record)

    async def _follow_announcements(self, bus: Bus) -> None:
        async with aclosing(bus.records(PolicyPublished)) as records:
            async for record in records:
                self.announced(record.event)


@dataclass(frozen=True)
class _Node:
    url: str
    has_parent: bool
    heard: float
    """When the server stored its last heartbeat, by the server's clock."""


def _usable(url: str) -> bool:
    try:
        return bool(relay_url(url))
    except ValueError:
        return False
