from __future__ import annotations

import pytest

from environments.reverse_text import ReverseText


def test_words_are_distinct_of_the_asked_lengths_and_seeded():
    words = ReverseText(letters="abcd", min_length=3, max_length=5, count=200, seed=3).tasks()
    assert len(set(words)) == len(words) == 200
    assert {len(word) for word in words} == {3, 4, 5}
    assert set("".join(words)) == set("abcd")
    assert words == ReverseText(letters="abcd", min_length=3, max_length=5, count=200, seed=3).tasks()
    assert words != ReverseText(letters="abcd", min_length=3, max_length=5, count=200, seed=4).tasks()


GOLDEN = ["jfdgej", "lekcb", "jhdk", "diki", "gedhcg"]


def test_the_word_list_of_a_seed_never_changes():
    assert ReverseText(count=5).tasks() == GOLDEN


def test_reward_is_dense_and_exact_match_is_a_metric():
    environment = ReverseText()
    assert environment.prompt("abcd") == "abcd>"
    assert environment.reward("abcd", "dcba") == 1.0
    assert 0 < environment.reward("abcd", "dxba") < 1
    assert environment.reward("abcd", "") == 0.0
    assert environment.metrics("abcd", "dcba") == {"exact": 1.0}
    assert environment.metrics("abcd", "dcb") == {"exact": 0.0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"min_length": 0}, "lengths from 0"),
        ({"letters": "aab"}, "each letter once"),
        ({"letters": "ab>"}, "without '>'"),
        ({"letters": "ab", "max_length": 3, "count": 100}, "only 8 words exist"),
    ],
)
def test_arguments_that_make_no_words(arguments, message):
    with pytest.raises(ValueError, match=message):
        ReverseText(**arguments)
