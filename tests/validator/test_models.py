"""The policies that a validator holds, fetched from a real origin."""

from __future__ import annotations

from pathlib import Path

import pytest

import policy
from bus.testing import Run
from policy import DigestMismatch
from tests.trainer import tiny
from tests.validator.runs import announce, published
from validator.models import Models


async def test_the_least_recently_used_policy_makes_room(run: Run, tmp_path: Path) -> None:
    versions = [tiny.model(seed) for seed in range(3)]
    async with published(run, tmp_path, *versions) as (policies, _):
        models = Models(policies, "float32", keep=2)
        zero, one = await models.get(0), await models.get(1)
        assert await models.get(0) is zero
        assert [version in models for version in range(3)] == [True, True, False]
        two = await models.get(2)
        assert two is one, "its weights were exchanged in place"
        assert [version in models for version in range(3)] == [True, False, True]
        assert policy.digest(zero) == policy.digest(versions[0])
        assert policy.digest(two) == policy.digest(versions[2])
        assert not two.training


async def test_weights_that_are_not_the_announced_ones_are_not_held(run: Run, tmp_path: Path) -> None:
    async with published(run, tmp_path, tiny.model(0)) as (policies, top):
        models = Models(policies, "float32", keep=1)
        await models.get(0)
        await announce(run, top, tmp_path, 1, tiny.model(1), "1" * 64)
        await policies.after(0)
        with pytest.raises(DigestMismatch, match="announced"):
            await models.get(1)
        assert 0 not in models, "its model holds other weights now"
        assert 1 not in models
        assert policy.digest(await models.get(0)) == policy.digest(tiny.model(0))
