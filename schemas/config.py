"""The configuration of a run, as written in TOML and as resolved into RunCreated. Importable without torch."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from schemas.errors import CairnError
from schemas.event import FromList, Many, Token
from schemas.operations import PublicKey
from schemas.tasks import MAX_NEW_TOKENS

Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """One table of the TOML file; a key that is not listed here is refused, and nothing is converted."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class ConfigError(CairnError, ValueError):
    """The configuration cannot be used; the message says which key, why, and what to do."""

    exit_code = 2


class Run(Section):
    name: Token = "run"
    """First token of every subject of this run."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Of shuffles and of the split into training and held-out tasks; sampling seeds come from the secret."""
    steps: int = Field(default=100, ge=1)
    """Batches to train; the run ends by itself after them."""
    secret: str = ""
    """Path of the file with the run's secret (32 bytes); made at random when empty."""


class BusSection(Section):
    url: str = "nats://127.0.0.1:4222"
    replicas: int = Field(default=1, ge=1, le=5)
    max_bytes: int = Field(default=1 << 30, ge=1 << 20)
    """Bytes per stream; a full stream refuses new messages and evicts nothing."""


class Policy(Section):
    model: str
    """A local folder or a Hugging Face name of a causal language model."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the published weights; the trainer keeps float32 master weights."""


class EnvironmentSection(Section):
    name: str = "reverse-text"
    """A built-in name, `gym:NAME` for reasoning-gym, `module:Class`, or `file.py:Class`."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    held_out: int = Field(default=256, ge=0)
    """Tasks kept for evaluation and never granted."""


class SamplingSection(Section):
    temperature: float = Field(default=1.0, gt=0, le=10)
    max_new_tokens: int = Field(default=128, ge=1, le=MAX_NEW_TOKENS)
    seconds: float = Field(default=600.0, gt=0, le=86400)
    """Time allowed for one grant."""


class Batch(Section):
    groups: int = Field(default=32, ge=1)
    """Groups with signal per step."""
    group_size: int = Field(default=16, ge=2, le=4096)
    """Completions per prompt; one alone has no advantage over others."""
    tokens: int = Field(default=32768, ge=1)
    """Token budget of one micro-batch, padding included."""
    attempts: int = Field(default=5, ge=1)
    """A task that failed this often is closed as dead."""


class Loss(Section):
    """The two-sided clip of INTELLECT-2; formulas in docs/losses.md."""

    ratio_to: Literal["behaviour", "proximal"] = "behaviour"
    """Denominator of the importance ratio. behaviour: the policy that generated, by the log-probs that the worker
    claimed and an audit confirmed (proximal where there was no audit). proximal: the policy before the step."""
    delta: Positive = 4.0
    """Upper bound of the importance ratio where the advantage is negative."""
    epsilon: Positive = 0.2
    """Clip range of the importance ratio."""
    kl: float = Field(default=0.0, ge=0)
    """Weight of the KL divergence to the policy that the ratio refers to."""
    entropy: float = Field(default=0.0, ge=0)
    """Weight of the entropy bonus."""


class Optimizer(Section):
    learning_rate: Positive = 3e-7
    betas: Annotated[tuple[Share, Share], FromList] = (0.9, 0.99)
    weight_decay: float = Field(default=0.01, ge=0)
    warmup_steps: int = Field(default=25, ge=0)
    max_grad_norm: Positive = 0.1
    steps_per_batch: int = Field(default=1, ge=1)
    """Optimizer steps on one batch; each takes an equal share of its completions."""


class Lag(Section):
    max_lag: int = Field(default=2, ge=0)
    """Largest allowed (version stepped from) - (version that generated). 0: synchronous."""


class Checkpoint(Section):
    every: int = Field(default=10, ge=1)
    keep: int = Field(default=2, ge=1)


class Relay(Section):
    origin: str = Field(default="http://127.0.0.1:7070", pattern=r"^https?://[^\s?#@]+$")
    """Where the trainer uploads policies."""
    chunk_bytes: int = Field(default=4 << 20, ge=1 << 10, le=1 << 26)
    keep: int = Field(default=8, ge=2)
    """Versions that a relay keeps; more than max_lag + 2."""


class Bands(Section):
    """How far an honest completion may lie from the validator's own prefill. `cairn calibrate` measures them
    for a model and a stack; the defaults are the published TOPLOC thresholds and what unlike engines need."""

    exponent_mismatches: Annotated[int, Field(ge=0, le=128)] = 38
    """Of a chunk's 128 values."""
    mantissa_mean: float = Field(default=10.0, ge=0)
    mantissa_median: float = Field(default=8.0, ge=0)
    replay_margin: Positive = 1.0
    """By how much a sent token may lose to the replayed argmax, in units of logits / temperature."""
    replay_mismatches: Share = 0.1
    """Share of tokens that may lose at all; one token always may."""
    logprob_difference: Positive = 0.5
    """Mean absolute difference between claimed and recomputed log-probs of a completion."""
    logprob_worst: Positive = 2.0
    """The largest such difference of one token: claims of audited completions weigh in the gradient."""


