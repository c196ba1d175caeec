"""Proof of possession: an answer that only the holder of the weights can give, for the price of 64 KB of reading.

The nonce comes with the grant and chooses blocks of the weights; the answer is their hash, keyed by the
nonce. A worker that claims a policy it never loaded cannot know which bytes it will need.
"""

from __future__ import annotations

import bisect
import itertools

import torch
from blake3 import blake3
from torch import Tensor

from policy.weights import Weights, tensors

BLOCKS = 16
BLOCK_BYTES = 4096


def answer(weights: Weights, nonce: bytes) -> bytes:
    """The answer, 32 bytes, to a nonce of 32 bytes.

    The weights are one string of bytes: the tensors in the order of their names, tied ones once, in row-major
    order. Block i starts at the i-th little-endian 64-bit word of BLAKE3's output for the nonce, modulo the
    number of places where a whole block fits. The answer is BLAKE3, keyed by the nonce, of the blocks.
    """
    ordered = [tensor.detach() for tensor in tensors(weights).values()]
    ends = list(itertools.accumulate(tensor.nbytes for tensor in ordered))
    places = max(1, ends[-1] - BLOCK_BYTES + 1)
    draws = blake3(nonce).digest(length=8 * BLOCKS)
    hashed = blake3(key=nonce)
    for i in range(BLOCKS):
        hashed.update(_read(ordered, ends, int.from_bytes(draws[8 * i : 8 * i + 8], "little") % places))
    return hashed.digest()


def _read(ordered: list[Tensor], ends: list[int], start: int) -> bytes:
    """BLOCK_BYTES from `start` on, which may span tensors; fewer where the weights end."""
    found, at = b"", bisect.bisect_right(ends, start)
    while len(found) < BLOCK_BYTES and at < len(ordered):
        offset = start + len(found) - (ends[at] - ordered[at].nbytes)
        flat = ordered[at].contiguous().reshape(-1).view(torch.uint8)
        found += flat[offset : offset + BLOCK_BYTES - len(found)].cpu().numpy().tobytes()
        at += 1
    return found
