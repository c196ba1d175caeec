"""Messages that were sent long ago are still read, and today's are the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas import EVENTS, Event
from tests.schemas import golden
from tests.schemas.examples import EXAMPLES

RECORDED = sorted(golden.FOLDER.glob("*/*.msgpack"))


def test_every_event_has_an_example() -> None:
    assert set(EXAMPLES) == set(EVENTS)


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_recorded_messages_decode(file: Path) -> None:
    event = golden.decode(file.stem, file.read_bytes())
    assert event == EXAMPLES[file.stem]


@pytest.mark.parametrize("event", EXAMPLES.values(), ids=EXAMPLES)
def test_encoding_gives_the_recorded_bytes(event: Event) -> None:
    assert golden.encode(event) == golden.path(event).read_bytes()


@pytest.mark.parametrize("event", EXAMPLES.values(), ids=EXAMPLES)
def test_events_are_readable_as_json(event: Event) -> None:
    assert type(event).model_validate_json(event.model_dump_json()) == event
