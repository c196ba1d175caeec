"""Which source to ask: in proportion to success rate times throughput, both moving averages that heal.

After every transfer the averages move by SMOOTHING towards what was seen. Between transfers they drift back,
half of the way every HALF_LIFE seconds: the success rate to 1, the throughput to the best source's. So a source
that was slow or dead for a while is tried again without being told to, and a new one starts as good as the best.
A wrong chunk sets the success rate to 0: the source is out of use for a while.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

SMOOTHING = 0.3
HALF_LIFE = 30.0
MAX_RECORDS = 256
_LEAST = 1e-6
"""Weight of a source with success rate 0: where there is no other, it is asked all the same."""


@dataclass
class _Record:
    success: float
    throughput: float
    """Bytes a second of one transfer, waiting included; 0 when none was measured: as good as the best."""
    at: float


class Selection:
    """The records of the last MAX_RECORDS sources that were used, and the choice among those at hand."""

    def __init__(self, generator: random.Random | None = None) -> None:
        self._random = generator or random.Random()  # noqa: S311 (load balancing, no secret)
        self._records: dict[str, _Record] = {}

    def choose(self, urls: Sequence[str]) -> str:
        """One of `urls` (at least one), at random by weight."""
        return self._random.choices(urls, self.weights(urls))[0]

    def weights(self, urls: Sequence[str]) -> list[float]:
        """Success rate times throughput of each, relative to the best throughput."""
        best = self._best()
        records = [self._healed(url, best) for url in urls]
        return [
            max(record.success * (record.throughput / best if record.throughput else 1.0), _LEAST)
            for record in records
        ]

    def succeeded(self, url: str, size: int, seconds: float) -> None:
        record = self._healed(url, self._best())
        measured = size / max(seconds, 1e-6)
        record.success += SMOOTHING * (1 - record.success)
        record.throughput += SMOOTHING * (measured - record.throughput) if record.throughput else measured
        self._keep(url, record)

    def failed(self, url: str) -> None:
        """The source could not be reached or broke off."""
        record = self._healed(url, self._best())
        record.success -= SMOOTHING * record.success
        self._keep(url, record)

    def corrupted(self, url: str) -> None:
        """The source delivered bytes with a wrong hash."""
        record = self._healed(url, self._best())
        record.success = 0.0
        self._keep(url, record)

    def _keep(self, url: str, record: _Record) -> None:
        self._records.pop(url, None)
        self._records[url] = record  # to the end: the first is the one not used for longest
        if len(self._records) > MAX_RECORDS:
            del self._records[next(iter(self._records))]

    def _best(self) -> float:
        return max((record.throughput for record in self._records.values()), default=0.0)

    def _healed(self, url: str, best: float) -> _Record:
        now = time.monotonic()
        record = self._records.get(url)
        if record is None:
            return _Record(success=1.0, throughput=0.0, at=now)
        left = 0.5 ** ((now - record.at) / HALF_LIFE)
        throughput = best - (best - record.throughput) * left if record.throughput else 0.0
        return _Record(success=1 - (1 - record.success) * left, throughput=throughput, at=now)
