"""TOPLOC: 258 bytes that commit to the activations behind 32 tokens (Ong et al., arXiv 2501.16007).

A completion's last hidden states, in bfloat16, are cut into chunks of 32 rows. Of each chunk the 128 values
of largest magnitude are encoded: the polynomial over GF(65497) that takes the value's bit pattern at its
index (modulo a number that keeps the indices distinct). Whoever computes the same rows again evaluates the
polynomial at the indices of its own largest values and compares bits.

On the wire a chunk is a modulus and 128 coefficients, lowest first, as big-endian uint16: the bytes of the
reference implementation. What is ours is how ends are cut and ties decided:

* A tail of fewer than 8 rows belongs to the chunk before, which then has up to 39: short chunks are noisy.
  A completion of fewer than 8 tokens is one short chunk.
* A chunk with fewer than 128 values encodes all of them; the remaining coefficients are 0.
* Of equal magnitudes the one with the lower index comes first.
* The sign counts as part of the exponent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from policy.galois import PRIME, evaluate, interpolate
from schemas.rollouts import PROOF_BYTES

CHUNK_ROWS = 32
MIN_TAIL_ROWS = 8
TOP_VALUES = 128
WORST_MANTISSA_ERROR = 128.0
"""Reported where no exponent agrees; true errors of a 7-bit mantissa are at most 127."""

_INFINITY_BITS = 0x7F80
_SORT_ELEMENTS = 1 << 20


class MalformedProof(ValueError):
    """The bytes are no proof of a completion of this length, whatever the model."""


class NonFiniteHidden(ValueError):
    """Hidden states hold infinities or NaN: the policy or the engine is broken, and nothing can be proven."""


@dataclass(frozen=True)
class Errors:
    """What a verification measured, per chunk of one completion; each an array [C].

    points: values compared, 128 but in very short chunks. exponent_mismatches: of them, those whose sign or
    exponent differs. mantissa_mean, mantissa_median: absolute difference of the 7-bit mantissas over the
    others; `WORST_MANTISSA_ERROR` where there are none.
    """

    points: NDArray[np.int64]
    exponent_mismatches: NDArray[np.int64]
    mantissa_mean: NDArray[np.float64]
    mantissa_median: NDArray[np.float64]


@dataclass(frozen=True)
class _Top:
    """The largest values of C chunks. indices, bits: [128, C], of which the first count [C] are used."""

    indices: NDArray[np.int64]
    bits: NDArray[np.uint32]
    count: NDArray[np.int64]


def chunk_rows(tokens: int) -> list[int]:
    """Rows of each chunk of a completion of `tokens` tokens."""
    full, tail = divmod(tokens, CHUNK_ROWS)
    if full and tail < MIN_TAIL_ROWS:
        return [CHUNK_ROWS] * (full - 1) + [CHUNK_ROWS + tail]
    return [CHUNK_ROWS] * full + [tail] * (tail > 0)


def build(hidden: Sequence[Tensor]) -> list[bytes]:
    """The proofs of a batch of completions, given each one's hidden rows [T, H]; 258 bytes per chunk.

    Rows of another dtype are rounded to bfloat16 first. Raises NonFiniteHidden.
    """
    top = _top_values(hidden)
    wire = np.zeros((len(top.count), 1 + TOP_VALUES), dtype=">u2")
    modulus = _injective_modulus(top)
    wire[:, 0] = modulus
    for k in np.unique(top.count):
        same = np.flatnonzero(top.count == k)
        x = (top.indices[:k, same] % modulus[same]).astype(np.uint32)
        wire[same, 1 : k + 1] = interpolate(x, top.bits[:k, same]).T
    return [wire[part].tobytes() for part in _parts(hidden)]


def parse(proof: bytes, tokens: int) -> NDArray[np.uint32]:
    """A proof of a completion of `tokens` tokens as uint32 [C, 129]: modulus and coefficients of each chunk.

    Raises MalformedProof for a wrong length, a modulus outside 1..65497 or a coefficient that is no field element.
    """
    chunks = len(chunk_rows(tokens))
    if len(proof) != chunks * PROOF_BYTES:
        raise MalformedProof(
            f"{tokens} tokens are {chunks} chunks of {PROOF_BYTES} bytes, but the proof has {len(proof)} bytes"
        )
    words = np.frombuffer(proof, dtype=">u2").astype(np.uint32).reshape(chunks, 1 + TOP_VALUES)
    moduli, coefficients = words[:, 0], words[:, 1:]
    if words.size and (moduli.min() == 0 or moduli.max() > PRIME):
        raise MalformedProof(f"a modulus is outside 1..{PRIME}")
    if words.size and coefficients.max() >= PRIME:
        raise MalformedProof(f"a coefficient is {coefficients.max()}, and the field has {PRIME} elements")
    return words


def verify(hidden: Sequence[Tensor], proofs: Sequence[bytes]) -> list[Errors]:
    """Compare proofs with rows [T, H] that were computed again, for a batch of completions.

    Raises MalformedProof at the first proof that `parse` refuses: parse each one alone before paying for the
    rows. Raises NonFiniteHidden.
    """
    parsed = [parse(proof, len(rows)) for rows, proof in zip(hidden, proofs, strict=True)]
    top, words = _top_values(hidden), np.concatenate([np.empty((0, 1 + TOP_VALUES), np.uint32), *parsed])
    claimed = evaluate(np.ascontiguousarray(words[:, 1:].T), (top.indices % words[:, 0]).astype(np.uint32))
    used = np.arange(TOP_VALUES)[:, None] < top.count
    agree = used & (claimed >> 7 == top.bits >> 7)
    matches = agree.sum(axis=0)
    errors = np.where(agree, np.abs((claimed & 0x7F).astype(np.int64) - (top.bits & 0x7F)), 0)
    mean = np.where(matches, errors.sum(axis=0) / np.maximum(matches, 1), WORST_MANTISSA_ERROR)
    mismatches, median = top.count - matches, _median(errors, agree, matches)
    return [Errors(top.count[part], mismatches[part], mean[part], median[part]) for part in _parts(hidden)]


def _parts(hidden: Sequence[Tensor]) -> Iterator[slice]:
    """Where each completion's chunks lie among those of the batch."""
    start = 0
    for rows in hidden:
        chunks = len(chunk_rows(len(rows)))
        yield slice(start, start + chunks)
        start += chunks


