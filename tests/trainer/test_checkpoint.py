import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.trainer import tiny
from trainer import checkpoint
from trainer.checkpoint import Checkpoint
from trainer.learner import Learner

FOLD = {
    "sequences": {"ROLLOUTS": 12, "VERDICTS": 9},
    "open": {3: ["a", b"\x00\xff"]},
    "none": None,
    "share": 0.25,
}


def learner(steps):
    trained = Learner(tiny.model(), tiny.config(optimizer={"warmup_steps": 5}))
    for seed in range(steps):
        trained.step(tiny.samples(seed=seed))
    return trained


def save(directory, step, keep=3):
    return checkpoint.save(directory, Checkpoint(step, learner(step).state(), FOLD), keep)


def test_training_goes_on_bit_for_bit_from_the_files(tmp_path):
    save(tmp_path, 2)
    loaded = checkpoint.load(tmp_path)
    assert (loaded.step, loaded.fold, loaded.learner.optimizer_steps) == (2, FOLD, 2)
    resumed, straight = learner(0), learner(4)
    resumed.restore(loaded.learner)
    for seed in (2, 3):
        resumed.step(tiny.samples(seed=seed))
    for one, other in zip(resumed.parameters.values(), straight.parameters.values(), strict=True):
        assert torch.equal(one, other)


def test_a_learner_that_has_not_stepped_is_saved_too(tmp_path):
    save(tmp_path, 0)
    fresh = learner(1)
    fresh.restore(checkpoint.load(tmp_path).learner)
    fresh.step(tiny.samples(seed=0))
    assert all(map(torch.equal, fresh.parameters.values(), learner(1).parameters.values()))


@pytest.mark.parametrize("make", [False, True])
def test_no_checkpoint_is_none(tmp_path, make):
    directory = tmp_path / "checkpoints"
    if make:
        directory.mkdir()
    assert checkpoint.load(directory) is None


def test_the_newest_are_kept(tmp_path):
    for step in range(1, 5):
        save(tmp_path, step, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000003", "step-00000004"]
    assert checkpoint.load(tmp_path).step == 4


@pytest.mark.parametrize(
    "name", ["weights.safetensors", "optimizer.safetensors", "state.msgpack", "COMPLETE"]
)
@pytest.mark.parametrize("fault", ["flipped bit", "truncated", "missing"])
def test_a_damaged_checkpoint_is_passed_over(tmp_path, name, fault):
    save(tmp_path, 1)
    file = save(tmp_path, 2) / name
    if fault == "missing":
        file.unlink()
    else:
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data if fault == "flipped bit" else data[:-5])
    assert checkpoint.load(tmp_path).step == 1


def test_a_step_saved_again_replaces_the_damaged_one(tmp_path):
    (save(tmp_path, 1) / "COMPLETE").unlink()
    save(tmp_path, 1)
    assert checkpoint.load(tmp_path).step == 1


def test_killed_at_any_moment_of_saving_the_one_before_is_used(tmp_path):
    """A process is killed with -9 before each call to the file system of a save, one run for each."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.trainer.killed_while_saving", tmp_path],
        capture_output=True, text=True, timeout=60, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    found = run.stdout.split()
    assert len(found) >= 8
    assert found == sorted(found)  # the one before, then, once renamed, the new one
    assert set(found) == {"1", "2"}
