from __future__ import annotations

import re
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from schemas import (
    EVENTS,
    Control,
    Event,
    Proof,
    Rollouts,
    Score,
    Slashed,
    TaskClosed,
    TaskGranted,
    WriterStarted,
)
from schemas.event import Token
from tests.schemas.examples import EXAMPLES, VALIDATOR, WORKER

TOKENS = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
every_event = pytest.mark.parametrize("event", EXAMPLES.values(), ids=EXAMPLES)


def sent(event: Event) -> dict[str, Any]:
    """The event's fields as msgpack delivers them."""
    return msgpack.unpackb(msgpack.packb(event.model_dump()))


@every_event
def test_events_are_declared_whole(event: Event) -> None:
    fields = type(event).model_fields
    assert event.publishers
    assert set(re.findall(r"\{(\w+)\}", event.subject)) <= set(fields)
    assert set(event.key) <= set(fields)
    assert event.owner is None or f"{{{event.owner}}}" in event.subject.split(".")
    assert event.destination().isupper()


# Ids


@every_event
def test_an_id_follows_from_the_cause_or_is_random(event: Event) -> None:
    again = type(event).model_validate(event.model_dump(exclude={"id"}))
    assert re.fullmatch("[0-9a-f]{32}", again.id)
    assert (again.id == event.id) == bool(event.key)


@every_event
def test_nobody_takes_another_events_id(event: Event) -> None:
    stolen = {**sent(event), "id": "f" * 32}
    if event.key:
        with pytest.raises(ValidationError, match="id does not follow"):
            type(event).from_wire(stolen)
    else:
        assert type(event).from_wire(stolen).id == "f" * 32


def test_every_field_of_the_cause_counts() -> None:
    score = EXAMPLES["Score"]
    assert isinstance(score, Score)
    changes: list[dict[str, Any]] = [{"ranker": WORKER}, {"task": "43"}, {"attempt": 1}, {"slice": 1}]
    assert len({score.id, *(score.replace(**change).id for change in changes)}) == 5
    assert score.replace(scores=[0.0, 0.0]).id == score.id


def test_the_spelling_of_an_id() -> None:
    """Frozen: other programs derive the same ids, and recorded runs hold them."""
    assert (
        TaskClosed(worker="w", task="42", attempt=0, reason="void").id == "fbdd7f98ad8aaffe5d587f3e27d157c4"
    )
    assert (
        Slashed(node="n", evidence=(3, 5)).id
        == Slashed(node="n", evidence=[3, 5]).id
        == "d5023f9f1bf23d9c50b3edb5582869d7"
    )
    assert (
        EXAMPLES["TaskGranted"].replace(nonce=bytes(32), worker="w").id == "93c30b601ddad498b25e9ce5e276f8e3"
    )


def test_commands_are_events_of_their_own() -> None:
    assert Control(action="pause") != Control(action="pause")


# Subjects


@every_event
def test_subjects_parse_back(event: Event) -> None:
    found = type(event).parse_subject(event.subject_below())
    assert found == {name: str(getattr(event, name)) for name in found}
    assert event.subject_below() == type(event).pattern(**found)


@given(worker=TOKENS, task=TOKENS, attempt=st.integers(0, 2**53 - 1), slice=st.integers(0, 2**53 - 1))
def test_subjects_of_any_fields_parse_back(worker: str, task: str, attempt: int, slice: int) -> None:
    score = Score(ranker="r", worker=worker, task=task, attempt=attempt, slice=slice, scores=[])
    assert re.fullmatch(r"scores(\.[A-Za-z0-9_-]+){5}", score.subject_below())
    assert Score.parse_subject(score.subject_below()) == {
        "ranker": "r",
        "worker": worker,
        "task": task,
        "attempt": str(attempt),
        "slice": str(slice),
    }


@pytest.mark.parametrize("token", ["", "a.b", "*", ">", "a b", "a\n", "\n", "ä", "a" * 65, "a\x00"])
def test_a_token_is_one_token(token: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Token).validate_python(token)


@pytest.mark.parametrize(
    "subject", ["", "rollouts", "rollouts.w.t.0", "rollouts.w.t.0.0.0", "proofs.w.t.0.0"]
)
def test_foreign_subjects_are_refused(subject: str) -> None:
    with pytest.raises(ValueError, match="is no subject of Rollouts"):
        Rollouts.parse_subject(subject)


def test_patterns() -> None:
    assert Rollouts.pattern() == "rollouts.*.*.*.*"
    assert Rollouts.pattern(worker=WORKER, attempt=0) == f"rollouts.{WORKER}.*.0.*"
    with pytest.raises(ValueError, match="Rollouts has no subject token policy, ranker"):
        Rollouts.pattern(ranker="r", policy=1)


