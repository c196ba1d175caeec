"""This stack against TRL's GRPOTrainer and against bare loops: one task, one model, one batch, the same cores.

Three contestants take turns on this machine, all from the model and the settings of configs/demo.toml:
TRL in a virtual environment of its own, with the quickest of a few settings; two bare loops at once, one thread each
(bare_loop.py); the whole stack, all proofs and checks on, everything audited (whole_stack.py). Each trains
until 90 % of the held-out words are right, or until its time is up; the bare loops always use theirs up.

    .venv/bin/python benchmarks/peer_trl.py            five rounds, about 12 minutes
    .venv/bin/python benchmarks/peer_trl.py --quick    one round and no choice of settings, within 3 minutes

The last line on stdout is a JSON object. ratio_rollouts_per_s: stack / TRL. ratio_bare: stack / the two bare loops
together. Ratios are medians over rounds, each of neighbours in time: on a shared machine only those mean something.
seconds_to_bar, seconds_to_bar_trl: of training until the bar, null when most rounds did not get there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import whole_stack
from rich.console import Console
from rich.table import Table
from venvs import ROOT, python_of

from cli.stages import Tell, output_of, stage
from schemas.errors import CairnError

HERE = Path(__file__).resolve().parent
CONFIG = ROOT / "configs" / "demo.toml"
BAR = 0.9
EVERY = 5
"""Steps between evaluations, for all."""
BARE_SHARE = 2 / 3
"""Of the time allowed to the others, which seldom need all of theirs."""
CHOICE_SECONDS = 8.0
"""Of training with each of TRL's settings, to find the quickest."""
QUICK_SECONDS, QUICK_OVERHEAD = 170.0, 17.0
"""All of --quick, and what a contestant takes of it besides training: imports, starting, evaluations."""
OVERHEAD_SECONDS = 240.0
"""Allowed to a loop on top of its training time before it counts as stuck."""
REQUIREMENTS = ("trl==1.16.*",)


@dataclass(frozen=True)
class TrlSettings:
    """processes: data parallel, by torchrun. threads: of each. micro: rollouts in one forward pass of all processes."""

    processes: int
    threads: int
    micro: int

    def __str__(self) -> str:
        return f"{self.processes} process(es) x {self.threads} thread(s), micro-batch {self.micro}"


CANDIDATES = (TrlSettings(2, 1, 512), TrlSettings(1, 2, 512), TrlSettings(1, 2, 64), TrlSettings(1, 1, 128))
"""The first is what --quick takes."""


@dataclass(frozen=True)
class Contest:
    """What all contestants start from. bands: of the audit, as measured by `cairn calibrate`."""

    model: str
    bands: dict[str, float]
    seed: int

    def loop(self, seconds: float) -> list[str]:
        """Arguments of a loop."""
        options = {"seed": self.seed, "seconds": seconds, "every": EVERY, "bar": BAR}
        return [str(CONFIG), self.model, *(f"--{name}={value}" for name, value in options.items())]

    def trl(self, python: Path, settings: TrlSettings, seconds: float) -> dict[str, Any]:
        run = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={settings.processes}"]
        chosen = [f"--{name}={value}" for name, value in vars(settings).items()]
        command = [
            *map(str, (python, *(run if settings.processes > 1 else ()))),
            "-m",
            "peers.trl_run",
            *self.loop(seconds),
            *chosen,
        ]
        return outputs([command], settings.threads, seconds)[0]

    def bare_loops(self, seconds: float) -> list[dict[str, Any]]:
        """Two at once, one on each core."""
        return outputs([[sys.executable, "-m", "bare_loop", *self.loop(seconds)]] * 2, 1, seconds)

    def stack(self, seconds: float) -> dict[str, Any]:
        overrides = {"run.seed": str(self.seed), "policy.model": json.dumps(self.model)}
        overrides |= {f"audit.bands.{name}": str(value) for name, value in self.bands.items()}
        return asyncio.run(whole_stack.measure(CONFIG, overrides, seconds, EVERY, BAR))


