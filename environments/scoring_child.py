"""The child process of a Scorer: `python -m environments.scoring_child`, spoken to over its stdin and stdout.

Every message is a 4-byte big-endian length and msgpack. First comes [name, arguments, parent's process id]; the answer is
nil once the environment is loaded, or a string that says why it cannot be. Then each request is [index, texts]
and each text is answered in order by [reward, metrics], or by a string that says what failed.
"""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
from typing import Any, BinaryIO

from environments.environment import Environment, Task
from environments.loading import load
from environments.scoring import LENGTH, pack, unpack
from schemas.config import ConfigError

PR_SET_PDEATHSIG = 1


def main() -> None:
    requests, replies = _take_pipes()
    name, arguments, parent = _read(requests)
    _die_with(parent)
    try:
        environment = load(name, arguments)
        tasks = environment.tasks()
    except ConfigError as error:
        _write(replies, str(error))
        return
    _write(replies, None)
    while True:
        index, texts = _read(requests)
        for text in texts:
            _write(replies, _score(environment, tasks, index, text))


def _score(environment: Environment, tasks: Any, index: int, text: str) -> list[Any] | str:
    try:
        task: Task = tasks[index]
        reward = float(environment.reward(task, text))
        metrics = {key: float(value) for key, value in environment.metrics(task, text).items()}
    except Exception as error:  # whatever the environment's code raises is an outcome of this text
        return f"{type(error).__name__}: {error}"
    if not all(map(math.isfinite, (reward, *metrics.values()))):
        return f"reward {reward} and metrics {metrics} must be finite"
    return [reward, metrics]


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Keep the pipes for ourselves: what the environment reads is empty, what it prints goes to stderr."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    os.dup2(2, 1)
    return requests, replies


def _die_with(parent: int) -> None:
    """A reward that hangs never reads that its pipe was closed, so the kernel has to end the orphan."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before that took effect
        sys.exit(0)


def _read(pipe: BinaryIO) -> Any:
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:  # closed: the parent is done or dead
        sys.exit(0)
    return unpack(pipe.read(LENGTH.unpack(head)[0]))


def _write(pipe: BinaryIO, message: Any) -> None:
    pipe.write(pack(message))
    pipe.flush()


if __name__ == "__main__":
    main()
