from __future__ import annotations

import pytest

from trainer.curriculum import Curriculum


def test_every_task_once_an_epoch_in_another_order_each_time() -> None:
    curriculum = Curriculum([4, 8, 15, 16, 23], seed=7)
    first = [curriculum.index(number) for number in range(5)]
    second = [curriculum.index(number) for number in range(5, 10)]
    assert sorted(first) == sorted(second) == [4, 8, 15, 16, 23]
    assert first != second


def test_a_number_always_means_the_same_task() -> None:
    """A trainer that starts again in the middle draws what it would have drawn."""
    whole = [Curriculum(range(50), seed=3).index(number) for number in range(120)]
    resumed = Curriculum(range(50), seed=3)
    assert [resumed.index(number) for number in range(60, 120)] == whole[60:]
    assert [Curriculum(range(50), seed=4).index(number) for number in range(120)] != whole


def test_no_tasks_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="held_out"):
        Curriculum([], seed=0)