def outputs(commands: list[list[str]], threads: int, seconds: float) -> list[dict[str, Any]]:
    """Run all side by side; the JSON object that each prints last. Raises RuntimeError with the end of its stderr."""
    # Passive: threads that spin while they wait for one another take the core from the one they wait for.
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
    running = [
        subprocess.Popen(
            command, cwd=HERE, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for command in commands
    ]
    try:
        ended = [process.communicate(timeout=seconds + OVERHEAD_SECONDS) for process in running]
    finally:
        for process in running:
            process.terminate()
            process.wait()
    for command, process, (_, errors) in zip(commands, running, ended, strict=True):
        if process.returncode:
            raise RuntimeError(f"{shlex.join(command)} failed:\n{errors[-3000:]}")
    return [json.loads(output.splitlines()[-1]) for output, _ in ended]


async def prepared(console: Console, seed: int) -> Contest:
    """The model and the bands; nobody's time."""
    with stage(console, "a tiny model, warmed up") as tell:
        model = await output_of(tell, "tiny", str(CONFIG), "--seed", str(seed))
    with stage(console, "the bands of the audit") as tell:
        bands = await output_of(tell, "calibrate", str(CONFIG), f"--policy.model={json.dumps(model)}")
    return Contest(model, json.loads(bands), seed)


def quickest(contest: Contest, python: Path, console: Console) -> TrlSettings:
    """The settings with which TRL makes most rollouts a second here and now."""
    rates = {}
    for settings in CANDIDATES:
        with stage(console, f"TRL with {settings}") as tell:
            rates[settings] = contest.trl(python, settings, CHOICE_SECONDS)["rollouts_per_s"]
            tell(f"{rates[settings]:.0f} rollouts/s")
    return max(rates, key=rates.__getitem__)


def turns(
    contest: Contest, python: Path, settings: TrlSettings, seconds: float, backwards: bool, tell: Tell
) -> dict[str, Any]:
    """One round: each contestant once, alone on the machine. Every other round goes backwards, for the drift."""
    contestants: list[tuple[str, Callable[[], Any]]] = [
        ("trl", lambda: contest.trl(python, settings, seconds)),
        ("bare", lambda: contest.bare_loops(BARE_SHARE * seconds)),
        ("stack", lambda: contest.stack(seconds)),
    ]
    found = {}
    for name, run in reversed(contestants) if backwards else contestants:
        tell(name)
        found[name] = run()
    return found


def figures(rounds: list[dict[str, Any]], settings: TrlSettings) -> dict[str, Any]:
    """Medians over rounds; a round holds the figures of `trl`, of the two loops of `bare`, and of `stack`."""
    trl = [each["trl"]["rollouts_per_s"] for each in rounds]
    bare = [sum(loop["rollouts_per_s"] for loop in each["bare"]) for each in rounds]
    stack = [each["stack"]["rollouts_per_s"] for each in rounds]
    return {
        "ratio_rollouts_per_s": round(median(a / b for a, b in zip(stack, trl, strict=True)), 3),
        "ratio_bare": round(median(a / b for a, b in zip(stack, bare, strict=True)), 3),
        "seconds_to_bar": middle([each["stack"]["seconds_to_bar"] for each in rounds]),
        "seconds_to_bar_trl": middle([each["trl"]["seconds_to_bar"] for each in rounds]),
        "seconds_to_bar_bare": middle([loop["seconds_to_bar"] for each in rounds for loop in each["bare"]]),
        "rollouts_per_s": round(median(stack), 1),
        "rollouts_per_s_trl": round(median(trl), 1),
        "rollouts_per_s_two_bare": round(median(bare), 1),
        "trained_per_s": round(median(each["stack"]["trained_per_s"] for each in rounds), 1),
        "rejected": sum(each["stack"]["rejected"] for each in rounds),
        "restarts": sum(each["stack"]["restarts"] for each in rounds),
        "trl_settings": str(settings),
        "rounds": len(rounds),
    }


def middle(seconds: list[float | None]) -> float | None:
    """The median, where one that did not get there took for ever."""
    value = median(math.inf if each is None else each for each in seconds)
    return round(value, 1) if math.isfinite(value) else None


def until_bar(exact: Mapping[Any, float]) -> Iterator[tuple[Any, float]]:
    """Exact match by step, up to the first that meets the bar."""
    for step, value in exact.items():
        yield step, value
        if value >= BAR:
            return


def show(rounds: list[dict[str, Any]], found: dict[str, Any], console: Console) -> None:
    table = Table(title="32 prompts x 16 completions a step, until 90 % exact", title_justify="left")
    for column in ("", "rollouts/s", "steps", "exact match, by step", "seconds to the bar"):
        table.add_column(column, justify="left" if not column or "exact" in column else "right")
    for each in rounds:
        named = [("TRL", each["trl"]), ("stack", each["stack"])]
        named += [(f"bare loop {number}", loop) for number, loop in enumerate(each["bare"], start=1)]
        for name, one in named:
            exact = "  ".join(f"{step}: {value:.2f}" for step, value in until_bar(one["exact"]))
            seconds = "-" if one["seconds_to_bar"] is None else f"{one['seconds_to_bar']:.1f}"
            table.add_row(name, f"{one['rollouts_per_s']:.0f}", str(one["steps"]), exact, seconds)
        table.add_section()
    console.print(table)
    console.print(f"TRL ran with {found['trl_settings']}; float32, no reference model, no files, no logging")
    console.print(
        f"stack / TRL: {found['ratio_rollouts_per_s']}   stack / two bare loops: {found['ratio_bare']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round, within 3 minutes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0, help="of training allowed to each, each round")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    console = Console(stderr=True)
    python = python_of("trl", *REQUIREMENTS)
    started = time.monotonic()
    contest = asyncio.run(prepared(console, options.seed))
    seconds, count, settings = options.seconds, options.rounds, CANDIDATES[0]
    if options.quick:
        left = QUICK_SECONDS - (time.monotonic() - started)
        seconds, count = min(30.0, max(5.0, (left - 3 * QUICK_OVERHEAD) / (2 + BARE_SHARE))), 1
    else:
        settings = quickest(contest, python, console)
    rounds = []
    for number in range(1, count + 1):
        with stage(console, f"round {number} of {count}") as tell:
            rounds.append(turns(contest, python, settings, seconds, number % 2 == 0, tell))
    found = figures(rounds, settings)
    show(rounds, found, Console())
    print(json.dumps(found))


if __name__ == "__main__":
    try:
        main()
    except (CairnError, RuntimeError) as error:
        sys.exit(f"peer_trl: {error}")
