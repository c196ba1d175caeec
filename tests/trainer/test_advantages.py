import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.advantages import EPSILON, group_advantages, has_signal

rewards = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=64)


def test_equals_the_hand_computation():
    group = [0.0, 1.0, 1.0, 0.25]
    mean, std = statistics.mean(group), statistics.stdev(group)
    expected = [(reward - mean) / (std + EPSILON) for reward in group]
    np.testing.assert_allclose(group_advantages(group), expected, rtol=1e-6)


def test_two_completions_hand_computed():
    # mean 0.5, sample standard deviation sqrt(0.5)
    value = 0.5 / (math.sqrt(0.5) + 1e-6)
    np.testing.assert_allclose(group_advantages([1.0, 0.0]), [value, -value], rtol=1e-7)


@pytest.mark.parametrize("group", [[0.7], [0.0] * 16, [1.0] * 16, [0.1 + 0.2, 0.3], [1e9] * 3])
def test_a_group_without_signal_has_zero_advantages(group):
    assert not has_signal(group)
    assert group_advantages(group).tolist() == [0.0] * len(group)


@pytest.mark.parametrize("group", [[], [[1.0, 0.0]], [1.0, math.nan], [0.0, math.inf]])
def test_what_is_no_group_of_rewards_is_refused(group):
    with pytest.raises(ValueError, match="reward"):
        group_advantages(group)


@given(rewards)
def test_advantages_are_finite_centred_and_in_the_order_of_the_rewards(group):
    advantages = group_advantages(group)
    assert advantages.dtype == np.float32
    assert np.isfinite(advantages).all()
    assert abs(float(advantages.sum())) < 1e-4 * len(group)
    order = np.argsort(group, kind="stable")
    assert (np.diff(advantages[order]) >= 0).all()
    assert has_signal(group) == bool(advantages.any())
