import math

import numpy as np
import torch

from policy import as_seeds, gumbel, replay, scores, token_logprobs


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


def test_replay_gives_the_distance_to_the_winner() -> None:
    torch.manual_seed(0)
    logits, seeds = [torch.randn(4, 9), torch.randn(7, 9), torch.randn(1, 9)], [1, 2**64 - 1, 3]
    ids = [
        drawn(part, [seed], 1.5)[0].numpy().astype(np.uint32)
        for part, seed in zip(logits, seeds, strict=True)
    ]
    assert [margin.tolist() for margin in replay(logits, ids, seeds, 1.5)] == [[0.0] * 4, [0.0] * 7, [0.0]]
    ids[1][3] = (ids[1][3] + 1) % 9
    margins = replay(logits, ids, seeds, 1.5)
    assert [int((margin > 0).sum()) for margin in margins] == [0, 1, 0]
    raced = scores(logits[1][3], 1.5, gumbel(as_seeds([seeds[1]])[0], torch.tensor(3), 9))
    assert margins[1][3] == raced.max() - raced[int(ids[1][3])]


def test_replay_in_parts_equals_replay_at_once(monkeypatch) -> None:
    logits, ids = [torch.randn(5, 9), torch.randn(6, 9)], [np.zeros(5, np.uint32), np.zeros(6, np.uint32)]
    whole = torch.cat(replay(logits, ids, [1, 2], 1.0))
    monkeypatch.setattr("policy.sampling.REPLAY_ELEMENTS", 20)
    assert torch.equal(torch.cat(replay(logits, ids, [1, 2], 1.0)), whole)


def test_replay_of_nothing() -> None:
    assert replay([], [], [], 1.0) == []
