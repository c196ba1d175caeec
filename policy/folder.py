"""A policy's folder beside its weights: where a model lies, and new weights in an old folder's clothes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from huggingface_hub import snapshot_download
from safetensors.torch import save_file
from torch import Tensor

from policy.model import WEIGHTS

COMPANIONS = (
    "config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json",
    "merges.txt", "tokenizer.model", "added_tokens.json", "chat_template.jinja",
)  # fmt: skip
"""Files that travel with the weights, where there are any."""


def folder(name_or_directory: str) -> Path:
    """The local folder of a model: the directory itself, or a download from the Hugging Face hub.

    Raises OSError when there is neither.
    """
    path = Path(name_or_directory).expanduser()
    if path.is_dir():
        return path
    try:
        return Path(snapshot_download(name_or_directory, allow_patterns=[*COMPANIONS, "*.safetensors*"]))
    except Exception as error:  # the hub's own errors are many, and none says what to do
        raise OSError(
            f"no model {name_or_directory}: it is no folder here and cannot be had from the hub ({type(error).__name__})"
        ) from None


def vocabulary(directory: Path) -> int:
    """How many token ids the model knows."""
    return int(json.loads((directory / "config.json").read_text())["vocab_size"])


def save_weights(weights: Mapping[str, Tensor], like: Path, directory: Path) -> None:
    """Write a policy of these weights (by name, tied ones once), with the configuration and tokenizer of `like`.

    Equal weights give equal files.
    """
    directory.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: weight.detach().cpu().contiguous() for name, weight in sorted(weights.items())},
        directory / WEIGHTS,
        metadata={"format": "pt"},
    )
    for name in COMPANIONS:
        if (like / name).is_file():
            shutil.copyfile(like / name, directory / name)
