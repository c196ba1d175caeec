"""What a node says about itself: every two seconds, and soon after every change."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bus.client import Bus
from bus.errors import BusError
from schemas import Heartbeat

SECONDS = 2.0
SPACING_SECONDS = 0.2
"""Changes closer together than this are told in one heartbeat."""


class Pulse:
    """The state that the next heartbeat tells."""

    def __init__(self, kind: str, name: str) -> None:
        self.capacity: dict[str, float] = {}
        self._kind = kind
        self._name = name
        self._state = "starting"
        self._waiting = False
        self._since = time.monotonic()
        self._fields: dict[str, Any] = {}
        self._changed = asyncio.Event()

    def state(self, text: str, waiting: bool) -> None:
        """What the node does or waits for; saying the same again keeps its clock running."""
        if (text, waiting) != (self._state, self._waiting):
            self._state, self._waiting, self._since = text, waiting, time.monotonic()
            self._changed.set()

    def set(self, **fields: Any) -> None:
        """Other fields of `Heartbeat` (url, parent, versions, alarms), kept until they are set again."""
        self._fields.update(fields)
        self._changed.set()

    def event(self, node: str) -> Heartbeat:
        """The heartbeat as of now."""
        return Heartbeat.model_validate(
            {
                "kind": self._kind,
                "node": node,
                "name": self._name,
                "state": self._state[:4096],
                "waiting": self._waiting,
                "seconds": time.monotonic() - self._since,
                "capacity": dict(self.capacity),
                **self._fields,
            }
        )

    async def beat(self, bus: Bus) -> None:
        """Publish heartbeats for ever; one that cannot be sent in time is dropped, it would be stale."""
        while True:
            self._changed.clear()
            await self.once(bus)
            await asyncio.sleep(SPACING_SECONDS)
            try:
                async with asyncio.timeout(SECONDS - SPACING_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def once(self, bus: Bus) -> None:
        """Publish one heartbeat, within two seconds or not at all."""
        try:
            async with asyncio.timeout(SECONDS):
                await bus.publish(self.event(bus.public_key))
        except TimeoutError:
            pass
        except BusError as error:
            raise BusError(f"no heartbeat can be published: {error}") from None
