"""A policy as a directory that transformers and vLLM load: safetensors, config.json, the tokenizer's files."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import torch
import transformers
from huggingface_hub import snapshot_download
from safetensors.torch import save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from policy.weights import WEIGHTS, Weights, tensors
from schemas.config import ConfigError

CONFIG = "config.json"
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
    "tokenizer.model", "vocab.json", "vocab.txt", "merges.txt",
)  # fmt: skip
"""Files that travel with the weights, where the template has them."""
REQUIRED = {
    "configuration": (CONFIG,),
    "weights": ("*.safetensors",),
    "tokenizer": ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"),
}
"""What a folder must hold to be a model, and the files of which one is needed."""


_LOADING = threading.Lock()
"""transformers swaps torch's initialisers while it loads: two threads at once get half a model."""


class UnsupportedModel(ConfigError):
    """The model's logits are not its head applied to its last hidden state, so they cannot be replayed."""


def folder(name_or_directory: str) -> Path:
    """The directory of a model: the given one, or a snapshot from the Hugging Face hub. Raises ConfigError."""
    local = Path(name_or_directory)
    if local.is_dir():
        for what, patterns in REQUIRED.items():
            if not any(next(local.glob(pattern), None) for pattern in patterns):
                raise ConfigError(
                    f"policy.model = {name_or_directory!r} has no {what} ({' or '.join(patterns)}); save a whole model "
                    "there, for example with save_pretrained of transformers"
                )
        return local
    try:
        return Path(
            snapshot_download(name_or_directory, allow_patterns=[CONFIG, "*.safetensors*", *TOKENIZER_FILES])
        )
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"policy.model = {name_or_directory!r} is no local folder and cannot be had from the hub ({reason}); "
            "give the path of a folder with config.json and safetensors"
        ) from None


def device() -> torch.device:
    """Where this process computes: the first GPU when there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def load(
    directory: str | Path, dtype: str | torch.dtype = "auto", device: torch.device | str = "cpu"
) -> PreTrainedModel:
    """The causal language model of a directory, in evaluation mode.

    dtype: of the weights; "auto": as config.json says. device: where they go. Only safetensors are read and
    no remote code is run. Raises OSError when files are missing, UnsupportedModel when its logits cannot be
    replayed.
    """
    transformers.logging.disable_progress_bar()
    with _LOADING:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            str(directory), dtype=dtype, attn_implementation="sdpa", use_safetensors=True
        )
    model.to(device)  # type: ignore[arg-type]  # a decorator hides the signature
    model.eval()
    _require_plain_head(model)
    return model


def tokenizer(directory: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer stored beside the policy."""
    return AutoTokenizer.from_pretrained(str(directory))


def vocabulary(directory: str | Path) -> int:
    """How many token ids the model knows; every valid id is below."""
    return int(AutoConfig.from_pretrained(str(directory)).get_text_config().vocab_size)


def save(weights: Weights, template: str | Path, directory: str | Path) -> None:
    """Write a policy whose configuration and tokenizer are those of `template`; equal weights give equal files.

    There is no generation config: how to sample comes with each grant, never from a file.
    """
    template, directory = Path(template), Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors(weights).items()}
    save_file(stored, directory / WEIGHTS, metadata={"format": "pt"})
    dtype = next(tensor.dtype for tensor in stored.values() if tensor.is_floating_point())
    config = json.loads((template / CONFIG).read_text()) | {"dtype": str(dtype).removeprefix("torch.")}
    (directory / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    for name in TOKENIZER_FILES:
        if (template / name).is_file():
            shutil.copyfile(template / name, directory / name)


@torch.no_grad()
def _require_plain_head(model: PreTrainedModel) -> None:
    ids = torch.zeros(1, 2, dtype=torch.int64, device=model.device)
    plain = model.get_output_embeddings()(model.base_model(ids, use_cache=False).last_hidden_state)
    if not torch.equal(plain, model(ids, use_cache=False).logits):
        raise UnsupportedModel(f"{type(model).__name__} scales or caps its logits; use a model without that")
