import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import Completion, Segment, Span
from trainer.packing import Sample, pack


def sample(prompt=3, completion=4, advantage=1.0, first=10):
    """Token ids count up from `first`, so that every row can be told from every other."""
    ids = np.arange(first, first + prompt + completion, dtype=np.uint32)
    claims = -np.arange(completion, dtype=np.float32)
    return Sample(ids[:prompt], ids[prompt:], np.ones(completion, bool), claims, advantage)


def test_rows_point_at_the_token_before_each_target():
    batches = pack([sample(2, 3), sample(5, 1, first=50), sample(1, 6, first=80)], 1000)
    assert len(batches) == 1
    batch = batches[0]
    assert batch.inputs_BT.shape == (3, 6)
    before = batch.inputs_BT.flatten()[batch.rows_N]
    assert (before + 1).tolist() == batch.targets_N.tolist()
    assert batch.targets_N.tolist() == [12, 13, 14, 55, 81, 82, 83, 84, 85, 86]


def test_only_the_models_own_tokens_are_trained_on():
    completion = Completion(
        index=0,
        segments=(
            Segment(source="model", ids=[7, 8]),
            Segment(source="environment", ids=[20, 21, 22]),
            Segment(source="model", ids=[9]),
        ),
        logprobs=[-0.1, -0.2, -0.3],
        spans=(Span(policy_version=0, policy_digest="0" * 64, start=0, stop=3),),
        finish="stop",
    )
    (batch,) = pack([Sample.of(np.array([1, 2], np.uint32), completion, 0.5, audited=True)], 100)
    assert batch.inputs_BT.tolist() == [[1, 2, 7, 8, 20, 21, 22]]
    assert batch.targets_N.tolist() == [7, 8, 9]
    assert batch.rows_N.tolist() == [1, 2, 6]
    assert batch.advantages_N.tolist() == [0.5] * 3
    assert batch.audited_N.tolist() == [True] * 3
    np.testing.assert_allclose(batch.engine_logprobs_N, [-0.1, -0.2, -0.3])


def test_a_sample_longer_than_the_budget_stands_alone():
    batches = pack([sample(2, 2), sample(20, 20), sample(2, 2)], 16)
    assert [batch.inputs_BT.shape for batch in batches] == [(1, 3), (1, 39), (1, 3)]


def test_nothing_to_pack():
    assert pack([], 16) == []


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=40), st.integers(17, 200)
)
def test_budget_order_and_every_token_once(lengths, budget):
    samples = [sample(p, c, advantage=float(at), first=100 * at) for at, (p, c) in enumerate(lengths)]
    batches = pack(samples, budget)
    assert all(batch.inputs_BT.numel() <= budget for batch in batches)
    targets = [target for batch in batches for target in batch.targets_N.tolist()]
    assert targets == [int(target) for one in samples for target in one.completion]
    advantages = [value for batch in batches for value in batch.advantages_N.tolist()]
    assert advantages == [one.advantage for one in samples for _ in one.completion]


@pytest.mark.parametrize(
    ("prompt", "trained", "claims", "message"),
    [(0, 2, 2, "prompt"), (1, 3, 3, "mask of 3"), (1, 2, 1, "1 log-probs")],
)
def test_a_sample_whose_parts_do_not_fit_is_refused(prompt, trained, claims, message):
    with pytest.raises(ValueError, match=message):
        Sample(np.zeros(prompt, int), np.zeros(2, int), np.ones(trained, bool), np.zeros(claims), 0.0)
