"""Tiny random policies of two architectures, for the tests of policy/ and workers/."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

VOCABULARY = 76
ARCHITECTURES = ("qwen3", "llama")


def model(architecture: str = "qwen3", seed: int = 0, tied: bool = True) -> PreTrainedModel:
    """Random weights, float32; wide enough an initialisation that the next token depends on the context."""
    shape = {
        "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256,
        "tie_word_embeddings": tied, "initializer_range": 0.1,
    }  # fmt: skip
    torch.manual_seed(seed)
    if architecture == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**shape)).eval()
    return LlamaForCausalLM(LlamaConfig(**shape)).eval()


def folder(model: PreTrainedModel, directory: Path) -> Path:
    """The model as transformers itself saves it."""
    model.save_pretrained(directory)
    return directory


def ids(random: np.random.Generator, length: int) -> NDArray[np.uint32]:
    return random.integers(0, VOCABULARY, length).astype(np.uint32)
