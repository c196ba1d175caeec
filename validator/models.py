"""The policies that a validator holds in memory: the last few versions, swapped in place."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any

import policy
from relay.policies import Policies


class Models:
    """At most `keep` policies, least recently used first out; its model object takes the new weights."""

    def __init__(self, policies: Policies, dtype: str, keep: int) -> None:
        self._policies, self._dtype, self._keep = policies, dtype, keep
        self._models: OrderedDict[int, Any] = OrderedDict()

    def __contains__(self, version: int) -> bool:
        """Whether getting this version costs nothing."""
        return version in self._models

    async def get(self, version: int) -> Any:
        """The model of a published version, its digest checked. Raises WeightsUnavailable."""
        if version not in self._models:
            folder = await self._policies.folder(version)
            digest = self._policies.published[version].digest
            if len(self._models) < self._keep:
                model = await asyncio.to_thread(policy.load, folder, self._dtype, policy.device())
                await asyncio.to_thread(policy.check_digest, model, digest)
            else:
                _, model = self._models.popitem(last=False)
                await asyncio.to_thread(policy.swap, model, folder, digest)
            self._models[version] = model
        self._models.move_to_end(version)
        return self._models[version]
