"""What a step is measured by, beside the learner's own figures: plain means over the batch's completions."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from trainer.groups import Group


def batch(chosen: list[Group], dropped: Iterable[Group], version: int) -> dict[str, float]:
    """Reward, lengths and lag of the groups of a step, and the lengths of those that it leaves out.

    Lengths of kept and dropped stand side by side because filters and lag limits favour short answers
    quietly. environment/* are the environment's own metrics.
    """
    judgements = [judgement for group in chosen for judgement in group.judgements()]
    lags = [version - group.version for group in chosen]
    dropped = list(dropped)
    metrics = {
        "reward": _mean(judgement.reward or 0.0 for judgement in judgements),
        "length": _mean(lengths(chosen)),
        "length_dropped": _mean(lengths(dropped)),
        "groups": float(len(chosen)),
        "groups_filtered": float(len(dropped)),
        "completions": float(len(judgements)),
        "lag_mean": _mean(lags),
        "lag_max": float(max(lags)),
    }
    for lag in set(lags):
        metrics[f"lag/{lag}"] = float(lags.count(lag))
    for name in sorted({name for judgement in judgements for name in judgement.metrics}):
        metrics[f"environment/{name}"] = _mean(judgement.metrics.get(name, 0.0) for judgement in judgements)
    return metrics


def lengths(groups: Iterable[Group]) -> list[int]:
    """Completion tokens, one number per completion."""
    return [len(completion.ids) for group in groups for completion in group.completions()]


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return float(np.mean(found)) if found else 0.0
