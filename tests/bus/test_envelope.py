"""What makes a message believable: signer, signature, place."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace

import pytest

from bus import Identity, NotTrusted, Trust, WireError, digest
from bus.envelope import ENCODING, KEY, MESSAGE_ID, SCHEMA, SIGNATURE, Message, Sealed, _signed, seal, unseal
from bus.wire import encode
from schemas import Control, Event, Rollouts, Score, WorkRequested
from tests.schemas.examples import EXAMPLES

ME = Identity.create()
TRUST = Trust(operator=(ME.public_key,))


def stored(sealed: Sealed) -> Message:
    return Message("demo_X", 5, sealed.subject, dict(sealed.headers), sealed.payload, 1_500_000_000)


def message(event: Event, identity: Identity = ME, run: str = "demo") -> Message:
    return stored(seal(event, run, identity))


def test_a_sealed_event_comes_back() -> None:
    event = WorkRequested(worker=ME.public_key, groups=3)
    record = unseal(message(event), "demo", TRUST)
    assert record.event == event
    assert (record.sequence, record.timestamp, record.signer) == (5, 1.5, ME.public_key)
    assert record.subject == f"demo.requests.{ME.public_key}"
    assert record.digest == digest(event)


def test_self_becomes_the_signers_key_and_the_id_follows() -> None:
    mine = EXAMPLES["Rollouts"].replace(worker=ME.public_key)
    assert isinstance(mine, Rollouts)
    score = unseal(message(Score.of(mine, [0.5, 0.25])), "demo", TRUST).event
    assert isinstance(score, Score)
    assert score.ranker == ME.public_key
    other = Identity.create()
    assert seal(Score.of(mine, [0.5, 0.25]), "demo", other).subject.startswith(
        f"demo.scores.{other.public_key}."
    )
    assert score.id != Score.of(mine, [0.5, 0.25]).id


def test_nobody_signs_as_another() -> None:
    with pytest.raises(NotTrusted, match=f"this node signs as {ME.public_key}"):
        seal(WorkRequested(worker=Identity.create().public_key, groups=1), "demo", ME)


def test_the_message_id_depends_on_the_signature() -> None:
    control = Control(action="pause")
    ids = {seal(control, "demo", identity).headers[MESSAGE_ID] for identity in (ME, ME, Identity.create())}
    assert len(ids) == 2


def test_what_is_moved_or_changed_is_refused() -> None:
    good = message(WorkRequested(worker=ME.public_key, groups=3))
    other = Identity.create().public_key
    changes = {
        "the signature does not fit": [
            replace(good, subject=f"demo.requests.{other}"),
            replace(good, payload=encode(WorkRequested(worker=ME.public_key, groups=4))),
            replace(good, headers={**good.headers, KEY: other}),
            replace(good, headers={**good.headers, SIGNATURE: "AAAA"}),
        ],
        "base64": [replace(good, headers={**good.headers, SIGNATURE: "!"})],
        "encoding": [replace(good, headers={**good.headers, ENCODING: "pickle"})],
        "schema": [replace(good, headers={})],
        "unknown event": [replace(good, headers={**good.headers, SCHEMA: "Wish/1.0"})],
        "nobody may not publish": [replace(good, headers={SCHEMA: "Control/1.0", ENCODING: "zstd+msgpack"})],
    }
    for reason, messages in changes.items():
        for bad in messages:
            with pytest.raises(WireError, match=reason):
                unseal(bad, "demo", TRUST)


def test_another_run_is_another_world() -> None:
    with pytest.raises(WireError, match="signature"):
        unseal(message(Control(action="stop"), run="other"), "demo", TRUST)


def test_a_role_that_the_run_does_not_give_is_refused() -> None:
    stranger = Identity.create()
    with pytest.raises(WireError, match="may not publish Control"):
        unseal(message(Control(action="stop"), stranger), "demo", TRUST)


def test_an_event_on_a_subject_that_it_does_not_spell_is_refused() -> None:
    event = WorkRequested(worker=ME.public_key, groups=3)
    honest = seal(event, "demo", ME)
    for subject in ("demo.requests.x", "demo.control"):
        forged = _sign_elsewhere(event, subject)
        with pytest.raises(WireError, match=f"belongs on {honest.subject}"):
            unseal(forged, "demo", TRUST)


def test_an_event_of_another_owner_is_refused_even_when_well_signed() -> None:
    other = Identity.create().public_key
    event = WorkRequested(worker=other, groups=3)
    with pytest.raises(WireError, match="is not its signer"):
        unseal(_sign_elsewhere(event, f"demo.requests.{other}"), "demo", TRUST)


def _sign_elsewhere(event: Event, subject: str) -> Message:
    """What a node with its own program could send: any event, truly signed, on any subject."""
    payload, schema = encode(event), f"{type(event).__name__}/1.0"
    signature = b64encode(ME.sign(_signed("demo", subject, schema, payload))).decode()
    headers = {SCHEMA: schema, ENCODING: "zstd+msgpack", KEY: ME.public_key, SIGNATURE: signature}
    return Message("demo_X", 1, subject, headers, payload, 0)
