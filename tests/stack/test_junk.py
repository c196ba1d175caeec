"""Messages of every wrong kind in every stream: dead letters where a handler takes them, and no other harm."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import msgpack
import zstandard

from bus import Bus, Identity
from bus.envelope import ENCODING, KEY, SCHEMA, SIGNATURE, _signed, seal
from bus.server import Server
from schemas import AuditKeyCommitted, TaskClosed, TaskGranted, WorkRequested
from tests.schemas.examples import EXAMPLES
from tests.stack import invariants
from tests.stack.local import configure, finished, local
from tests.stack.watch import seen

BOMB = zstandard.compress(msgpack.packb({"task": "x" * (64 << 20)}))


class Stranger:
    """Knows the protocol, has a key of its own and may publish on any subject. buried: what a handler will take."""

    def __init__(self, bus: Bus, me: Identity) -> None:
        self.bus, self.me = bus, me
        self.good = seal(EXAMPLES["Rollouts"].replace(worker=self.me.public_key), bus.run, self.me)
        self.buried: set[int] = set()

    def subjects(self) -> list[str]:
        """One in every stream."""
        me = self.me.public_key
        return [
            "run", f"requests.{me}", f"tasks.{me}.0.0", f"proofs.{me}.0.0.0", f"rollouts.{me}.0.0.0",
            f"verdicts.{me}.0.0.0.0", "batches", "steps", "policies", f"standings.{me}", f"nodes.worker.{me}",
            "control", "dead.ROLLOUTS", "tasks.writer",
        ]  # fmt: skip

    async def put(self, subject: str, payload: bytes, headers: dict[str, str]) -> None:
        reply = await self.bus.connection.request(f"{self.bus.run}.{subject}", payload, headers)
        stored = json.loads(reply.data)
        if stored["stream"].endswith("_ROLLOUTS"):
            self.buried.add(stored["seq"])

    async def everything(self, subject: str) -> None:
        """Garbage without and with headers, a good message moved here, its altered signature, and a bomb."""
        await self.put(subject, os.urandom(200), {})
        await self.put(subject, os.urandom(200), dict(self.good.headers))
        await self.put(subject, self.good.payload, self.signed(subject, self.good.payload, altered=True))
        await self.put(subject, self.good.payload, {**self.good.headers, "Nats-Msg-Id": os.urandom(8).hex()})
        await self.put(subject, BOMB, self.signed(subject, BOMB))

    def signed(self, subject: str, payload: bytes, altered: bool = False) -> dict[str, str]:
        """The headers of a Rollouts with this payload on this subject."""
        schema = self.good.headers[SCHEMA]
        signature = bytearray(
            self.me.sign(_signed(self.bus.run, f"{self.bus.run}.{subject}", schema, payload))
        )
        signature[7] ^= altered
        headers = {SCHEMA: schema, ENCODING: self.good.headers[ENCODING], KEY: self.me.public_key}
        return {**headers, SIGNATURE: base64.b64encode(signature).decode()}


async def test_junk_is_buried_and_harms_nothing(nats_server: Server, tmp_path: Path) -> None:
    """Junk is the last message of every stream when a grant expires and when the batches are formed."""
    config = configure(nats_server.url, tmp_path, run={"name": "junk"}, sampling={"seconds": 3.0})
    me = Identity.create()
    async with local(config, tmp_path) as running, Bus.connect(nats_server.url, "junk", me) as bus:
        running.trainer()
        running.relays()
        running.validator()
        await bus.wait_for_run(timeout=30)
        await seen(bus, AuditKeyCommitted)
        await bus.publish(WorkRequested(worker=me.public_key, groups=2, seconds=2.0))
        await seen(bus, TaskGranted)
        stranger = Stranger(bus, me)
        for subject in stranger.subjects():
            await stranger.everything(subject)
        await seen(bus, TaskClosed)
        running.worker()
        await finished(running)
    history = await invariants.check(config)
    assert {record.event.sequence for record in history.dead} == stranger.buried
    assert {record.event.source for record in history.dead} == {"ROLLOUTS"}
    assert me.public_key in {event.worker for event in history.closes("expired")}
    assert not history.closes("rejected", "dead")
