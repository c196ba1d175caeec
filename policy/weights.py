"""The tensors of a policy, in a live model, in a mapping or in a directory: names, digest, exchange in place.

They have the same names everywhere, tied ones once, and therefore one digest (`schemas.digest`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from schemas.digest import tensor_hash, weights_digest

Weights = nn.Module | Mapping[str, Tensor]
"""A live model, or its tensors by name."""
WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
"""How safetensors spells dtypes."""


class DigestMismatch(ValueError):
    """The weights are not those that were announced; a model they were copied into must not be used."""


def tensors(weights: Weights) -> dict[str, Tensor]:
    """Parameters and persistent buffers in the order of their names; tied parameters once, under the first name."""
    if not isinstance(weights, nn.Module):
        return dict(sorted(weights.items()))
    every = {name for name, _ in weights.named_parameters(remove_duplicate=False)}
    tied = every - {name for name, _ in weights.named_parameters()}
    return {name: tensor for name, tensor in sorted(weights.state_dict().items()) if name not in tied}


def digest(weights: Weights) -> str:
    """The digest of the weights that are computed with; equals `file_digest` of where they were saved."""
    return weights_digest((name, _hash(name, tensor)) for name, tensor in tensors(weights).items())


def file_digest(directory: str | Path) -> str:
    """The digest of the weights in a policy's directory, without a model."""
    return weights_digest((name, _hash(name, tensor)) for name, tensor in _stored(Path(directory)))


def check_digest(weights: Weights, expected: str) -> None:
    """Raises DigestMismatch unless the weights have the announced digest."""
    if (found := digest(weights)) != expected:
        raise DigestMismatch(
            f"the weights have digest {found}, but {expected} was announced: fetch them again"
        )


def swap(model: nn.Module, directory: str | Path, expected: str) -> None:
    """Copy the weights of `directory` into the live model, then check that its digest is `expected`.

    Raises DigestMismatch: before anything is copied when names, shapes or dtypes differ, and afterwards when
    the digest does; the model then holds unknown weights, and its owner must report no policy at all.
    """
    own, stored = tensors(model), dict(_stored(Path(directory)))
    layout, stored_layout = ({(n, t.shape, t.dtype) for n, t in side.items()} for side in (own, stored))
    if differing := sorted(str(name) for name, _, _ in layout ^ stored_layout):
        raise DigestMismatch(
            f"{directory} is of another architecture or dtype than the model: see {differing[0]}"
        )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(stored[name])
    check_digest(model, expected)


def _hash(name: str, tensor: Tensor) -> bytes:
    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
    return tensor_hash(name, DTYPES[tensor.dtype], tensor.shape, data)


def _stored(directory: Path) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a directory's safetensors, memory-mapped."""
    index = directory / WEIGHTS_INDEX
    files = sorted(set(json.loads(index.read_text())["weight_map"].values())) if index.exists() else [WEIGHTS]
    for file_name in files:
        with safe_open(directory / file_name, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - a safetensors file is not iterable
                yield name, file.get_tensor(name)
