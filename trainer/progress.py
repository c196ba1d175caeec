"""Where a run is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """The next step, the policy that it starts from (version, digest), and the line of versions."""

    lineage: int
    step: int
    version: int
    digest: str
