"""The one way to wait before trying again."""

from __future__ import annotations

import random
from collections.abc import Iterator


def delays(first: float = 0.05, most: float = 2.0) -> Iterator[float]:
    """Seconds to wait before each retry: doubling up to `most`, spread so that many nodes do not step together."""
    delay = first
    while True:
        yield delay * random.uniform(0.7, 1.3)  # noqa: S311
        delay = min(most, 2 * delay)
