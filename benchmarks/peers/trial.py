"""What the loops of a comparison share: the task, and a clock that stands still during evaluations.

Imported in several virtual environments: it needs the project and transformers, nothing else.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

import environments
from schemas.config import Config, load


def arguments(description: str) -> argparse.ArgumentParser:
    """The command line that every loop takes; see `configuration` and `Trial`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("config", type=Path, help="TOML file of a run")
    parser.add_argument("model", type=Path, help="folder of the model to start from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0, help="of training, evaluations not counted")
    parser.add_argument("--every", type=int, default=5, help="steps between evaluations")
    parser.add_argument("--bar", type=float, default=0.9, help="exact match that is to be reached")
    return parser


def configuration(options: argparse.Namespace) -> Config:
    return load(options.config, {"policy.model": f'"{options.model}"', "run.seed": str(options.seed)})


class HeldOutTask:
    """The environment of a configuration: training prompts, rewards, exact match on the held-out prompts."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.environment = environments.load(config.environment.name, config.environment.arguments)
        self.tasks = self.environment.tasks()
        self.train, held_out = environments.split(
            self.environment, config.environment.held_out, config.run.seed
        )
        self.held_out = held_out[: config.evaluation.prompts]
        self.tokenizer = AutoTokenizer.from_pretrained(config.policy.model, padding_side="left")

    def prompt(self, index: int) -> Any:
        return self.environment.prompt(self.tasks[index])

    def reward(self, index: int, text: str) -> float:
        return self.environment.reward(self.tasks[index], text)

    @torch.no_grad()
    def exact_match(self, model: Any) -> float:
        """pass@1 at the run's temperature: one completion of every held-out prompt."""
        inputs = self.tokenizer([self.prompt(i) for i in self.held_out], padding=True, return_tensors="pt")
        tokens = model.generate(
            **inputs,
            do_sample=True,
            temperature=self.config.sampling.temperature,
            top_k=0,
            max_new_tokens=self.config.sampling.max_new_tokens,
        )
        completions = tokens[:, inputs["input_ids"].shape[1] :]
        texts = self.tokenizer.batch_decode(completions, skip_special_tokens=True)
        exact = [
            self.environment.metrics(self.tasks[index], text)["exact"]
            for index, text in zip(self.held_out, texts, strict=True)
        ]
        return sum(exact) / len(exact)


class Trial:
    """One loop's run: when each step ended, what evaluations found, when the bar was met.

    Seconds count from `begin`, without those spent in evaluations.
    """

    def __init__(self, task: HeldOutTask, options: argparse.Namespace) -> None:
        self.task, self.options = task, options
        self.ends: list[float] = []
        self.exact: dict[int, float] = {}
        self.seconds_to_bar: float | None = None

    def begin(self) -> None:
        self.started = time.perf_counter()

    def step_done(self, model: Any) -> None:
        now = time.perf_counter()
        self.ends.append(now - self.started)
        steps = len(self.ends)
        if steps % self.options.every == 0:
            self.exact[steps] = self.task.exact_match(model)
            if self.seconds_to_bar is None and self.exact[steps] >= self.options.bar:
                self.seconds_to_bar = self.ends[-1]
            self.started += time.perf_counter() - now

    @property
    def out_of_time(self) -> bool:
        return self.ends[-1] >= self.options.seconds

    def report(self) -> str:
        """One line of JSON; its rate leaves the first step out, in which caches are warmed up."""
        batch = self.task.config.batch
        seconds = self.ends[-1] - self.ends[0]
        rollouts = batch.groups * batch.group_size * (len(self.ends) - 1)
        return json.dumps(
            {
                "rollouts_per_s": rollouts / seconds if seconds else 0.0,
                "seconds_to_bar": self.seconds_to_bar,
                "steps": len(self.ends),
                "exact": self.exact,
            }
        )
