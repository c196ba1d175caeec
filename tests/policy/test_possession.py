import secrets

import pytest
import torch
from blake3 import blake3

import policy
from policy.possession import BLOCK_BYTES, BLOCKS
from tests.policy import tiny


def test_the_answer_follows_from_the_specification() -> None:
    model, nonce = tiny.model(), bytes(range(32))
    text = b"".join(tensor.numpy(force=True).tobytes() for tensor in policy.tensors(model).values())
    draws = blake3(nonce).digest(length=8 * BLOCKS)
    starts = [
        int.from_bytes(draws[8 * i : 8 * i + 8], "little") % (len(text) - BLOCK_BYTES + 1)
        for i in range(BLOCKS)
    ]
    expected = blake3(b"".join(text[start : start + BLOCK_BYTES] for start in starts), key=nonce).digest()
    assert policy.answer(model, nonce) == expected == policy.answer(policy.tensors(model), nonce)


def test_answers_differ_between_nonces_and_policies() -> None:
    nonces = [secrets.token_bytes(32) for _ in range(3)]
    answers = {policy.answer(tiny.model(seed=seed), nonce) for seed in (0, 1) for nonce in nonces}
    assert len(answers) == 6


@pytest.mark.parametrize("values", [1, 7, 1023, 1024, 1025, 5000])
def test_small_weights_and_blocks_across_tensors(values: int) -> None:
    weights = {"b": torch.arange(values, dtype=torch.float32), "a": torch.tensor(3, dtype=torch.bfloat16)}
    text = weights["a"].reshape(1).view(torch.uint8).numpy().tobytes() + weights["b"].numpy().tobytes()
    nonce = secrets.token_bytes(32)
    draws, places = blake3(nonce).digest(length=8 * BLOCKS), max(1, len(text) - BLOCK_BYTES + 1)
    starts = [int.from_bytes(draws[8 * i : 8 * i + 8], "little") % places for i in range(BLOCKS)]
    expected = blake3(b"".join(text[start : start + BLOCK_BYTES] for start in starts), key=nonce).digest()
    assert policy.answer(weights, nonce) == expected
