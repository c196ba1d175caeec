from __future__ import annotations

import sys

import pytest

from environments import fingerprint, load
from schemas.config import ConfigError


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(ConfigError, match=r"environment 'gym:leg_counting': .*pip install 'cairn\[gym\]'"):
        load("gym:leg_counting")


@pytest.fixture
def legs():
    pytest.importorskip("reasoning_gym", exc_type=ImportError)
    return load("gym:leg_counting", {"size": 5, "seed": 7, "max_animals": 4})


def test_tasks_prompt_and_score(legs):
    task = legs.tasks()[2]
    system, user = legs.prompt(task)
    assert "<answer>" in system["content"]
    assert user == {"role": "user", "content": task["question"]}
    right = f"thinking... <answer>{task['answer']}</answer>"
    assert (legs.reward(task, right), legs.metrics(task, right)) == (1.0, {"answered": 1.0})
    assert (legs.reward(task, task["answer"]), legs.metrics(task, task["answer"])) == (0.0, {"answered": 0.0})


def test_the_seed_makes_the_tasks(legs):
    assert len(legs.tasks()) == 5
    assert fingerprint(legs) == fingerprint(
        load("gym:leg_counting", {"size": 5, "seed": 7, "max_animals": 4})
    )
    assert fingerprint(legs) != fingerprint(
        load("gym:leg_counting", {"size": 5, "seed": 8, "max_animals": 4})
    )


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("gym:no_such_set", {}, "'no_such_set' not registered"),
        ("gym:leg_counting", {"min_animals": -1}, "min_animals must be positive"),
        ("gym:leg_counting", {"wings": 2}, "unexpected keyword argument 'wings'"),
    ],
)
def test_wrong_names_and_arguments(legs, name, arguments, message):
    with pytest.raises(ConfigError, match=message):
        load(name, arguments)
