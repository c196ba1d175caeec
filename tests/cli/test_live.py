from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Sequence

import pytest
from rich.console import Console

from cli import live
from cli.view import RunView
from schemas import Control
from tests.cli.runs import NOW, batch, heartbeat, verdict, view
from tests.schemas.examples import EXAMPLES, VALIDATOR, WORKER

HOSTILE = "\x1b]0;owned\x07\x1b[2J[red]evil[/red][link=x]\r\n\u202eback"


def console(file: io.StringIO, terminal: bool = True, width: int = 150) -> Console:
    return Console(file=file, force_terminal=terminal, width=width, height=45, color_system="truecolor")


def drawn(made: RunView, expected: Sequence[str] = (), now: float = NOW, width: int = 150) -> str:
    """What a terminal shows, without its colours; fails when something else steers the terminal."""
    file = io.StringIO()
    console(file, width=width).print(live.render(made, 60, expected, NOW - 75, now, width))
    text = re.sub(r"\x1b\[[\d;]*m", "", file.getvalue())
    assert all(line.isprintable() for line in text.splitlines())
    return text


def test_the_view_shows_all_that_a_person_asks() -> None:
    made = view(
        EXAMPLES["StepCompleted"],
        EXAMPLES["EvalCompleted"],
        EXAMPLES["Slashed"],
        batch(4, (WORKER, 3), (WORKER, 3), (WORKER, 4)),
        verdict("accepted", "accepted", "rejected"),
        heartbeat("laptop", capacity={"tokens_per_s": 812.4}, seconds=3.0),
        heartbeat("judge", kind="validator", node=VALIDATOR, state="waiting for rollouts", waiting=True),
    )
    text = drawn(made, expected=["laptop", "attic"])
    assert "cairn  1:15 min" in text
    assert "5 of 60" in text
    assert "0.625" in text
    assert "exact 0.812  (256 held-out prompts)" in text
    assert "1 groups at 0, 2 groups at 1" in text
    assert "2 accepted, 1 rejected  (failed: end)" in text
    assert "laptop: tokens of another model, 3 times" in text
    assert re.search(r"laptop +generating 8 groups +3 s +812 +2 +1", text)
    assert re.search(r"judge +waiting for rollouts +0 s", text)
    assert re.search(r"attic +starting +1:15 min", text)
    assert "control" not in text


def test_an_empty_run_shows_what_is_started() -> None:
    assert re.search(r"trainer +starting", drawn(RunView(), expected=["trainer"]))


def test_a_narrow_terminal_keeps_what_matters() -> None:
    made = view(heartbeat("laptop", capacity={"tokens_per_s": 812.4}, seconds=3.0), verdict("accepted"))
    text = drawn(made, width=80)
    assert re.search(r"laptop +generating 8 groups +3 s *│", text)
    assert max(map(len, text.splitlines())) == 80


def test_what_is_started_again_is_not_silent() -> None:
    made = view(heartbeat("attic"), at=NOW - 1000)
    assert re.search(r"attic +starting +1:15 min", drawn(made, expected=["attic"]))
    assert re.search(r"attic +silent +16:40 min", drawn(made))


def test_what_strangers_say_is_plain_text() -> None:
    made = view(
        heartbeat(HOSTILE, state=HOSTILE, alarms=(HOSTILE,)),
        EXAMPLES["Slashed"].replace(reason=HOSTILE),
        Control(action="pause", reason=HOSTILE),
        verdict("accepted"),
    )
    text = drawn(made)
    assert "[red]evil[/red]" in text
    assert "owned" in text
    assert "\u202e" not in live.line(made, 60)


def test_a_crowd_of_nodes_does_not_fill_the_terminal() -> None:
    made = view(*(heartbeat(f"n{number}", node=f"U{number:055}") for number in range(1000)))
    text = drawn(made)
    assert text.count("generating") == live.NODES
    assert f"and {1000 - live.NODES} more" in text


@pytest.mark.parametrize(
    ("fields", "age", "shown"),
    [
        ({"seconds": 3.0}, 2, r"generating 8 groups +5 s"),
        ({}, 60, r"silent +1:00 min"),
        ({"state": "stopped"}, 60, r"stopped +1:00 min"),
        ({"alarms": ("disk full",)}, 0, r"generating 8 groups  \(disk full\)"),
    ],
)
def test_states(fields: dict[str, object], age: float, shown: str) -> None:
    assert re.search(shown, drawn(view(heartbeat("laptop", **fields)), now=NOW + age))


def test_a_paused_run_says_who_and_why() -> None:
    paused = view(Control(action="pause", reason="moving the GPUs"))
    assert "by an operator: pause  moving the GPUs" in drawn(paused)
    assert "operator" not in drawn(view(Control(action="pause"), Control(action="resume")))


def test_the_line_for_logs() -> None:
    made = view(
        EXAMPLES["StepCompleted"],
        verdict("accepted", "rejected"),
        heartbeat("laptop", state="waiting for grants", waiting=True),
    )
    assert live.line(made, 60) == (
        "step 5/60  reward 0.625  lag 0  0 tokens/s  1 accepted  1 rejected  (laptop waiting for grants)"
    )
    assert live.line(RunView(), 60).startswith("step 0/60  no step yet")


@pytest.mark.parametrize(
    ("values", "drawing"),
    [
        ([], ""),
        ([0.5], "▁"),
        ([0.0, 0.5, 1.0], "▁▄█"),
        ([1.0, 0.0], "█▁"),
        ([0.0] * 60 + [1.0] * 60, "▁" * 20 + "█" * 20),
    ],
)
def test_spark(values: list[float], drawing: str) -> None:
    assert live.spark(values) == drawing


def test_spark_never_exceeds_its_width() -> None:
    assert all(len(live.spark([0.1] * count)) <= 40 for count in range(1, 500))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.9, "0 s"), (59.9, "59 s"), (60, "1:00 min"), (3599, "59:59 min"), (3720, "1:02 h")],
)
def test_duration(seconds: float, text: str) -> None:
    assert live.duration(seconds) == text


async def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PLAIN_SECONDS", 0.0)
    file = io.StringIO()
    async with live.shown(RunView(), console(file, terminal=False), 60, ["trainer", "origin"]):
        while file.getvalue().count("\n") < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
    first, second, *_ = file.getvalue().splitlines()
    assert first == "starting trainer, origin"
    assert second.startswith("step 0/60")


async def test_in_a_terminal_the_view_leaves_nothing_behind() -> None:
    file = io.StringIO()
    async with live.shown(RunView(), console(file), 60, ["trainer"]):
        while "starting" not in file.getvalue():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert file.getvalue().endswith("\x1b[2K")
