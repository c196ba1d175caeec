from hashlib import sha256

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from policy import MalformedProof, NonFiniteHidden, prefill, toploc
from policy.galois import PRIME
from schemas.rollouts import PROOF_BYTES
from tests.policy import tiny


def rows(tokens: int, width: int = 64, seed: int = 0) -> Tensor:
    return torch.randn(tokens, width, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


def planted(tokens: int, width: int, indices: Tensor) -> Tensor:
    """128 values of distinct magnitude and alternating sign at these indices of the flattened rows, zeros elsewhere."""
    k, flat = torch.arange(128), torch.zeros(tokens * width, dtype=torch.bfloat16)
    flat[indices] = ((1 - 2 * (k % 2)) * (1 + k / 64)).to(torch.bfloat16)
    return flat.view(tokens, width)


@pytest.mark.parametrize(
    ("tokens", "width", "start", "hashed"),
    [
        (7, 64, "ffd9f179b9b03bdf", "9be7f67828d4f43bc9fd5119665a65fd51c49d435c7aa7c1dc5d0a7f94b88aaa"),
        (39, 64, "ffd9e8452572aa8b", "5b9bcd543279e74802039043a9fd7f3176f6d9e3621215f39ca1959d10d95466"),
        (32, 5120, "ffd7d2bb71f0981b", "7e26b7e1c63e5861528f2ecf79aaa33690231b71f196e8329aeaeb4308c3114e"),
    ],
)
def test_same_bytes_as_the_reference_implementation(tokens: int, width: int, start: str, hashed: str) -> None:
    """The proofs that toploc 0.1.6 built from the same rows. The last one needs a smaller modulus: 65495."""
    indices = (torch.arange(128) * 7919 + 13) % (tokens * width)
    if width == 5120:
        indices[1], indices[3] = indices[0] + 65497, indices[2] + 65496
    (proof,) = toploc.build([planted(tokens, width, indices)])
    assert proof[:8].hex() == start
    assert sha256(proof).hexdigest() == hashed


@pytest.mark.parametrize(
    ("tokens", "chunks"),
    [
        (0, []),
        (1, [1]),
        (7, [7]),
        (8, [8]),
        (32, [32]),
        (39, [39]),
        (40, [32, 8]),
        (71, [32, 39]),
        (72, [32, 32, 8]),
    ],
)
def test_chunks(tokens: int, chunks: list[int]) -> None:
    assert toploc.chunk_rows(tokens) == chunks


def test_a_batch_gives_the_proofs_of_each_completion_alone() -> None:
    hidden = [rows(tokens, seed=tokens) for tokens in (7, 1, 40, 7, 100, 3)]
    proofs = toploc.build(hidden)
    assert proofs == [toploc.build([part])[0] for part in hidden]
    assert [len(proof) // PROOF_BYTES for proof in proofs] == [1, 1, 2, 1, 3, 1]
    for errors in toploc.verify(hidden, proofs):
        assert (errors.points.tolist(), errors.exponent_mismatches.any(), errors.mantissa_mean.any()) == (
            [min(128, errors.points[0])] * len(errors.points), False, False,
        )  # fmt: skip


def test_a_chunk_with_fewer_values_than_coefficients_encodes_all_of_them() -> None:
    hidden = rows(1, width=16)
    (proof,) = toploc.build([hidden])
    assert proof[2 * 17 :] == bytes(PROOF_BYTES - 2 * 17)
    (errors,) = toploc.verify([hidden], [proof])
    assert (errors.points.tolist(), errors.exponent_mismatches.tolist()) == ([16], [0])
    (errors,) = toploc.verify([rows(1, width=16, seed=1)], [proof])
    assert errors.exponent_mismatches[0] > 8


def test_equal_magnitudes_are_taken_in_the_order_of_their_indices() -> None:
    hidden = torch.ones(32, 64, dtype=torch.bfloat16)
    hidden[:, ::2] = -1
    proof = toploc.build([hidden])
    hidden[2:] = 0.5  # the first 128 values alone were encoded
    assert toploc.build([hidden]) == proof


def test_errors_are_measured_in_bits() -> None:
    hidden = planted(32, 64, torch.arange(128))
    proof = toploc.build([hidden])
    moved = hidden.flatten().clone()
    moved[:10] = -moved[:10]  # another sign
    moved[10:13] *= 2  # another exponent
    bits = moved[13:20].view(torch.int16)
    bits ^= 1  # the last bit of the mantissa
    (errors,) = toploc.verify([moved.view(32, 64)], proof)
    assert errors.exponent_mismatches.tolist() == [13]
    assert errors.mantissa_mean.tolist() == [7 / 115]
    assert errors.mantissa_median.tolist() == [0.0]
    (errors,) = toploc.verify([-hidden], proof)
    assert errors.exponent_mismatches.tolist() == [128]
    assert errors.mantissa_mean.tolist() == errors.mantissa_median.tolist() == [toploc.WORST_MANTISSA_ERROR]


@given(st.lists(st.integers(0, 127), min_size=1, max_size=128))
def test_median(values: list[int]) -> None:
    column = np.zeros((128, 1), dtype=np.int64)
    column[: len(values), 0] = values
    agree = np.arange(128)[:, None] < len(values)
    assert toploc._median(column, agree, np.array([len(values)])).tolist() == [np.median(values)]


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_another_policy_is_seen(architecture: str) -> None:
    random = np.random.default_rng(0)
    prompts, completions = ([tiny.ids(random, length) for length in (5, 40, 7)] for _ in range(2))
    honest, other = (prefill(tiny.model(architecture, seed), prompts, completions) for seed in (0, 1))
    proofs = toploc.build(honest)
    for errors in toploc.verify(honest, proofs):
        assert errors.exponent_mismatches.max() == 0
    for errors in toploc.verify(other, proofs):
        assert errors.exponent_mismatches.min() > 60


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_non_finite_rows_are_an_error(value: float) -> None:
    hidden = rows(9)
    hidden[4, 5] = value
    with pytest.raises(NonFiniteHidden):
        toploc.build([hidden])
    with pytest.raises(NonFiniteHidden):
        toploc.verify([hidden], toploc.build([rows(9)]))


def with_word(proof: bytes, at: int, word: int) -> bytes:
    return proof[: 2 * at] + word.to_bytes(2, "big") + proof[2 * at + 2 :]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda proof: b"", "1 chunks of 258 bytes, but the proof has 0"),
        (lambda proof: proof[:-1], "has 257"),
        (lambda proof: proof + proof, "has 516"),
        (lambda proof: with_word(proof, 0, 0), "modulus"),
        (lambda proof: with_word(proof, 0, PRIME + 1), "modulus"),
        (lambda proof: with_word(proof, 1, PRIME), "coefficient"),
        (lambda proof: with_word(proof, 128, 65535), "coefficient"),
    ],
)
def test_malformed_proofs_are_refused(change, reason: str) -> None:
    hidden = rows(9)
    proof = change(toploc.build([hidden])[0])
    with pytest.raises(MalformedProof, match=reason):
        toploc.parse(proof, 9)
    with pytest.raises(MalformedProof, match=reason):
        toploc.verify([hidden], [proof])


@given(st.binary(max_size=3 * PROOF_BYTES), st.integers(0, 80))
def test_any_bytes_are_measured_or_refused(proof: bytes, tokens: int) -> None:
    try:
        toploc.parse(proof, tokens)
    except MalformedProof:
        return
    (errors,) = toploc.verify([rows(tokens)], [proof])
    assert len(errors.points) == len(proof) // PROOF_BYTES


@given(st.integers(1, PRIME), st.lists(st.integers(0, PRIME - 1), min_size=128, max_size=128))
def test_any_well_formed_proof_is_measured(modulus: int, coefficients: list[int]) -> None:
    proof = np.array([modulus, *coefficients], dtype=">u2").tobytes()
    (errors,) = toploc.verify([rows(9)], [proof])
    assert 0 <= errors.exponent_mismatches[0] <= errors.points[0] == 128
    assert 0 <= errors.mantissa_mean[0] <= toploc.WORST_MANTISSA_ERROR


def test_no_completions() -> None:
    assert toploc.build([]) == []
    assert toploc.verify([], []) == []
