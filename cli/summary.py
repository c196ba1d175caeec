"""What a run came to: read from its streams after it has ended, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bus import Bus
from bus.logs import printable
from cli.live import duration, lags, spark, verdicts
from cli.view import STREAMS, RunView


@dataclass(frozen=True)
class Result:
    """figures: the JSON object. view: everything else."""

    figures: dict[str, Any]
    view: RunView


async def read(bus: Bus) -> RunView:
    """Fold the run's streams to their end."""
    view = RunView()
    for kind in STREAMS:
        async for record in bus.records(kind, after=0, live=False):
            view.apply(record)
    return view


def figures(view: RunView, cheats: set[str], metric: str, seconds: float, seed: int) -> dict[str, Any]:
    """The demo's JSON object. cheats: public keys. metric: of the evaluations, what counts as the reward.

    policy_bytes_full: size of all published versions. policy_bytes_sent: bytes that one client downloads to
    have had them all. tokens_per_s: accepted, between the first verdict and the last. seconds: wall time of
    the whole command.
    """
    measured = [view.evals[version].metrics[metric] for version in sorted(view.evals)]
    judging = view.judged[1] - view.judged[0] if view.judged else 0.0
    return {
        "steps": view.done(),
        "reward_first": round(measured[0], 4) if measured else None,
        "reward_last": round(measured[-1], 4) if measured else None,
        "rollouts_accepted": view.accepted(),
        "rollouts_rejected": view.rejected(),
        "rollouts_trained": sum(view.trained.values()),
        "honest_rejected": sum(
            n for (who, outcome), n in view.outcomes.items() if outcome == "rejected" and who not in cheats
        ),
        "cheat_trained": sum(count for who, count in view.trained.items() if who in cheats),
        "max_lag_seen": max(view.lags, default=0),
        "policy_bytes_full": sum(published.manifest.size for published in view.policies),
        "policy_bytes_sent": view.policy_bytes_sent(),
        "tokens_per_s": round(view.tokens_total / judging, 1) if judging else 0.0,
        "seconds": round(seconds, 1),
        "seed": seed,
    }


def show(result: Result, metric: str, console: Console) -> None:
    """The table for people. metric: as for `figures`."""
    view, found = result.view, result.figures
    table = Table(title="what happened", show_header=False, title_justify="left")
    rewards = [step.metrics["reward"] for step in view.steps]
    evaluated = ", ".join(
        f"{done.metrics[metric]:.3f} (policy {version})" for version, done in sorted(view.evals.items())
    )
    table.add_row("steps", str(found["steps"]))
    table.add_row(
        "reward of the batches",
        f"{spark(rewards)}  {rewards[0]:.3f} -> {rewards[-1]:.3f}" if rewards else "-",
    )
    table.add_row(f"{metric}, held out", evaluated or "-")
    table.add_row("lag", lags(view) or "-")
    table.add_row("verdicts", Text(verdicts(view) or "-"))
    table.add_row(
        "trained on", f"{found['rollouts_trained']} rollouts, {found['cheat_trained']} of the cheat"
    )
    for node, reason in view.slashed.items():
        table.add_row("caught", Text(f"{view.name(node)}: {printable(reason)}"))
    table.add_row(
        "policies", f"{len(view.policies)} versions, {found['policy_bytes_sent'] / 1e6:.1f} MB to each client"
    )
    table.add_row("accepted tokens", f"{view.tokens_total} ({found['tokens_per_s']:.0f}/s)")
    table.add_row("wall time", duration(found["seconds"]))
    console.print(table)
