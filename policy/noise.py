"""Gumbel noise that anyone can compute again, bit for bit, on any device (docs/sampling.md).

The noise of a token is a pure function of (seed, position, token): one word of Philox4x32-10 (Salmon et
al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) is looked up in a table of float32 Gumbel
quantiles. At run time there are only integer operations and the look-up, so that a worker on a GPU and a
validator on a CPU hold the same noise; logarithms, which differ between libraries, are taken once, in
float64, and the table that results is checked against its digest.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import torch
from blake3 import blake3
from numpy.typing import NDArray
from torch import Tensor

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
MASK = 0xFFFFFFFF
MANTISSA_BITS = 12
"""Cells of the table per power of two."""
TABLE_DIGEST = "f088c48f62e21b4fb57b5348aaa60cd8da1cacd000ea29c3407a9a7c709e60bb"
BLOCK_ELEMENTS = 1 << 15
"""Counters that one pass of Philox holds: its four words stay in a core's cache."""


class NoiseTableError(RuntimeError):
    """This machine computes another table than docs/sampling.md fixes; its completions could not be checked."""


def philox(counter: Sequence[Tensor], key: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Philox4x32-10: four counter words and two key words -> four output words.

    All are int64 tensors that hold unsigned 32-bit words and broadcast together. A 64-bit product wraps in
    int64, which leaves its bits as they are; only words that are multiplied next need their upper half cleared.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1 = ((p1 >> 32) ^ c1 ^ k0) & MASK, p1
        c2, c3 = ((p0 >> 32) ^ c3 ^ k1) & MASK, p0
        k0, k1 = k0 + WEYL[0], k1 + WEYL[1]
    return c0, c1 & MASK, c2, c3 & MASK


def words(seeds: Tensor, positions: Tensor, blocks: Tensor) -> Tensor:
    """The random words of four neighbouring tokens each: key = seed (low, high), counter = (block, position, 0, 0).

    seeds, positions, blocks: int64, broadcast together to shape [...]. Returns int64 [..., 4], words below 2**32.
    """
    zero = torch.zeros_like(blocks)
    key = (seeds & MASK, (seeds >> 32) & MASK)
    return torch.stack(philox((blocks, positions, zero, zero), key), dim=-1)


def as_seeds(seeds: Sequence[int] | NDArray[np.uint64], device: torch.device | str = "cpu") -> Tensor:
    """64-bit unsigned seeds -> the int64 tensor [B] with the same bits, which torch can compute with."""
    return torch.from_numpy(np.array(seeds, dtype=np.uint64).view(np.int64)).to(device)


def gumbel(seeds: Tensor, positions: Tensor, vocab: int) -> Tensor:
    """Noise of every token of the vocabulary.

    seeds: int64 bits of the 64-bit seeds (`as_seeds`). positions: int64, index of the completion's token
    (0: the first sampled one). Both broadcast together to [...]. Returns float32 [..., vocab].
    """
    seeds, positions = torch.broadcast_tensors(seeds, positions)
    shape, seeds, positions = seeds.shape, seeds.reshape(-1, 1), positions.reshape(-1, 1)
    blocks = torch.arange(-(-vocab // 4), device=seeds.device)
    rows = max(1, BLOCK_ELEMENTS // len(blocks))
    noise = torch.empty(len(seeds), vocab, device=seeds.device)
    for at in range(0, len(seeds), rows):
        drawn = words(seeds[at : at + rows], positions[at : at + rows], blocks)
        noise[at : at + rows] = quantile(drawn).flatten(1)[:, :vocab]
    return noise.view(*shape, vocab)


def gumbel_of(seeds: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
    """Noise of given tokens alone: int64 seeds, positions and tokens broadcast together; float32 [...]."""
    seeds, positions, tokens = torch.broadcast_tensors(seeds, positions, tokens)
    drawn = words(seeds, positions, tokens // 4)
    return quantile(drawn.gather(-1, (tokens % 4).unsqueeze(-1)).squeeze(-1))


def quantile(words: Tensor) -> Tensor:
    """Uniform 32-bit words (int64) -> float32 Gumbel noise: the table at the leading bits of 2 w + 1.

    The exponent and top mantissa bits of a float64 are the leading bits of the integer that it holds
    exactly, so that the conversion is no arithmetic that could round.
    """
    bits = (words * 2 + 1).to(torch.float64).view(torch.int64)
    cells = (bits >> (52 - MANTISSA_BITS)) - (1023 << MANTISSA_BITS)
    return _table_on(words.device)[cells]


@functools.cache
def table() -> NDArray[np.float32]:
    """Gumbel quantiles by cell, float32 [33 * 2**MANTISSA_BITS]; raises NoiseTableError.

    Cell (e, f) holds the words whose odd number n = 2 w + 1 has exponent e and leading mantissa bits f:
    n / 2**33 is uniform, and noise = -log(-log(1 - n / 2**33)). The value is the noise at the cell's middle,
    its median.
    """
    exponent, mantissa = np.divmod(np.arange(33 << MANTISSA_BITS), 1 << MANTISSA_BITS)
    middle = np.ldexp(1 + (mantissa + 0.5) / (1 << MANTISSA_BITS), exponent - 33)
    values = (-np.log(-np.log1p(-middle))).astype("<f4")
    digest = blake3(values.tobytes()).hexdigest()
    if digest != TABLE_DIGEST:
        raise NoiseTableError(
            f"the table of Gumbel quantiles has digest {digest[:16]}, not {TABLE_DIGEST[:16]}: NumPy's log or log1p is "
            "inaccurate on this machine; use another build of NumPy"
        )
    return values


@functools.cache
def _table_on(device: torch.device) -> Tensor:
    return torch.from_numpy(table()).to(device)
