"""A policy on disk and in memory: load, save, digest, and new weights into a live model.

On disk a policy is a directory that transformers and vLLM load: safetensors, config.json and, when given,
the tokenizer's files. In memory it is a transformers model. Its tensors have the same names in both, tied
ones once, and therefore one digest (`schemas.digest`).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from schemas.digest import tensor_hash, weights_digest

WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
"""How safetensors spells dtypes."""


class DigestMismatch(ValueError):
    """The weights are not those that were announced; a model they were copied into must not be used."""


class UnsupportedModel(ValueError):
    """The model's logits are not its head applied to its last hidden state, so they cannot be replayed."""


def load(name_or_directory: str | Path, dtype: str | torch.dtype | None = None) -> PreTrainedModel:
    """A causal language model in evaluation mode, from a local directory or the Hugging Face hub.

    dtype: of the weights; None: as stored. Only safetensors are read and no remote code is run. Raises
    OSError when there is no such model, UnsupportedModel when its logits cannot be replayed.
    """
    transformers.logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        str(name_or_directory), dtype=dtype or "auto", attn_implementation="sdpa", use_safetensors=True
    ).eval()
    _require_plain_head(model)
    return model


def tokenizer(name_or_directory: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer stored beside the policy."""
    return AutoTokenizer.from_pretrained(str(name_or_directory))


def save(
    model: PreTrainedModel, directory: str | Path, tokenizer: PreTrainedTokenizerBase | None = None
) -> None:
    """Write the policy; equal weights give equal files.

    There is no generation config: how to sample comes with each grant, never from a file.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors(model).items()}
    save_file(weights, directory / WEIGHTS, metadata={"format": "pt"})
    config = copy.deepcopy(model.config)
    config.architectures, config.dtype = [type(model).__name__], model.dtype
    config.save_pretrained(directory)
    if tokenizer is not None:
        tokenizer.save_pretrained(directory)


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name, in the order of their names; tied parameters once."""
    every = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    tied = every - {name for name, _ in model.named_parameters()}
    return {name: tensor for name, tensor in sorted(model.state_dict().items()) if name not in tied}


def digest(model: nn.Module | Mapping[str, Tensor]) -> str:
    """The digest of the weights that a model computes with; equals `file_digest` of where it was saved."""
    weights = tensors(model) if isinstance(model, nn.Module) else model
    return weights_digest((name, _hash(name, tensor)) for name, tensor in weights.items())


def require(model: nn.Module, expected: str) -> None:
    """Raises DigestMismatch unless the model computes with exactly the announced weights."""
    if (found := digest(model)) != expected:
        raise DigestMismatch(f"the weights have digest {found}, but {expected} was announced")


def file_digest(directory: str | Path) -> str:
    """The digest of the weights in a policy's directory, without a model."""
    return weights_digest((name, _hash(name, tensor)) for name, tensor in _stored(Path(directory)))


def swap(model: nn.Module, directory: str | Path, expected: str) -> None:
    """Copy the weights of `directory` into the live model, then check that its digest is `expected`.

    Raises DigestMismatch: before anything is copied when names, shapes or dtypes differ, and afterwards when
    the digest does; the model then holds unknown weights, and its owner must report no policy at all.
    """
    own, stored = tensors(model), dict(_stored(Path(directory)))
    layouts = [{name: (t.shape, t.dtype) for name, t in side.items()} for side in (own, stored)]
    if layouts[0] != layouts[1]:
        differing = sorted({name for name, _ in layouts[0].items() ^ layouts[1].items()})
        raise DigestMismatch(
            f"{directory} holds another architecture or dtype than the model: see {differing[0]}"
        )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(stored[name])
    require(model, expected)


def _hash(name: str, tensor: Tensor) -> bytes:
    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
    return tensor_hash(name, DTYPES[tensor.dtype], tensor.shape, data)


def _stored(directory: Path) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a directory's safetensors, memory-mapped."""
    index = directory / WEIGHTS_INDEX
    names = sorted(set(json.loads(index.read_text())["weight_map"].values())) if index.exists() else [WEIGHTS]
    for name in names:
        with safe_open(directory / name, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118 - a safetensors file is not iterable
                yield key, file.get_tensor(key)


@torch.no_grad()
def _require_plain_head(model: PreTrainedModel) -> None:
    ids = torch.zeros(1, 2, dtype=torch.int64, device=model.device)
    plain = model.get_output_embeddings()(model.base_model(ids, use_cache=False).last_hidden_state)
    if not torch.equal(plain, model(ids, use_cache=False).logits):
        raise UnsupportedModel(f"{type(model).__name__} scales or caps its logits; use a model without that")
