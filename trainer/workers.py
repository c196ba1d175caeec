"""Who asks for work, and who gets the next group: fair to the small, and little at stake for the unknown.

A key costs nothing, so a request is worth nothing by itself: a worker that has not yet had a whole group
accepted, or let a grant expire since, has at most two groups that are not judged, and all such workers
together a quarter of a batch. Among those that ask for more, the next group goes to the one that holds the fewest.
"""

from __future__ import annotations

from collections import Counter

from bus.standings import Standings
from schemas import WorkRequested

NEWCOMER_GROUPS = 2
"""Groups without a verdict that a worker without an accepted group may have."""
MOST = 65536
"""Workers whose requests are remembered; more are not heard until others' requests have run out."""


class Workers:
    """Requests as they stand. newcomers: groups without a verdict that all such workers may have."""

    def __init__(self, newcomers: int) -> None:
        self.proven: set[str] = set()
        self._newcomers = newcomers
        self._requests: dict[str, tuple[int, float]] = {}  # worker -> (groups wanted, until)

    def asked(self, request: WorkRequested, timestamp: float) -> None:
        """The latest request of a worker counts. timestamp: when it was stored, seconds since 1970."""
        if request.worker in self._requests or len(self._requests) < MOST:
            self._requests[request.worker] = (request.groups, timestamp + request.seconds)

    def forget_expired(self, now: float) -> None:
        self._requests = {worker: asked for worker, asked in self._requests.items() if now < asked[1]}

    def next(self, held: Counter[str], unjudged: Counter[str], standings: Standings) -> str | None:
        """The worker in good standing that holds the fewest groups of those that want more, or None.

        held: worker -> groups it has still to answer. unjudged: those, and the answered ones without a verdict.
        """
        new = sum(count for worker, count in unjudged.items() if worker not in self.proven)
        wanting = [
            worker
            for worker, (wanted, _) in self._requests.items()
            if held[worker] < wanted
            and (worker in self.proven or (unjudged[worker] < NEWCOMER_GROUPS and new < self._newcomers))
            and standings.allowed(worker)
        ]
        return min(wanting, key=lambda worker: held[worker], default=None)
