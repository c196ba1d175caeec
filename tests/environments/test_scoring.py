from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys

import pytest

from environments import Scored, Scorer, ScoringFailed
from schemas.config import ConfigError

SOURCE = """
import os, re, time
from environments import Environment

class Trap(Environment):
    def tasks(self):
        return ["first", "second"]
    def prompt(self, task):
        return task
    def reward(self, task, text):
        print("noise on stdout")
        if text == "raise":
            raise LookupError("no test file")
        if text == "hang":
            time.sleep(60)
        if text == "backtrack":  # holds the interpreter's lock: only a signal from outside ends it
            re.match("(a+)+$", "a" * 60 + "b")
        if text == "exit":
            os._exit(3)
        if text == "nan":
            return float("nan")
        if text == "pid":
            return os.getpid()
        return float(text == task)
    def metrics(self, task, text):
        return {"length": len(text)}
"""


@pytest.fixture
def trap(tmp_path):
    path = tmp_path / "trap.py"
    path.write_text(SOURCE)
    return f"{path}:Trap"


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_a_group_is_scored_in_order():
    async with Scorer("reverse-text", {"count": 4, "min_length": 4, "max_length": 4}) as scorer:
        outcomes = await scorer.score(0, ["", "x" * 4, "\ud800"])
    assert outcomes == [Scored(0.0, {"exact": 0.0})] * 3


async def test_overlapping_calls_get_their_own_outcomes(trap):
    async with Scorer(trap) as scorer:
        first, second = await asyncio.gather(
            scorer.score(0, ["first", "second"]), scorer.score(1, ["second"])
        )
    assert [outcome.reward for outcome in first] == [1.0, 0.0]
    assert second == [Scored(1.0, {"length": 6.0})]


async def test_an_error_is_an_outcome_and_not_a_reward_of_zero(trap):
    async with Scorer(trap) as scorer:
        before = await scorer.score(0, ["pid"])
        outcomes = await scorer.score(0, ["first", "raise", "nan", "pid"])
        beyond = await scorer.score(2, ["first"])
    assert outcomes[0] == Scored(1.0, {"length": 5.0})
    assert outcomes[1] == ScoringFailed("LookupError: no test file")
    assert "nan" in outcomes[2].reason
    assert outcomes[3] == before[0]  # the child lives on
    assert beyond == [ScoringFailed("IndexError: list index out of range")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("hang", "longer than 0.5 s"), ("backtrack", "longer than 0.5 s"), ("exit", "exit code 3")],
)
async def test_the_completion_that_hangs_or_kills_fails_alone(trap, text, reason):
    async with Scorer(trap, seconds=0.5) as scorer:
        before, failed, after, last = await scorer.score(0, ["pid", text, "pid", "first"])
    assert reason in failed.reason
    assert after.reward != before.reward
    assert last == Scored(1.0, {"length": 5.0})
    assert gone(int(before.reward))
    assert gone(int(after.reward))


async def test_killed_between_calls_it_starts_again(trap):
    async with Scorer(trap) as scorer:
        (before,) = await scorer.score(0, ["pid"])
        os.kill(int(before.reward), signal.SIGKILL)
        failed, after = await scorer.score(0, ["first", "first"])
    assert failed == ScoringFailed("the scoring process died with exit code -9")
    assert after == Scored(1.0, {"length": 5.0})


async def test_a_cancelled_call_leaves_no_replies_behind(trap):
    async with Scorer(trap) as scorer:
        call = asyncio.create_task(scorer.score(0, ["hang"]))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await scorer.score(0, ["first"]) == [Scored(1.0, {"length": 5.0})]


async def test_an_environment_that_cannot_be_loaded():
    with pytest.raises(ConfigError, match="environment 'nothing': no such name"):
        async with Scorer("nothing"):
            pass


PARENT = """
import asyncio, sys
from environments import Scorer

async def main():
    async with Scorer(sys.argv[1]) as scorer:
        (child,) = await scorer.score(0, ["pid"])
        print(int(child.reward), flush=True)
        await scorer.score(0, ["backtrack"])

asyncio.run(main())
"""


def test_the_child_dies_with_its_parent_even_while_it_hangs(trap):
    parent = subprocess.Popen([sys.executable, "-c", PARENT, trap], stdout=subprocess.PIPE, text=True)
    with parent.stdout:
        child = os.pidfd_open(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    ended, _, _ = select.select([child], [], [], 5)
    os.close(child)
    assert ended
