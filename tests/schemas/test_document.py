from __future__ import annotations

from pathlib import Path

from schemas.document import document

PAGE = Path(__file__).parents[2] / "docs" / "events.md"


def test_the_page_of_the_events_is_up_to_date() -> None:
    assert PAGE.read_text() == document(), "run: python -m schemas.document > docs/events.md"
