from __future__ import annotations

import io

from rich.console import Console

from bus.testing import Run
from cli import summary
from cli.summary import Result
from cli.view import RunView
from schemas import Control
from tests.cli.runs import NOW, apply, batch, heartbeat, verdict
from tests.schemas.examples import EXAMPLES, VALIDATOR, WORKER

CHEAT = WORKER
HONEST = VALIDATOR


def run() -> RunView:
    """Two batches of one honest worker and what a cheat tried."""
    made = RunView()
    evaluated = EXAMPLES["EvalCompleted"]
    apply(
        made,
        evaluated.replace(version=0, metrics={"exact": 0.25}),
        heartbeat("cheat-1", node=CHEAT),
        verdict("accepted", "accepted", worker=HONEST, tokens=50),
        verdict("rejected", "void", worker=CHEAT),
        EXAMPLES["Slashed"].replace(node=CHEAT, reason="another model [red]"),
        batch(0, (HONEST, 0)),
        EXAMPLES["StepCompleted"].replace(step=0, metrics={"reward": 0.5}),
    )
    apply(
        made,
        verdict("accepted", "unaudited", worker=HONEST, tokens=50),
        batch(1, (HONEST, 0)),
        EXAMPLES["StepCompleted"].replace(step=1, metrics={"reward": 0.75}),
        EXAMPLES["PolicyPublished"],
        evaluated.replace(version=2, metrics={"exact": 0.91}),
        at=NOW + 4,
    )
    return made


def test_figures() -> None:
    found = summary.figures(run(), {CHEAT}, "exact", seconds=12.34, seed=3)
    size = EXAMPLES["PolicyPublished"].manifest.size  # type: ignore[attr-defined]
    assert found == {
        "steps": 2,
        "reward_first": 0.25,
        "reward_last": 0.91,
        "rollouts_accepted": 4,
        "rollouts_rejected": 1,
        "rollouts_trained": 4,
        "honest_rejected": 0,
        "cheat_trained": 0,
        "max_lag_seen": 1,
        "policy_bytes_full": size,
        "policy_bytes_sent": size,
        "tokens_per_s": 50.0,
        "seconds": 12.3,
        "seed": 3,
    }


def test_who_is_no_cheat_is_honest() -> None:
    found = summary.figures(run(), {HONEST}, "exact", seconds=1.0, seed=0)
    assert (found["honest_rejected"], found["cheat_trained"]) == (1, 4)


def test_a_run_that_did_nothing() -> None:
    found = summary.figures(RunView(), set(), "exact", seconds=1.0, seed=0)
    assert (found["steps"], found["reward_last"], found["tokens_per_s"]) == (0, None, 0.0)
    summary.show(Result(found, RunView()), "exact", Console(file=io.StringIO()))


def test_the_table() -> None:
    made = run()
    file = io.StringIO()
    result = Result(summary.figures(made, {CHEAT}, "exact", seconds=75.0, seed=3), made)
    summary.show(result, "exact", Console(file=file, width=120))
    text = file.getvalue()
    assert "▁█  0.500 -> 0.750" in text
    assert "0.250 (policy 0), 0.910 (policy 2)" in text
    assert "3 accepted, 1 rejected, 1 unaudited, 1 void  (failed: end)" in text
    assert "cheat-1: another model [red]" in text
    assert "4 rollouts, 0 of the cheat" in text
    assert "200 (50/s)" in text
    assert "1:15 min" in text


async def test_a_run_is_read_from_its_streams(run: Run) -> None:
    async with run.connect("operator") as bus:
        await bus.publish(Control(action="pause", reason="lunch"))
        made = await summary.read(bus)
    assert made.control is not None
    assert made.control.reason == "lunch"
