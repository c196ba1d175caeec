"""Every cheap check: what it lets pass, and each way to fail it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import Segment
from tests.trainer import events
from tests.validator.submissions import (
    GRANT,
    LIMIT,
    OTHER_DIGEST,
    STOP,
    VERSION,
    VOCABULARY,
    WELL_FORMED,
    announced,
    completion,
    proof,
    span,
    submission,
)
from validator.case import Case
from validator.checks import RULES
from validator.submission import Submission

SOUND: dict[str, Callable[[], Submission]] = {
    "as it should be": submission,
    "at the deadline": lambda: submission(sent=GRANT.seconds),
    "the last place": lambda: submission(completion(index=1), proven=proof((1, WELL_FORMED))),
    "as many slices as completions": lambda: submission(slices=GRANT.group_size),
    "spans of one policy": lambda: submission(completion(spans=(span(0, 1), span(1, 2)))),
    "at the length limit": lambda: submission(completion(*[5] * LIMIT)),
    "a stop token at the length limit": lambda: submission(completion(*[5] * (LIMIT - 1), STOP)),
    "the largest id": lambda: submission(completion(VOCABULARY - 1, STOP)),
    "log-probs at their bounds": lambda: submission(completion(logprobs=[0.0005, -9999.0])),
    "a proof stored later by another clock": lambda: submission(
        proof=events.record(proof(), 8, timestamp=2000.0)
    ),
    "proofs of others beside its own": lambda: submission(proven=proof((1, b""), (0, WELL_FORMED))),
}

# rule, outcome, what is wrong, and the words that say so
FAULTS: list[tuple[str, str, Callable[[], Submission], str]] = [
    ("in time", "void", lambda: submission(sent=GRANT.seconds + 2), "2.0 s after the deadline"),
    ("published", "void", lambda: submission(policy=None), "too old to be remembered"),
    ("published", "void", lambda: submission(policy=announced(OTHER_DIGEST)), "with another digest"),
    ("in group", "rejected", lambda: submission(completion(index=2)), "index 2 in a group of 2"),
    ("in group", "rejected", lambda: submission(slices=3), "3 slices of a group of 2"),
    ("as granted", "rejected", lambda: submission(completion(spans=(span(0, 2, VERSION - 1),))), "version 2"),
    ("as granted", "rejected", lambda: submission(completion(spans=(span(0, 1), span(1, 2, VERSION + 1)))),
     "version 4"),
    ("as granted", "rejected", lambda: submission(completion(spans=(span(0, 2, digest=OTHER_DIGEST),))),
     "another version 3"),
    ("single turn", "rejected", lambda: submission(completion(segments=segments("environment", "model"))),
     "the environment's"),
    ("single turn", "rejected", lambda: submission(completion(segments=segments("model", "environment"))),
     "the environment's"),
    ("in length", "rejected", lambda: submission(completion(*[5] * LIMIT, STOP)), "9 tokens, 1 to 8"),
    ("in range", "rejected", lambda: submission(completion(logprobs=[-0.5, 3e38])), "3e+38"),
    ("in range", "rejected", lambda: submission(completion(logprobs=[-3e38, -0.5])), "-3e+38"),
    ("in range", "rejected", lambda: submission(completion(logprobs=[-0.5, -10001.0])), "-10001"),
    ("in range", "rejected", lambda: submission(completion(logprobs=[0.01, -0.5])), "0.01"),
    ("in vocabulary", "rejected", lambda: submission(completion(VOCABULARY, STOP)), "id 76"),
    ("in vocabulary", "rejected", lambda: submission(completion(2**32 - 1, STOP)), "id 4294967295"),
    ("one end", "rejected", lambda: submission(completion(STOP, 5, STOP)), "stop tokens at [0, 2]"),
    ("one end", "rejected", lambda: submission(completion(5, 5, finish="stop")), "stop tokens at []"),
    ("one end", "rejected", lambda: submission(completion(STOP, 5, finish="stop")), "stop tokens at [0]"),
    ("one end", "rejected", lambda: submission(completion(5, STOP, finish="length")), "a stop token at 1"),
    ("one end", "rejected", lambda: submission(completion(5, 5)), "ends before the limit"),
    ("proven", "rejected", lambda: submission(proof=None), "no proof was sent"),
    ("proven", "rejected", lambda: submission(named=OTHER_DIGEST), "not the one that is named"),
    ("proven", "rejected", lambda: submission(proven=proof((1, WELL_FORMED))), "0 proofs of this"),
    ("proven", "rejected", lambda: submission(proven=proof((0, WELL_FORMED), (0, WELL_FORMED))), "2 proofs of"),
    ("proven", "rejected", lambda: submission(proven=proof((0, b""))), "0 bytes"),
    ("proven", "rejected", lambda: submission(proven=proof((0, WELL_FORMED * 2))), "516 bytes"),
    ("proven", "rejected", lambda: submission(proven=proof((0, bytes(258)))), "a modulus is outside"),
    ("proven", "rejected", lambda: submission(proven=proof((0, WELL_FORMED[:2] + b"\xff" * 256))),
     "a coefficient is 65535"),
]  # fmt: skip


def segments(*authors: str) -> tuple[Segment, ...]:
    """Two model tokens, and one of the environment before or after them."""
    tokens = {"model": [5, STOP], "environment": [6]}
    return tuple(Segment(source=author, ids=tokens[author]) for author in authors)


@pytest.mark.parametrize("sound", SOUND.values(), ids=SOUND.keys())
def test_sound_claims_pass_every_check(sound: Callable[[], Submission]) -> None:
    case = Case(sound())
    case.check()
    assert [(finding.outcome, finding.checks) for finding in case.findings] == [("unaudited", [])]


@pytest.mark.parametrize(
    ("rule", "outcome", "spoilt", "words"), FAULTS, ids=[f"{f[0]}: {f[3]}" for f in FAULTS]
)
def test_a_fault_is_found_by_its_check(
    rule: str, outcome: str, spoilt: Callable[[], Submission], words: str
) -> None:
    case = Case(spoilt())
    case.check()
    (finding,) = case.findings
    (check,) = finding.checks
    assert (check.name, finding.outcome, check.passed) == (rule, outcome, False)
    assert words in check.detail


def test_every_check_has_a_fault_here() -> None:
    assert {rule.name for rule in RULES} == {fault[0] for fault in FAULTS}


@given(
    ids=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=12),
    logprob=st.floats(width=32, allow_nan=False, allow_infinity=False),
    index=st.integers(0, 2**53 - 1),
    version=st.integers(0, 2**53 - 1),
    finish=st.sampled_from(["stop", "length"]),
    commitment=st.binary(max_size=600),
)
def test_no_claim_breaks_a_check(
    ids: list[int], logprob: float, index: int, version: int, finish: str, commitment: bytes
) -> None:
    claim = completion(
        *ids,
        logprobs=np.full(len(ids), logprob, np.float32),
        index=index,
        spans=(span(0, len(ids), version),),
        finish=finish,
    )
    sent = submission(claim, proven=proof((index, commitment)))
    for rule in RULES:
        assert len(rule.fault(sent, claim)) < 200
