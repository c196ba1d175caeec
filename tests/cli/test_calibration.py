from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cli.calibration import measure
from schemas.config import Bands
from tests.cli.conftest import Cairn
from tests.stack.local import ENVIRONMENT, configure


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_the_bands_of_honest_rollouts_are_tight(tmp_path: Path) -> None:
    config = configure("nats://127.0.0.1:1", tmp_path)
    said: list[int] = []
    bands = measure(config, (1, 2), said.append)
    assert said == [1, 2]
    loose = Bands()
    assert bands.replay_margin < loose.replay_margin
    assert bands.exponent_mismatches <= loose.exponent_mismatches


def test_the_command_prints_what_belongs_into_the_configuration(cairn: Cairn, tmp_path: Path) -> None:
    config = configure("nats://127.0.0.1:1", tmp_path)
    (tmp_path / "run.toml").write_text(f'[policy]\nmodel = "{config.policy.model}"\n')
    arguments = [f"--environment.arguments.{name}={value}" for name, value in ENVIRONMENT.items()]
    done = cairn(
        "calibrate",
        tmp_path / "run.toml",
        *arguments,
        "--environment.held_out=4",
        "--sampling.max_new_tokens=4",
    )
    assert done.code == 0
    Bands.model_validate_json(done.output)
    assert done.errors.splitlines() == [f"groups generated together: {batch}" for batch in (1, 8, 32)]
