"""What a run came to: read from its streams after it has ended, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from bus import Bus
from cli.live import spark
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
    have had them all. seconds: wall time of the whole command.
    """
    measured = [view.evals[version].metrics[metric] for version in sorted(view.evals)]
    spans = [at for at, _ in view.tokens]
    duration = max(spans) - min(spans) if len(spans) > 1 else 0.0
    return {
        "steps": len(view.steps),
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
        "tokens_per_s": round(view.tokens_total / duration, 1) if duration else 0.0,
        "seconds": round(seconds, 1),
        "seed": seed,
    }


def show(result: Result, console: Console) -> None:
    """The table for people."""
    view, found = result.view, result.figures
    table = Table(title="what happened", show_header=False, title_justify="left")
    rewards = [step.metrics["reward"] for step in view.steps]
    evaluated = "  ".join(
        f"{version}: {done.metrics.get('exact', 0):.3f}" for version, done in sorted(view.evals.items())
    )
    lags = ", ".join(f"{count} groups at lag {lag}" for lag, count in sorted(view.lags.items()))
    table.add_row("steps", str(found["steps"]))
    table.add_row(
        "reward of the batches",
        f"{spark(rewards)}  {rewards[0]:.3f} -> {rewards[-1]:.3f}" if rewards else "-",
    )
    table.add_row("exact match, held out, by policy", evaluated or "-")
    table.add_row("lag", lags or "-")
    table.add_row(
        "rollouts",
        f"{found['rollouts_accepted']} accepted, {found['rollouts_rejected']} rejected, {found['rollouts_trained']} trained on",
    )
    for node, reason in view.slashed.items():
        table.add_row("caught", f"{view.name(node)}: {reason}")
    table.add_row(
        "policies", f"{len(view.policies)} versions, {found['policy_bytes_sent'] / 1e6:.1f} MB to each client"
    )
    table.add_row("accepted tokens", f"{view.tokens_total} ({found['tokens_per_s']:.0f}/s)")
    table.add_row("wall time", f"{found['seconds']:.0f} s")
    console.print(table)
