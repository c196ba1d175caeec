from __future__ import annotations

import pytest
import torch

import policy
from environments import load, split
from schemas.config import EnvironmentSection
from trainer.sft import SupervisedTraining
from trainer.tiny import Tiny, demonstrations, make_tiny, tokenizer

WORDS = EnvironmentSection(name="reverse-text", arguments={"letters": "abcdef", "count": 60}, held_out=20)


def settings(**changes):
    brief = SupervisedTraining(steps=2, batch_size=4)
    return Tiny(environment=WORDS, layers=1, hidden=32, clean=brief, mistaken=brief, **changes)


def test_the_folder_loads_and_a_second_call_finds_it(tmp_path):
    steps = []
    folder = make_tiny(settings(), tmp_path, lambda done, total, loss: steps.append((done, total)))
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert policy.load(folder).config.vocab_size == len(policy.tokenizer(folder)) == 76
    steps.clear()
    assert make_tiny(settings(), tmp_path, lambda *step: steps.append(step)) == folder
    assert not steps
    assert list(tmp_path.iterdir()) == [folder]


def test_the_same_settings_give_the_same_weights_and_others_another_folder(tmp_path):
    state = torch.random.get_rng_state()
    first = make_tiny(settings(), tmp_path / "first")
    again = make_tiny(settings(), tmp_path / "again")
    other = make_tiny(settings(seed=1), tmp_path / "first")
    assert (first.name, policy.file_digest(first)) == (again.name, policy.file_digest(again))
    assert (first.name, policy.file_digest(first)) != (other.name, policy.file_digest(other))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_model_that_fails_to_be_made_leaves_nothing(tmp_path):
    def interrupted(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_tiny(settings(), tmp_path, interrupted)
    assert not list(tmp_path.iterdir())


def test_one_token_a_character():
    characters = tokenizer()
    ids = characters.encode("abc Z9>")
    assert len(ids) == 7
    assert characters.decode(ids) == "abc Z9>"
    assert characters.encode("é") == [characters.unk_token_id]


@pytest.mark.parametrize("wrong", [0.0, 1.0])
def test_demonstrations_are_training_words_with_at_most_one_wrong_letter(wrong):
    environment, characters = load(WORDS.name, WORDS.arguments), tokenizer()
    train, _ = split(environment, WORDS.held_out, seed=0)
    pairs = demonstrations(settings(), wrong)
    assert [characters.decode(prompt) for prompt, _ in pairs] == [
        environment.prompt(environment.tasks()[index]) for index in train
    ]
    for index, (_, completion) in zip(train, pairs, strict=True):
        right = characters.encode(environment.tasks()[index][::-1])
        assert completion[-1] == characters.eos_token_id
        assert sum(a != b for a, b in zip(right, completion[:-1], strict=True)) == wrong
