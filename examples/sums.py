"""An environment of its own: sums of two numbers. In the TOML: environment.name = "examples/sums.py:Sums"."""

from environments import Environment


class Sums(Environment):
    def tasks(self):
        return [(a, b) for a in range(99) for b in range(99)]

    def prompt(self, task):
        return f"{task[0]}+{task[1]}="

    def reward(self, task, text):
        return float(text.strip() == str(sum(task)))
