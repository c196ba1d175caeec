"""Who may still be granted work, and what each node has contributed: a fold over STANDINGS."""

from __future__ import annotations

from collections import Counter

from bus.envelope import Record
from schemas import Credited, Event, Quarantined, Reinstated, Slashed


class Standings:
    """The state after all records applied so far; applying one again changes nothing.

    sequence: of the last record applied. tokens: node -> tokens that batches were trained on.
    """

    def __init__(self) -> None:
        self.sequence = 0
        self.tokens: Counter[str] = Counter()
        self._barred: dict[str, str] = {}
        self._said: set[str] = set()  # ids: who was killed may say it again, after a Reinstated too

    def apply(self, record: Record[Event]) -> None:
        """Fold in the next record of STANDINGS."""
        if record.sequence <= self.sequence:
            return
        self.sequence = record.sequence
        event = record.event
        if event.id in self._said:
            return
        if getattr(event, "evidence", True):  # what an operator says without any may be meant once more
            self._said.add(event.id)
        match event:
            case Slashed(node=node, reason=reason) | Quarantined(node=node, reason=reason):
                self._barred[node] = f"{type(event).__name__.lower()}: {reason}"
            case Reinstated(node=node):
                self._barred.pop(node, None)
            case Credited(node=node, tokens=tokens):
                self.tokens[node] += tokens

    def allowed(self, node: str) -> bool:
        """Whether the node may hold grants and its answers count."""
        return node not in self._barred

    def reason(self, node: str) -> str:
        """Why a node is barred; empty when it is not."""
        return self._barred.get(node, "")
