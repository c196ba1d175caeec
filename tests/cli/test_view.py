from __future__ import annotations

import time

import pytest

from cli.view import RunView
from schemas import File, LineageStarted, Manifest, RunEnded
from tests.cli.runs import NOW, apply, batch, heartbeat, verdict, view
from tests.schemas.examples import EXAMPLES, VALIDATOR, WORKER


def test_every_kind_of_event_is_folded() -> None:
    made = view(*EXAMPLES.values())
    assert [step.step for step in made.steps] == [4]
    assert made.evals[4].metrics == {"exact": 0.8125}
    assert [published.version for published in made.policies] == [4]
    assert made.nodes[WORKER][1] == NOW
    assert made.slashed == {WORKER: "tokens of another model, 3 times"}
    assert made.control == EXAMPLES["Control"]
    assert isinstance(made.ended, RunEnded)
    assert made.done() == 5


def test_an_empty_run() -> None:
    made = RunView()
    assert (made.done(), made.accepted(), made.tokens_per_second(), made.policy_bytes_sent()) == (0, 0, 0, 0)


def test_verdicts_are_counted_by_worker_and_outcome() -> None:
    made = view(verdict("accepted", "unaudited", "rejected", "void"), verdict("rejected", worker=VALIDATOR))
    assert (made.accepted(), made.accepted(WORKER), made.accepted(VALIDATOR)) == (2, 2, 0)
    assert (made.rejected(), made.rejected(WORKER), made.rejected(VALIDATOR)) == (2, 1, 1)
    assert made.completions("void") == 1
    assert made.reasons == {(WORKER, "end"): 1, (VALIDATOR, "end"): 1}


def test_batches_tell_the_lag_of_each_group_and_whose_work_was_used() -> None:
    made = view(batch(3, (WORKER, 3), (VALIDATOR, 1)), batch(4, (WORKER, 3)))
    assert made.lags == {0: 1, 1: 1, 2: 1}
    assert made.trained == {WORKER: 4, VALIDATOR: 2}


def test_tokens_are_those_of_accepted_completions_by_the_servers_clock() -> None:
    made = RunView()
    apply(made, verdict("accepted", "rejected", tokens=30), at=time.time() - 100)
    apply(made, verdict("accepted", "unaudited", tokens=30), at=time.time() - 1)
    assert made.tokens_total == 90
    assert made.tokens_per_second(window=15.0) == pytest.approx(4.0)
    assert made.judged is not None
    assert made.judged[1] - made.judged[0] == pytest.approx(99, abs=1)


def test_a_new_lineage_goes_back() -> None:
    step = EXAMPLES["StepCompleted"]
    made = view(
        *(step.replace(step=number) for number in range(5)),
        LineageStarted(lineage=1, step=2, version=9, digest="0" * 64, reason="other digests"),
        step.replace(lineage=1, step=2),
    )
    assert made.done() == 3


def test_a_chunk_that_is_held_is_not_sent_again() -> None:
    def manifest(*chunks: bytes) -> Manifest:
        file = File(name="model.safetensors", size=10 * len(chunks), hashes=b"".join(chunks))
        return Manifest(digest="0" * 64, chunk_bytes=1024, files=(file,))

    sizes = manifest(b"a" * 32).sizes()
    assert set(sizes.values()) == {10}
    published = EXAMPLES["PolicyPublished"]
    made = view(
        published.replace(version=0, manifest=manifest(b"a" * 32)),
        published.replace(version=1, manifest=manifest(b"a" * 32)),
        published.replace(version=2, manifest=manifest(b"b" * 32)),
    )
    assert made.policy_bytes_sent() == 20


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("laptop", "laptop"),
        ("", WORKER[:9]),
        ("\x1b[2J", "\N{REPLACEMENT CHARACTER}[2J"),
        ("n" * 4096, "n" * 32),
        ("a\u202eb\n", "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_names_are_made_harmless(told: str, shown: str) -> None:
    assert view(heartbeat(told)).name(WORKER) == shown


def test_a_node_that_was_never_heard_has_its_key() -> None:
    assert RunView().name(WORKER) == WORKER[:9]
