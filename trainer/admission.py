"""How much may be in flight so that nothing becomes too old: the lag rule, at grant and at batch time.

lag of a group = version that the step starts from - version that generated it. Groups are consumed oldest
first, `size` a step. Both functions are pure; tests/trainer/test_admission.py holds the table.
"""

from __future__ import annotations

from collections.abc import Iterable


def may_grant(unconsumed: int, size: int, next_version: int, granted_version: int, max_lag: int) -> bool:
    """May one more group be granted?

    unconsumed: groups granted and neither consumed nor known to be without signal. size: groups a step.
    next_version: what the next step starts from (while a step runs: what it will have made).
    """
    return unconsumed // size + (next_version - granted_version) <= max_lag


def feasible(versions: Iterable[int], size: int, next_version: int, max_lag: int) -> bool:
    """Can groups of these versions all be consumed in time, `size` a step, starting with `next_version`?

    Earliest deadline first: by the step from v + max_lag every group of version <= v has to be gone.
    """
    for count, version in enumerate(sorted(versions), start=1):
        steps = version + max_lag - next_version + 1
        if count > steps * size:
            return False
    return True
