from __future__ import annotations

import pytest

from environments import Environment, fingerprint, load, split
from schemas.config import ConfigError


class Sums(Environment):
    def tasks(self):
        return [(a, b) for a in range(9) for b in range(9)]

    def prompt(self, task):
        return f"{task[0]}+{task[1]}="

    def reward(self, task, text):
        return float(text.strip() == str(sum(task)))


def test_a_class_with_three_methods_is_an_environment():
    environment = Sums()
    task = environment.tasks()[11]
    assert environment.prompt(task) == "1+2="
    assert (environment.reward(task, " 3"), environment.reward(task, "4")) == (1.0, 0.0)
    assert environment.metrics(task, "3") == {}


def test_split_is_disjoint_complete_and_seeded():
    train, held_out = split(Sums(), held_out=20, seed=1)
    assert len(held_out) == 20
    assert sorted(train + held_out) == list(range(81))
    assert split(Sums(), 20, 1) == (train, held_out)
    assert split(Sums(), 20, 2) != (train, held_out)
    assert split(Sums(), 0, 1)[1] == []


def test_split_leaves_tasks_to_train_on():
    with pytest.raises(ConfigError, match=r"held_out = 81.*has 81 tasks"):
        split(Sums(), held_out=81, seed=0)


def test_fingerprint_tells_task_sets_apart():
    words = load("reverse-text", {"count": 50})
    assert fingerprint(words) == fingerprint(load("reverse-text", {"count": 50}))
    assert fingerprint(words) != fingerprint(load("reverse-text", {"count": 51}))
    assert fingerprint(words) != fingerprint(load("reverse-text", {"count": 50, "seed": 1}))
