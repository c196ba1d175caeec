"""Checkpoints: the learner and the fold at one step, whole or not there at all.

A checkpoint is a directory that is renamed into place once everything in it is on disk; its last file,
COMPLETE, holds the digest of every other. Loading takes the newest one whose digests hold, so a process killed
at any moment of saving, or a file that rotted since, costs one interval of training and nothing else. No pickle.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack
import structlog
from blake3 import blake3
from safetensors.torch import load_file, save_file

from trainer.learner import LearnerState
from trainer.scratch import scratch

MARKER = "COMPLETE"
_PREFIX = "step-"
_UNFINISHED = ".unfinished-"

log = structlog.get_logger()


@dataclass(frozen=True)
class Checkpoint:
    """step: the last one trained. fold: the snapshot that was saved with it, plain data."""

    step: int
    learner: LearnerState
    fold: dict[str, Any]


def save(directory: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write a checkpoint durably and delete all but the `keep` newest; returns its directory.

    Raises OSError when the disk refuses.
    """
    path = directory / f"{_PREFIX}{checkpoint.step:08d}"
    with scratch(directory, _UNFINISHED) as unfinished:
        _write(unfinished, checkpoint)
        if path.exists():  # a run that went back beyond this step is here again
            shutil.rmtree(path)
        unfinished.rename(path)
        _sync(directory)
    for old in _newest_first(directory)[keep:]:
        shutil.rmtree(old)
    return path


def load(directory: Path) -> Checkpoint | None:
    """The newest whole checkpoint, or None when there is none."""
    for path in _newest_first(directory):
        if not (fault := _fault(path)):
            return _read(path)
        log.warning("checkpoint passed over: it is not whole", path=str(path), fault=fault)
    return None


def _write(path: Path, checkpoint: Checkpoint) -> None:
    learner = checkpoint.learner
    state = {"step": checkpoint.step, "optimizer_steps": learner.optimizer_steps, "fold": checkpoint.fold}
    save_file(learner.weights, path / "weights.safetensors")
    save_file(learner.optimizer, path / "optimizer.safetensors")
    (path / "state.msgpack").write_bytes(msgpack.packb(state))
    files = sorted(path.iterdir())
    for file in files:
        _sync(file)
    (path / MARKER).write_text(json.dumps({file.name: _digest(file) for file in files}))
    _sync(path / MARKER)
    _sync(path)


def _read(path: Path) -> Checkpoint:
    state = msgpack.unpackb((path / "state.msgpack").read_bytes(), strict_map_key=False)
    weights, optimizer = load_file(path / "weights.safetensors"), load_file(path / "optimizer.safetensors")
    return Checkpoint(
        state["step"], LearnerState(weights, optimizer, state["optimizer_steps"]), state["fold"]
    )


def _fault(path: Path) -> str:
    """What is wrong with a checkpoint; empty when it is whole."""
    try:
        digests = json.loads((path / MARKER).read_text())
        wrong = [name for name, digest in digests.items() if _digest(path / name) != digest]
    except (OSError, ValueError) as error:
        return str(error)
    return f"digest of {', '.join(wrong)}" if wrong else ""


def _newest_first(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"{_PREFIX}*"), reverse=True)


def _digest(file: Path) -> str:
    return blake3().update_mmap(file).hexdigest()


def _sync(path: Path) -> None:
    """Force a file's bytes, or a directory's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
