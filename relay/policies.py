"""The published policies as workers, validators and evaluators see them: announced on the bus, fetched once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bus import Bus
from bus.tasks import together
from relay.client import Client
from relay.errors import WeightsUnavailable
from relay.sources import Relays
from schemas import PolicyPublished

REMEMBERED = 64
"""Announcements kept; older versions can no longer be granted."""


class Policies:
    """Follows POLICIES and holds the folders of the versions that were asked for.

    published: the last announcements by version.
    """

    def __init__(self, bus: Bus, directory: Path, keep: int) -> None:
        """directory: where versions are kept, `keep` of them."""
        self.published: dict[int, PolicyPublished] = {}
        self._bus, self._relays = bus, Relays()
        self._client = Client(directory, self._relays, keep=keep)
        self._announced = asyncio.Condition()

    async def follow(self) -> None:
        """Read announcements and heartbeats of relays for ever; run it as a task of the component."""
        await together(self._relays.follow(self._bus), self._follow())

    async def _follow(self) -> None:
        async for _, event in self._bus.read(PolicyPublished, after=0):
            async with self._announced:
                self.published[event.version] = event
                while len(self.published) > REMEMBERED:
                    del self.published[min(self.published)]
                self._announced.notify_all()

    async def after(self, version: int) -> PolicyPublished:
        """The newest policy, once there is one with a version above `version` (-1: any)."""
        async with self._announced:
            await self._announced.wait_for(lambda: max(self.published, default=-1) > version)
            return self.published[max(self.published)]

    async def announced(self, version: int) -> PolicyPublished | None:
        """The announcement of exactly this version, once it was read; None when it is older than remembered."""
        async with self._announced:
            await self._announced.wait_for(lambda: max(self.published, default=-1) >= version)
            return self.published.get(version)

    async def folder(self, version: int) -> Path:
        """The verified files of a version, fetched when they are not here. Raises WeightsUnavailable, DiskFull."""
        event = await self.announced(version)
        if event is None:
            raise WeightsUnavailable(
                f"version {version} is no longer kept; the newest is {max(self.published)}"
            )
        return await self._client.fetch(event.manifest)
