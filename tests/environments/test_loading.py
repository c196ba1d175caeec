from __future__ import annotations

import pytest

from environments import load
from environments.reverse_text import ReverseText
from schemas.config import ConfigError

SOURCE = """
from environments import Environment

class Echo(Environment):
    def __init__(self, times=1):
        self.times = times
    def tasks(self):
        return ["a", "b"]
    def prompt(self, task):
        return task * self.times
    def reward(self, task, text):
        return float(task == text)

class Half(Environment):
    def tasks(self):
        return []

class Other:
    pass
"""


@pytest.fixture
def echo(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", __import__("sys").path.copy())
    (tmp_path / "echo_environment.py").write_text(SOURCE)
    yield "echo_environment"
    __import__("sys").modules.pop("echo_environment", None)


def test_by_built_in_name():
    assert isinstance(load("reverse-text", {"count": 10}), ReverseText)


def test_by_module_in_the_working_directory(echo):
    assert load(f"{echo}:Echo", {"times": 2}).prompt("a") == "aa"


def test_by_file(echo, tmp_path):
    assert load(f"{tmp_path / echo}.py:Echo").prompt("a") == "a"
    assert load(f"{echo}.py:Echo", {"times": 3}).prompt("a") == "aaa"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("revrese-text", {}, "environment 'revrese-text': no such name; use reverse-text, gym:NAME"),
        ("no_such_module:Class", {}, "No module named 'no_such_module'; install it"),
        ("no/such/file.py:Class", {}, r"there is no file no/such/file\.py"),
        ("echo_environment:Missing", {}, "echo_environment has no Missing; check the spelling"),
        ("echo_environment:Other", {}, "Other is not an Environment; derive"),
        ("echo_environment:Half", {}, "abstract"),
        ("echo_environment:Echo", {"tmes": 1}, "unexpected keyword argument 'tmes'"),
        ("reverse-text", {"min_length": 9}, "lengths from 9 to 6"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_one_line(echo, name, arguments, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load(name, arguments)
    assert "\n" not in str(caught.value)