class Audit(Section):
    share: Share = 1.0
    """Share of the rollouts that are verified by a prefill; the cheap checks run on all."""
    bands: Bands = Bands()


class Evaluation(Section):
    every: int = Field(default=10, ge=0)
    """Versions between evaluations; 0: none. The first and the last policy are always evaluated."""
    prompts: int = Field(default=256, ge=1)


class Trust(Section):
    """Public keys (cairn keys show) by role. Workers and relays need no entry: their work is checked."""

    trainer: Many[PublicKey] = ()
    validator: Many[PublicKey] = ()
    evaluator: Many[PublicKey] = ()
    operator: Many[PublicKey] = ()


class Config(Section):
    policy: Policy
    run: Run = Run()
    bus: BusSection = BusSection()
    environment: EnvironmentSection = EnvironmentSection()
    sampling: SamplingSection = SamplingSection()
    batch: Batch = Batch()
    loss: Loss = Loss()
    optimizer: Optimizer = Optimizer()
    lag: Lag = Lag()
    checkpoint: Checkpoint = Checkpoint()
    relay: Relay = Relay()
    audit: Audit = Audit()
    evaluation: Evaluation = Evaluation()
    trust: Trust = Trust()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.relay.keep <= self.lag.max_lag + 2:
            raise ValueError(f"relay.keep = {self.relay.keep} must be more than lag.max_lag + 2")
        completions = self.batch.groups * self.batch.group_size
        if self.optimizer.steps_per_batch > completions:
            raise ValueError(
                f"optimizer.steps_per_batch = {self.optimizer.steps_per_batch}: a batch has {completions} completions"
            )
        return self

    def public(self) -> dict[str, Any]:
        """Plain data for RunCreated: all but the server's address, which may hold a password."""
        return self.model_dump(mode="json", exclude={"bus": {"url"}})


def load(path: Path | str, overrides: dict[str, str] | None = None) -> Config:
    """Read a TOML file, apply dotted overrides ({"batch.groups": "8"}) and validate.

    An override's value is read as TOML, and as a string when it is not TOML. Raises ConfigError.
    """
    try:
        with open(path, "rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; give the path of a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    for dotted, text in (overrides or {}).items():
        _set(values, dotted, text)
    return parse(values, str(path))


def parse(values: dict[str, Any], where: str = "configuration") -> Config:
    """Validate a nested dictionary; raises ConfigError that names every wrong key."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{where}: " + "; ".join(map(_explain, error.errors()))) from None


def _set(values: dict[str, Any], dotted: str, text: str) -> None:
    *path, last = dotted.split(".")
    table = values
    for name in path:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise ConfigError(f"--{dotted}: {name} is not a table")
    try:
        table[last] = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        table[last] = text


def _explain(error: Any) -> str:
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"unknown key {key}; there are {', '.join(_keys_beside(error['loc']))}"
    if error["type"] == "missing":
        return f"{key} is missing"
    if not key:
        return str(error["ctx"]["error"])
    return f"{key} = {error['input']!r}: {error['msg']}"


def _keys_beside(location: tuple[str | int, ...]) -> list[str]:
    """The keys that the table of a wrong key does have."""
    section: type[BaseModel] = Config
    for name in location[:-1]:
        section = cast(type[BaseModel], section.model_fields[str(name)].annotation)
    return list(section.model_fields)
