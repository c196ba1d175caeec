"""A policy leaves the trainer: snapshot, upload to the origin, announcement. Runs beside the next step."""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog
from torch import Tensor

import policy
from bus import Writer
from bus.identity import Identity
from relay.errors import OriginAway
from relay.publication import upload
from schemas import Manifest, PolicyPublished
from schemas.config import Config
from trainer.progress import Progress
from trainer.scratch import scratch

log = structlog.get_logger()


class Publication:
    """directory: where snapshots lie while they are uploaded. template: the folder of the model that the run
    began with; its configuration and tokenizer travel with every version."""

    def __init__(
        self, config: Config, writer: Writer, identity: Identity, directory: Path, template: Path
    ) -> None:
        self._config, self._writer, self._identity = config, writer, identity
        self._directory, self._template = directory, template

    async def publish(self, weights: dict[str, Tensor], progress: Progress) -> PolicyPublished:
        """Announce `weights` as the policy that `progress` names, once the origin holds every chunk of them.

        An announcement that this trainer made before it was killed is not repeated.
        """
        lineage, version, digest = progress.lineage, progress.version, progress.digest
        relay = self._config.relay
        with scratch(self._directory, "policy-") as folder:
            await asyncio.to_thread(policy.save, weights, self._template, folder)
            manifest = await self._upload(Path(folder), version, digest)
        event = PolicyPublished(
            lineage=lineage,
            version=version,
            digest=digest,
            manifest=manifest,
            holders=(relay.origin,),
        )
        last = await self._writer.bus.last(PolicyPublished)
        if last is None or last.event.id != event.id:
            await self._writer.publish(event)
            log.info("policy published", version=version, digest=digest[:12], bytes=manifest.size)
        return event

    async def _upload(self, folder: Path, version: int, digest: str) -> Manifest:
        """Upload, however long the origin is away: training goes on as far as the lag allows."""
        relay = self._config.relay
        while True:
            try:
                return await upload(relay.origin, folder, version, digest, relay.chunk_bytes, self._identity)
            except OriginAway as error:
                log.warning("waiting for the origin", version=version, reason=str(error))
