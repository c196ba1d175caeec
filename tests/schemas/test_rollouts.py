from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas import Completion, Rollouts, Segment, Span
from tests.schemas.examples import COMPLETIONS, EXAMPLES

DIGEST = "0" * 64


def span(start: int, stop: int) -> Span:
    return Span(policy_version=0, policy_digest=DIGEST, start=start, stop=stop)


def completion(model: int, *spans: Span, environment: int = 0, logprobs: int | None = None) -> Completion:
    """A completion of `model` tokens of its own and `environment` tokens that were put in."""
    parts = [Segment(source="model", ids=np.arange(model))]
    if environment:
        parts.append(Segment(source="environment", ids=np.arange(environment)))
    return Completion(
        index=0,
        segments=tuple(parts),
        logprobs=np.zeros(model if logprobs is None else logprobs),
        spans=spans,
        finish="length",
    )


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 5))
def test_spans_that_tile_the_model_tokens(lengths: list[int], environment: int) -> None:
    stops = np.cumsum(lengths).tolist()
    spans = [span(start, stop) for start, stop in zip([0, *stops], stops, strict=False)]
    made = completion(stops[-1], *spans, environment=environment)
    assert len(made.ids) == stops[-1] + environment
    assert made.spans == tuple(spans)


@pytest.mark.parametrize(
    "edges",
    [
        [(0, 3)],
        [(0, 5)],
        [(1, 4)],
        [(0, 2), (3, 4)],
        [(0, 3), (2, 4)],
        [(2, 4), (0, 2)],
        [(0, 2), (2, 2), (2, 4)],
        [(0, 6), (6, 4)],
    ],
    ids=str,
)
def test_spans_that_do_not_tile_are_refused(edges: list[tuple[int, int]]) -> None:
    with pytest.raises(ValidationError, match="policy spans"):
        completion(4, *(span(*edge) for edge in edges))


@pytest.mark.parametrize("logprobs", [0, 3, 5])
def test_one_log_prob_for_each_model_token(logprobs: int) -> None:
    with pytest.raises(ValidationError, match=f"4 model tokens but {logprobs} log-probs"):
        completion(4, span(0, 4), logprobs=logprobs)


def test_environment_tokens_have_no_log_probs() -> None:
    with pytest.raises(ValidationError, match="4 model tokens but 6 log-probs"):
        completion(4, span(0, 4), environment=2, logprobs=6)


def test_a_completion_without_tokens_of_the_model_is_refused() -> None:
    with pytest.raises(ValidationError):
        completion(0, span(0, 0))


def test_ids_are_all_tokens_after_the_prompt() -> None:
    assert COMPLETIONS[1].ids.tolist() == [11, 7, 40, 41, 42, 29, 30, 31]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slice": 2}, "slice 2 of 2"),
        ({"completions": ()}, "at least 1 item"),
        ({"completions": (COMPLETIONS[0], COMPLETIONS[0])}, "index is given twice"),
        ({"answer": bytes(31)}, "at least 32 bytes"),
    ],
)
def test_slices_that_contradict_themselves_are_refused(changes: dict[str, Any], message: str) -> None:
    rollouts = EXAMPLES["Rollouts"]
    assert isinstance(rollouts, Rollouts)
    with pytest.raises(ValidationError, match=message):
        rollouts.replace(**changes)
