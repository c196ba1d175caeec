from __future__ import annotations

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from trainer.sft import IGNORED, SupervisedTraining, fine_tune, pad


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def model():
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=8, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1,
            num_key_value_heads=1, head_dim=32, max_position_embeddings=16, pad_token_id=0, eos_token_id=1,
            bos_token_id=None,
        )
    )  # fmt: skip


PAIRS = [([2, 3, 7], [3, 2, 1]), ([4, 7], [4, 1]), ([5, 6, 2, 7], [2, 6, 5, 1])]


def test_pad_targets_only_the_completion():
    inputs, targets = pad([([2, 3, 7], [3, 1]), ([4, 7], [4])])
    assert inputs.tolist() == [[2, 3, 7, 3], [4, 7, 0, 0]]
    assert targets.tolist() == [[IGNORED, IGNORED, 3, 1], [IGNORED, 4, IGNORED, IGNORED]]


@torch.no_grad()
def test_a_pair_is_predicted_alike_alone_and_padded():
    network = model()
    (inputs, _), (alone, _) = pad(PAIRS), pad(PAIRS[1:2])
    together = network(input_ids=inputs, use_cache=False).logits[1, : alone.shape[1]]
    torch.testing.assert_close(together, network(input_ids=alone, use_cache=False).logits[0])


def test_it_learns_the_demonstrations_and_stops_when_it_can_reproduce_them():
    network, seen = model(), []
    settings = SupervisedTraining(steps=400, until=0.05, batch_size=3, learning_rate=1e-2)
    fine_tune(network, PAIRS, settings, seed=0, progress=lambda *step: seen.append(step))
    steps, most, loss = seen[-1]
    assert loss < 0.1
    assert steps < most == 400
    assert [step for step, _, _ in seen] == list(range(1, steps + 1))
    inputs, targets = pad(PAIRS)
    answers = network(input_ids=inputs, use_cache=False).logits.argmax(-1)
    assert torch.equal(answers[targets != IGNORED], targets[targets != IGNORED])


def test_the_seed_decides_every_bit():
    def trained(seed):
        network = model()
        fine_tune(network, PAIRS, SupervisedTraining(steps=5, batch_size=2), seed)
        return torch.cat([weight.detach().flatten() for weight in network.parameters()])

    assert torch.equal(trained(1), trained(1))
    assert not torch.equal(trained(1), trained(2))