def _median(
    errors: NDArray[np.int64], agree: NDArray[np.bool_], matches: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Median down each column [128, C] over the `matches` rows that agree."""
    ordered = np.sort(np.where(agree, errors, 1 << 8), axis=0)
    middle = np.stack([np.maximum(matches - 1, 0) // 2, matches // 2])
    median = np.take_along_axis(ordered, np.minimum(middle, TOP_VALUES - 1), axis=0).mean(axis=0)
    return np.where(matches, median, WORST_MANTISSA_ERROR)


def _top_values(hidden: Sequence[Tensor]) -> _Top:
    """The largest values of every chunk; chunks of equal size go through one sort."""
    chunks = [chunk.reshape(-1) for rows in hidden for chunk in rows.split(chunk_rows(len(rows)))]
    sizes = np.array([len(chunk) for chunk in chunks], dtype=np.int64)
    indices = np.zeros((TOP_VALUES, len(chunks)), dtype=np.int64)
    bits = np.zeros((TOP_VALUES, len(chunks)), dtype=np.uint32)
    for size in np.unique(sizes):
        same, step = np.flatnonzero(sizes == size), max(1, _SORT_ELEMENTS // int(size))
        for at in range(0, len(same), step):
            places = same[at : at + step]
            found, values = _largest(torch.stack([chunks[i] for i in places]))
            indices[: found.shape[1], places], bits[: found.shape[1], places] = found.T, values.T
    return _Top(indices, bits, np.minimum(sizes, TOP_VALUES))


def _largest(values: Tensor) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """[C, N] -> indices and bfloat16 bits [C, min(N, 128)] of the largest magnitudes, ties to the lower index."""
    size = values.shape[1]
    bits = values.to(torch.bfloat16).view(torch.int16).to(torch.int64)
    key = (bits & 0x7FFF).mul_(size).add_(torch.arange(size - 1, -1, -1, device=values.device))
    key = key.topk(min(size, TOP_VALUES), dim=1).values
    if (key[:, 0] >= _INFINITY_BITS * size).any():
        raise NonFiniteHidden("hidden states hold infinities or NaN, so no TOPLOC proof can be made of them")
    indices = size - 1 - key % size
    return indices.cpu().numpy(), (bits.gather(1, indices) & 0xFFFF).cpu().numpy()


def _injective_modulus(top: _Top) -> NDArray[np.int64]:
    """Per chunk the largest m <= 65497 modulo which the indices are distinct; [C]."""
    modulus = np.full(len(top.count), PRIME, dtype=np.int64)
    unused = np.arange(TOP_VALUES)[:, None] >= top.count
    pending = np.flatnonzero(top.indices.max(axis=0, initial=0) >= PRIME)
    while len(pending):
        residues = top.indices[:, pending] % modulus[pending]
        residues = np.where(unused[:, pending], -1 - np.arange(TOP_VALUES)[:, None], residues)
        collides = (np.diff(np.sort(residues, axis=0), axis=0) == 0).any(axis=0)
        pending = pending[collides]
        modulus[pending] -= 1
    return modulus
