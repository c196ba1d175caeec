"""Tasks and rewards: environments, how they are loaded, and the child process that computes rewards. No torch."""

from environments.environment import Environment, Prompt, Task, fingerprint, split
from environments.loading import load
from environments.prompts import Prompts
from environments.scoring import Scored, Scorer, ScoringFailed

__all__ = [
    "Environment",
    "Prompt",
    "Prompts",
    "Scored",
    "Scorer",
    "ScoringFailed",
    "Task",
    "fingerprint",
    "load",
    "split",
]
