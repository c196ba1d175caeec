import re
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from policy import as_seeds, gumbel, gumbel_of, noise

DOCUMENT = Path(__file__).parents[2] / "docs" / "sampling.md"
ROW = re.compile(r"\| `(\w{16})` \| (\d+) \| (\d+) \| `(\w{8})` \| (\d+) \| `(\w{8})` \| \S+ \|")
GOLDEN = [
    (int(s, 16), int(p), int(t), int(w, 16), int(c), int(g, 16))
    for s, p, t, w, c, g in ROW.findall(DOCUMENT.read_text())
]
PI = ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1")
ZEROS = ("00000000 " * 4, "00000000 " * 2, "6627e8d5 e169c58d bc57ac4c 9b00dbd8")
ONES = ("ffffffff " * 4, "ffffffff " * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd")


def words(text: str) -> list[torch.Tensor]:
    return [torch.tensor(int(word, 16)) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "output"), [PI, ZEROS, ONES])
def test_philox_gives_the_published_known_answers(counter: str, key: str, output: str) -> None:
    k0, k1 = words(key)
    assert list(noise.philox(words(counter), (k0, k1))) == words(output)


@pytest.mark.parametrize(("seed", "position", "token", "word", "cell", "bits"), GOLDEN)
def test_golden_vectors_of_the_document(
    seed: int, position: int, token: int, word: int, cell: int, bits: int
) -> None:
    seeds, positions, tokens = as_seeds([seed]), torch.tensor([position]), torch.tensor([token])
    assert noise.words(seeds, positions, tokens // 4)[0, token % 4] == word
    assert noise.table()[cell].view(np.uint32) == bits
    assert gumbel_of(seeds, positions, tokens).view(torch.int32).item() & 0xFFFFFFFF == bits


def test_the_document_has_golden_vectors_and_the_digest() -> None:
    assert len(GOLDEN) == 11
    assert noise.TABLE_DIGEST in DOCUMENT.read_text()


def test_a_whole_vocabulary_equals_its_tokens_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "BLOCK_ELEMENTS", 50)  # several passes, the last one not full
    seeds, positions = as_seeds([5, 2**64 - 1, 7]).unsqueeze(1), torch.arange(4)
    whole = gumbel(seeds, positions, 77)
    assert whole.shape == (3, 4, 77)
    assert whole.dtype == torch.float32
    single = gumbel_of(seeds.unsqueeze(-1), positions.unsqueeze(-1), torch.arange(77))
    assert torch.equal(whole, single)
    assert torch.equal(whole[1, 2], gumbel(as_seeds([2**64 - 1])[0], positions[2], 77))


def test_the_quantile_of_a_word_needs_no_floating_point() -> None:
    random = np.random.default_rng(0)
    drawn = [0, 1, 2, 4095, 4096, 2**31, 2**32 - 1, *(int(w) for w in random.integers(0, 2**32, 200))]
    for word in drawn:
        n = 2 * word + 1
        exponent = n.bit_length() - 1
        mantissa = ((n << noise.MANTISSA_BITS) >> exponent) & (2**noise.MANTISSA_BITS - 1)
        expected = noise.table()[(exponent << noise.MANTISSA_BITS) | mantissa]
        assert noise.quantile(torch.tensor([word])).item() == expected


def exact() -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Of every cell: the float64 quantile at its middle, how many words it has, and its noise."""
    cells = 1 << noise.MANTISSA_BITS
    exponent, mantissa = np.divmod(np.arange(33 * cells), cells)
    edges = [np.ldexp(1 + (mantissa + at) / cells, exponent) for at in (0.0, 0.5, 1.0)]
    odd = np.ceil((edges[2] - 1) / 2) - np.ceil((edges[0] - 1) / 2)
    return -np.log(-np.log1p(-edges[1] / 2**33)), odd, noise.table().astype(np.float64)


def test_no_library_of_ordinary_accuracy_gives_another_table() -> None:
    middle, _, table = exact()
    rounded = noise.table()
    neighbours = (np.nextafter(rounded, np.float32(side * np.inf)).astype(np.float64) for side in (1, -1))
    margin = np.minimum(*(np.abs((table + neighbour) / 2 - middle) for neighbour in neighbours))
    assert (margin / np.spacing(np.maximum(1, np.abs(middle)))).min() > 3500


def test_quantisation_keeps_probabilities_within_the_documented_error() -> None:
    _, odd, table = exact()
    assert odd.sum() == 2**32
    order = np.argsort(table, kind="stable")
    values, chance = table[order], odd[order] / 2**32
    below = np.concatenate([[0.0], np.cumsum(chance)])
    for behind in (0.0, 0.001, 0.1, 1.0, 3.0, 6.0, 10.0, 14.0, 18.0):
        true = 1 / (1 + np.exp(behind))
        for side in ("left", "right"):  # ties lost, ties won
            wins = (chance * below[np.searchsorted(values, values - behind, side)]).sum()
            assert wins == pytest.approx(true, rel=2e-4)


def test_another_table_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "TABLE_DIGEST", "0" * 64)
    noise.table.cache_clear()
    with pytest.raises(noise.NoiseTableError, match="another build of NumPy"):
        noise.table()
