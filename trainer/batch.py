"""From complete groups to the batch of one step: which groups, in which order, with which advantages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from schemas import BatchFormed
from trainer.admission import feasible
from trainer.advantages import group_advantages
from trainer.groups import Group, Groups
from trainer.packing import Sample


def choose(groups: Groups, version: int, size: int, max_lag: int) -> list[Group] | None:
    """The `size` oldest complete groups with signal for the step from `version`, or None to wait.

    Waits although enough are complete when a group that is still open could then not be consumed in time:
    dropping slow groups would favour short completions. Canonical order: by policy version, then task.
    """
    every = groups.unconsumed()
    complete = [group for group in every if group.status == "complete" and version - group.version <= max_lag]
    if len(complete) < size:
        return None
    chosen = sorted(complete, key=lambda group: (group.version, int(group.grant.task)))[:size]
    taken = {id(group) for group in chosen}
    rest = [group.version for group in every if id(group) not in taken and group.status != "failed"]
    return chosen if feasible(rest, size, version + 1, max_lag) else None


class Formed(NamedTuple):
    """A batch that was told of. chosen: its groups in order. flat: those without signal, which it closed."""

    event: BatchFormed
    chosen: list[Group]
    flat: list[Group]


def form(
    chosen: list[Group], groups: Groups, folded: dict[str, int], lineage: int, step: int, version: int
) -> Formed:
    """The event that consumes the chosen groups and closes those without signal, at once.

    folded: stream -> last sequence that was read.
    """
    flat = [group for group in groups.open.values() if group.status == "flat"]
    advantages = np.concatenate([group_advantages(group.rewards()) for group in chosen])
    event = BatchFormed(
        lineage=lineage,
        step=step,
        from_version=version,
        groups=tuple(group.reference() for group in chosen),
        advantages=advantages.astype(np.float32),
        filtered=tuple(group.reference() for group in flat),
        folded=folded,
    )
    return Formed(event, chosen, flat)


def samples(groups: Iterable[Group], advantages: np.ndarray) -> list[Sample]:
    """What the learner trains on, in the batch's order. advantages: shape [N], one per completion."""
    found: list[Sample] = []
    for group in groups:
        for completion, judgement in zip(group.completions(), group.judgements(), strict=True):
            audited = judgement.outcome == "accepted"
            found.append(Sample.of(group.grant.prompt, completion, float(advantages[len(found)]), audited))
    assert len(found) == len(advantages), f"{len(found)} completions, {len(advantages)} advantages"
    return found
