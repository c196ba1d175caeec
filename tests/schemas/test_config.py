from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack
import pytest

from schemas import config
from schemas.config import ConfigError

MINIMAL = {"policy": {"model": "tiny"}}


def written(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text)
    return path


def test_a_file_is_read_and_the_rest_are_defaults(tmp_path: Path) -> None:
    path = written(
        tmp_path, '[policy]\nmodel = "tiny"\n[optimizer]\nlearning_rate = 1\nbetas = [0.9, 0.95]\n'
    )
    loaded = config.load(path)
    assert (loaded.policy.model, loaded.optimizer.learning_rate, loaded.lag.max_lag) == ("tiny", 1.0, 2)
    assert loaded.optimizer.betas == (0.9, 0.95)


def test_the_resolved_configuration_survives_the_wire() -> None:
    resolved = config.parse(
        {**MINIMAL, "environment": {"arguments": {"lengths": [3, 6], "words": {"n": 12}}}}
    )
    sent = msgpack.unpackb(msgpack.packb(resolved.model_dump(mode="json")))
    assert config.parse(sent) == resolved


@pytest.mark.parametrize(
    ("dotted", "text", "value"),
    [
        ("batch.groups", "8", 8),
        ("policy.model", "Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
        ("policy.model", '"quoted"', "quoted"),
        ("optimizer.betas", "[0.5, 0.5]", (0.5, 0.5)),
        ("environment.arguments.longest", "6", {"longest": 6}),
        ("run.name", "second", "second"),
    ],
)
def test_overrides(tmp_path: Path, dotted: str, text: str, value: Any) -> None:
    loaded: Any = config.load(written(tmp_path, '[policy]\nmodel = "tiny"\n'), {dotted: text})
    section, field = dotted.split(".")[:2]
    assert getattr(getattr(loaded, section), field) == value


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"batch.group": "8"}, "unknown key batch.group; there are groups, group_size, tokens, attempts"),
        ({"relay.origin": "trainer:7070"}, "relay.origin = 'trainer:7070': String should match pattern"),
        ({"audit.bands.x": "8"}, "unknown key audit.bands.x; there are exponent_mismatches, "),
        ({"batches.groups": "8"}, "unknown key batches"),
        ({"batch.groups": "many"}, "batch.groups = 'many': Input should be a valid integer"),
        ({"batch.groups": "0"}, "batch.groups = 0: Input should be greater than or equal to 1"),
        ({"policy.model.name": "x"}, "--policy.model.name: model is not a table"),
        ({"batch": "8"}, "batch = 8: Input should be a valid dictionary"),
        (
            {"optimizer.learning_rate": "inf"},
            "optimizer.learning_rate = inf: Input should be a finite number",
        ),
        ({"optimizer.learning_rate": "nan"}, "optimizer.learning_rate = nan"),
        ({"relay.keep": "4"}, "relay.keep = 4 must be more than lag.max_lag \\+ 2"),
        ({"trust.validator": '["me"]'}, "trust.validator.0 = 'me'"),
        ({"run.name": "a.b"}, "run.name = 'a.b'"),
    ],
)
def test_wrong_overrides_say_which_and_why(tmp_path: Path, overrides: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config.load(written(tmp_path, '[policy]\nmodel = "tiny"\n'), overrides)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "policy is missing"),
        ({"policy": {}}, "policy.model is missing"),
        ({**MINIMAL, "run": {"steps": "3"}}, "run.steps = '3': Input should be a valid integer"),
        ({**MINIMAL, "run": {"steps": True}}, "run.steps = True: Input should be a valid integer"),
        ({**MINIMAL, "run": {"steps": 3.0}}, "run.steps = 3.0: Input should be a valid integer"),
        ({**MINIMAL, "optimizer": {"betas": [0.9]}}, "optimizer.betas.1 is missing"),
        ({**MINIMAL, "policy": {"model": "tiny", "dtype": "int4"}}, "policy.dtype = 'int4'"),
    ],
)
def test_nothing_is_guessed_or_converted(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config.parse(values)


def test_every_wrong_key_is_named_on_one_line() -> None:
    with pytest.raises(ConfigError, match=r"policy is missing; unknown key colour") as caught:
        config.parse({"colour": 1})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[policy\n", "run.toml is not valid TOML"),
        (b"[policy]\nmodel = '\xff'\n", "run.toml is not valid TOML"),
    ],
)
def test_files_that_are_not_toml(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        config.load(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.toml: No such file or directory; give the path"):
        config.load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="Is a directory"):
        config.load(tmp_path)
