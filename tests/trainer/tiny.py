"""A tiny random policy and samples for it, for the tests of the trainer's numerical part."""

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from schemas.config import Config, parse
from trainer.packing import Sample

VOCABULARY = 31


def model(seed: int = 0) -> Qwen3ForCausalLM:
    torch.manual_seed(seed)
    shape = Qwen3Config(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, max_position_embeddings=64, tie_word_embeddings=True,
        initializer_range=0.3,
    )  # fmt: skip
    return Qwen3ForCausalLM(shape)


def config(**sections: dict) -> Config:
    """A configuration for the tiny model; sections override its defaults key by key."""
    optimizer = {
        "learning_rate": 1e-3,
        "warmup_steps": 0,
        "max_grad_norm": 1.0,
        **sections.pop("optimizer", {}),
    }
    loss = {"ratio_to": "proximal", **sections.pop("loss", {})}  # the samples' claims are random numbers
    return parse({"policy": {"model": "tiny"}, "optimizer": optimizer, "loss": loss, **sections})


def samples(count: int = 12, seed: int = 0) -> list[Sample]:
    """Random samples of differing lengths; every third holds environment tokens."""
    random = np.random.default_rng(seed)
    return [_sample(random, random.integers(2, 7), random.integers(1, 9), at % 3 == 0) for at in range(count)]


def _sample(random: np.random.Generator, prompt: int, completion: int, environment: bool) -> Sample:
    ids = random.integers(0, VOCABULARY, prompt + completion)
    trained = np.ones(completion, bool)
    trained[: completion // 2] = not environment
    claims = -random.random(trained.sum()).astype(np.float32)
    return Sample(ids[:prompt], ids[prompt:], trained, claims, float(random.normal()))
