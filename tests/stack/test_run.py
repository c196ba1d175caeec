"""The whole stack in one process: it learns nothing in three steps, but everything has to happen."""

from __future__ import annotations

from pathlib import Path

from bus.server import Server
from tests.stack import invariants
from tests.stack.local import configure, finished, local, read


async def test_a_run_from_the_first_grant_to_its_end(nats_server: Server, tmp_path: Path) -> None:
    config = configure(nats_server.url, tmp_path, run={"name": "whole"})
    async with local(config, tmp_path) as running:
        running.trainer()
        running.relays()
        running.validator()
        running.worker()
        running.worker("cheat", dishonest=True)
        running.evaluator()
        await finished(running, "trainer")
        await finished(running, "evaluator")
        cheat = running.key("worker", "cheat")
    await invariants.check(config)
    view = await read(config)
    assert view.ended is not None
    assert view.ended.reason == "finished"
    assert [step.step for step in view.steps] == [0, 1, 2]
    assert [published.version for published in view.policies] == [0, 1, 2, 3]
    assert view.ended.digest == view.policies[-1].digest == view.steps[-1].digest_after
    assert view.trained[cheat] == 0
    assert view.rejected(cheat) == view.rejected()
    assert cheat in view.slashed
    assert max(view.lags) <= config.lag.max_lag
    assert sorted(view.evals) == [0, 3]
