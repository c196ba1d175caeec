"""Pauses a run, which its operator may, and tells of every policy that it publishes:

CAIRN_URL=nats://HOST:4222 python examples/watch.py
"""

import asyncio
import os

from bus import Bus
from schemas import Control, PolicyPublished

url = os.environ.get("CAIRN_URL", "nats://127.0.0.1:4222")


async def watch() -> None:
    async with Bus.connect(url, run="demo") as bus:
        await bus.publish(Control(action="pause"))
        async for sequence, policy in bus.read(PolicyPublished, after=0):
            print(sequence, policy.version)


asyncio.run(watch())
