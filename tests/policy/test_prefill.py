import numpy as np
import pytest
import torch

from policy import prefill
from tests.policy import tiny


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
def test_batched_rows_are_those_of_each_pair_alone(architecture: str) -> None:
    model, random = tiny.model(architecture), np.random.default_rng(0)
    prompts = [tiny.ids(random, length) for length in (1, 9, 4, 2, 17)]
    completions = [tiny.ids(random, length) for length in (5, 1, 12, 2, 3)]
    for found, prompt, completion in zip(
        prefill(model, prompts, completions), prompts, completions, strict=True
    ):
        whole = torch.from_numpy(np.concatenate([prompt, completion]).astype(np.int64)).unsqueeze(0)
        with torch.no_grad():
            rows = slice(len(prompt) - 1, -1)
            hidden = model.base_model(whole).last_hidden_state[0, rows]
        torch.testing.assert_close(found, hidden, atol=1e-5, rtol=1e-5)


def test_a_token_budget_changes_nothing_but_the_batches() -> None:
    model, random = tiny.model(), np.random.default_rng(1)
    prompts, completions = ([tiny.ids(random, random.integers(1, 9)) for _ in range(12)] for _ in range(2))
    whole = prefill(model, prompts, completions)
    widths: list[torch.Size] = []
    model.get_input_embeddings().register_forward_hook(
        lambda module, inputs, output: widths.append(inputs[0].shape)
    )
    parts = prefill(model, prompts, completions, token_budget=20)
    assert len(widths) > 3
    assert all(rows == 1 or rows * width <= 20 for rows, width in widths)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_rows_are_of_completions_only_and_in_the_dtype_of_the_weights() -> None:
    model, random = tiny.model().to(torch.bfloat16), np.random.default_rng(3)
    found = prefill(model, [tiny.ids(random, 20)], [tiny.ids(random, 3)])[0]
    assert (found.dtype, found.shape) == (torch.bfloat16, (3, 64))


def test_nothing_to_do() -> None:
    assert prefill(tiny.model(), [], []) == []