def test_a_writer_announces_itself_in_the_stream_it_writes() -> None:
    started = WriterStarted(epoch=1, writes="batches")
    assert (started.destination(), started.subject_below()) == ("BATCHES", "batches.writer")


# What arrives


@every_event
def test_what_was_sent_arrives(event: Event) -> None:
    assert type(event).from_wire(sent(event)) == event


@every_event
def test_unknown_fields_are_refused(event: Event) -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        type(event).from_wire({**sent(event), "reward_claimed": 1.0})


@every_event
def test_fields_of_a_newer_minor_version_are_dropped(event: Event) -> None:
    assert type(event).from_wire({**sent(event), "colour": "red"}, newer=True) == event


def test_fields_of_a_newer_minor_version_are_dropped_inside_too() -> None:
    verdict = sent(EXAMPLES["Verdict"])
    verdict["judgements"][0]["checks"][0]["unit"] = "values"
    with pytest.raises(ValidationError, match="unit"):
        EVENTS["Verdict"].from_wire(verdict)
    assert EVENTS["Verdict"].from_wire(verdict, newer=True) == EXAMPLES["Verdict"]


@every_event
def test_no_id_no_event(event: Event) -> None:
    with pytest.raises(ValidationError, match="id\n"):
        type(event).from_wire({name: value for name, value in sent(event).items() if name != "id"})


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("TaskClosed", "attempt", "0"),
        ("TaskClosed", "attempt", False),
        ("TaskClosed", "attempt", 0.0),
        ("TaskClosed", "attempt", -1),
        ("TaskClosed", "attempt", 2**53),
        ("TaskClosed", "task", b"42"),
        ("TaskClosed", "reason", "bored"),
        ("TaskClosed", "detail", "x" * 4097),
        ("TaskGranted", "nonce", "n" * 32),
        ("TaskGranted", "nonce", bytes(31)),
        ("TaskGranted", "seconds", "600"),
        ("TaskGranted", "seconds", float("inf")),
        ("TaskGranted", "policy_digest", "A" * 64),
        ("TaskGranted", "prompt", [1, 2, 3]),
        ("TaskGranted", "sampling", None),
        ("StepCompleted", "metrics", {"loss": float("nan")}),
        ("StepCompleted", "metrics", {"loss": True}),
        ("StepCompleted", "metrics", [["loss", 1.0]]),
        ("Heartbeat", "waiting", 1),
        ("Heartbeat", "versions", {"0": 1}),
        ("Heartbeat", "alarms", "disk"),
        ("RunCreated", "trusted", {"trainer": ["me"]}),
    ],
)
def test_nothing_is_converted(name: str, field: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=field):
        EVENTS[name].from_wire({**sent(EXAMPLES[name]), field: value})


@given(
    st.sampled_from(sorted(EVENTS)),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary() | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=8,
    ),
    st.data(),
)
def test_anything_in_any_field_is_an_event_or_a_validation_error(
    name: str, value: Any, data: st.DataObject
) -> None:
    field = data.draw(st.sampled_from(sorted(EVENTS[name].model_fields)))
    values = {**sent(EXAMPLES[name]), field: value}
    try:
        event = EVENTS[name].from_wire(values)
    except ValueError:
        return
    assert sent(event).keys() == values.keys()
    assert EVENTS[name].from_wire(sent(event)) == event


# Python


def test_events_do_not_change() -> None:
    event = EXAMPLES["TaskClosed"]
    with pytest.raises(ValidationError, match="frozen"):
        event.attempt = 1


def test_a_replaced_event_is_validated_and_has_an_id_of_its_own() -> None:
    grant = EXAMPLES["TaskGranted"]
    assert isinstance(grant, TaskGranted)
    other = grant.replace(attempt=1)
    assert (other.attempt, other.worker) == (1, grant.worker)
    assert other.id != grant.id
    with pytest.raises(ValidationError):
        grant.replace(attempt=-1)
    pause = Control(action="pause")
    assert pause.replace(reason="again").id != pause.id


def test_score_of_rollouts() -> None:
    rollouts = EXAMPLES["Rollouts"]
    assert isinstance(rollouts, Rollouts)
    score = Score.of(rollouts, [0.5, 0.75]).replace(ranker=VALIDATOR)
    assert score == EXAMPLES["Score"]


def test_group_size_is_the_number_of_seeds() -> None:
    grant = EXAMPLES["TaskGranted"]
    assert isinstance(grant, TaskGranted)
    assert grant.group_size == 2


def test_proofs_are_one_for_each_completion() -> None:
    proof = EXAMPLES["Proof"]
    assert isinstance(proof, Proof)
    with pytest.raises(ValidationError, match="1 proofs for 2 completions"):
        proof.replace(proofs=proof.proofs[:1])
    assert proof.replace(indices=(0, 2)).digest() != proof.digest()
