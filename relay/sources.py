"""Which relays there are: those whose heartbeat on the bus is fresh, and those named when a policy was announced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from urllib.parse import urlsplit

FRESH_SECONDS = 10.0
MAX_RELAYS = 256


class Sources(Protocol):
    def urls(self) -> Sequence[str]:
        """Base URLs at which chunks may be asked for now; it may be empty for a while."""
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
