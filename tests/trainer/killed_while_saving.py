"""Saves step 2 beside step 1, killed with -9 at one call after another; prints the step that is loaded then.

A program of its own, because it forks: it starts no thread before that.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

import torch

from tests.trainer import tiny
from trainer import checkpoint
from trainer.checkpoint import Checkpoint
from trainer.learner import Learner

CALLS = {"open", "os.mkdir", "os.rename", "os.rmdir", "os.remove"}
"""Audited calls of the file system; each sync opens its file first."""


def kill_at(count: int) -> None:
    """Die, as by kill -9, just before the count-th of CALLS."""
    left = count

    def hook(event: str, arguments: tuple) -> None:
        nonlocal left
        if event in CALLS:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def main(directory: Path) -> None:
    torch.set_num_threads(1)
    state = Learner(tiny.model(), tiny.config()).state()
    for count in range(1, 100):
        shutil.rmtree(directory, ignore_errors=True)
        checkpoint.save(directory, Checkpoint(1, state, {}), keep=1)
        child = os.fork()
        if not child:
            kill_at(count)
            checkpoint.save(directory, Checkpoint(2, state, {}), keep=1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        loaded = checkpoint.load(directory)
        print(loaded.step if loaded else None)
        if status == 0:
            return


main(Path(sys.argv[1]))
