import math

import numpy as np
import torch

from policy import as_seeds, gumbel, replay, scores, token_logprobs

HEAD = torch.nn.Identity()
"""The rows are the logits."""


def drawn(logits: torch.Tensor, seeds: list[int], temperature: float) -> torch.Tensor:
    """One completion per seed, of as many tokens as there are rows of logits, each from its own row."""
    noise = gumbel(as_seeds(seeds).unsqueeze(1), torch.arange(len(logits)), logits.shape[1])
    return scores(logits, temperature, noise).argmax(-1)


def test_draws_follow_the_softmax() -> None:
    logits, temperature, draws = torch.tensor([[2.0, 1.0, 0.5, 0.0, -0.5, -1.0, -2.0]]), 0.7, 40000
    counts = drawn(logits, list(range(draws)), temperature).flatten().bincount(minlength=7).numpy()
    expected = (logits[0] / temperature).softmax(-1).numpy() * draws
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert statistic < 22.46  # chi-square, 6 degrees of freedom, p = 0.001


def test_neighbouring_positions_and_tokens_are_independent() -> None:
    noise = gumbel(as_seeds(range(3000)).unsqueeze(1), torch.arange(2), 5).flatten(1)
    off_diagonal = torch.corrcoef(noise.T) - torch.eye(10)
    assert off_diagonal.abs().max() < 5 / math.sqrt(3000)


def test_logprobs_are_of_the_sampling_distribution() -> None:
    logits, ids = torch.randn(2, 3, 11), torch.randint(11, (2, 3))
    probabilities = (logits / 0.5).softmax(-1)
    expected = probabilities.gather(-1, ids.unsqueeze(-1)).squeeze(-1).log()
    torch.testing.assert_close(token_logprobs(logits, ids, 0.5), expected)


def test_replay_gives_the_distance_to_the_winner_and_the_log_probs() -> None:
    torch.manual_seed(0)
    logits, seeds = [torch.randn(4, 9), torch.randn(7, 9), torch.randn(1, 9)], [1, 2**64 - 1, 3]
    temperatures = [1.5, 0.5, 1.0]
    ids = [
        drawn(part, [seed], temperature)[0].numpy().astype(np.uint32)
        for part, seed, temperature in zip(logits, seeds, temperatures, strict=True)
    ]
    found = replay(HEAD, logits, ids, seeds, temperatures)
    assert [one.margins.tolist() for one in found] == [[0.0] * 4, [0.0] * 7, [0.0]]
    for one, part, sent, temperature in zip(found, logits, ids, temperatures, strict=True):
        own = token_logprobs(part, torch.from_numpy(sent.astype(np.int64)), temperature)
        torch.testing.assert_close(one.logprobs, own)
    ids[1][3] = (ids[1][3] + 1) % 9
    margins = [one.margins for one in replay(HEAD, logits, ids, seeds, temperatures)]
    assert [int((margin > 0).sum()) for margin in margins] == [0, 1, 0]
    raced = scores(logits[1][3], 0.5, gumbel(as_seeds([seeds[1]])[0], torch.tensor(3), 9))
    assert margins[1][3] == raced.max() - raced[int(ids[1][3])]


def test_replay_in_parts_equals_replay_at_once_and_bounds_the_logits(monkeypatch) -> None:
    logits, ids = [torch.randn(5, 9), torch.randn(6, 9)], [np.zeros(5, np.uint32), np.zeros(6, np.uint32)]
    whole = replay(HEAD, logits, ids, [1, 2], [1.0, 2.0])
    monkeypatch.setattr("policy.sampling.REPLAY_ELEMENTS", 20)
    rows: list[int] = []

    def head(hidden: torch.Tensor) -> torch.Tensor:
        rows.append(len(hidden))
        return hidden

    parts = replay(head, logits, ids, [1, 2], [1.0, 2.0])
    assert max(rows) == 2
    for one, other in zip(whole, parts, strict=True):
        assert torch.equal(one.margins, other.margins)
        assert torch.equal(one.logprobs, other.logprobs)


def test_replay_of_bfloat16_rows_is_float32() -> None:
    (found,) = replay(HEAD, [torch.randn(2, 9).bfloat16()], [np.zeros(2, np.uint32)], [1], [1.0])
    assert (found.margins.dtype, found.logprobs.dtype) == (torch.float32, torch.float32)


def test_replay_of_nothing() -> None:
    assert replay(HEAD, [], [], [], []) == []
