import random
import time
from collections import Counter

import pytest

from relay.selection import HALF_LIFE, MAX_RECORDS, Selection

MB = 1 << 20


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when the test says so."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_unknown_sources_are_equal(clock):
    assert Selection().weights(["a", "b"]) == [1, 1]


def test_weight_is_success_rate_times_throughput(clock):
    selection = Selection()
    selection.succeeded("fast", 4 * MB, 1.0)
    selection.succeeded("slow", 1 * MB, 1.0)
    assert selection.weights(["fast", "slow", "new"]) == pytest.approx([1, 0.25, 1])
    selection.failed("fast")
    assert selection.weights(["fast", "slow"]) == pytest.approx([0.7, 0.25])


def test_choice_is_in_proportion(clock):
    selection = Selection(random.Random(1))
    selection.succeeded("fast", 3 * MB, 1.0)
    selection.succeeded("slow", 1 * MB, 1.0)
    chosen = Counter(selection.choose(["fast", "slow"]) for _ in range(4000))
    assert chosen["fast"] / 4000 == pytest.approx(0.75, abs=0.03)


def test_averages_heal(clock):
    selection = Selection()
    selection.succeeded("good", 4 * MB, 1.0)
    selection.succeeded("bad", 1 * MB, 1.0)
    selection.corrupted("bad")
    assert selection.weights(["bad"])[0] < 1e-5
    clock[0] += HALF_LIFE
    assert selection.weights(["good", "bad"]) == pytest.approx([1, 0.5 * 0.625])
    clock[0] += 20 * HALF_LIFE
    assert selection.weights(["good", "bad"]) == pytest.approx([1, 1], rel=1e-3)


def test_the_only_source_is_asked_however_bad(clock):
    selection = Selection()
    selection.corrupted("only")
    assert selection.choose(["only"]) == "only"


def test_records_are_bounded(clock):
    selection = Selection()
    for number in range(MAX_RECORDS + 10):
        selection.failed(str(number))
    assert selection.weights(["9", str(MAX_RECORDS)]) == pytest.approx([1, 0.7])
