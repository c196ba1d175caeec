"""docs/events.md, written from the events themselves: `python -m schemas.document > docs/events.md`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import TypeGuard

import schemas
from schemas import EVENTS, Event, Struct

INTRODUCTION = """\
# The events

Written from schemas/ by `python -m schemas.document`; do not edit.

Every subject begins with the name of the run: `<run>.rollouts.UABC.12.0.1`. Below, `{field}` is a field of the
event. On the wire an event is `zstd(msgpack(fields))`; its headers name the schema (`Rollouts/1.0`), the encoding,
the signer's key and the signature over run, subject, schema header and payload.

- **Who may publish.** An event is believed only from a key that has one of the roles in the column *publishers*;
  RunCreated says who has them. Where an *owner* is named the roles are open to anyone, but the field of that name
  must be the signer's own public key (NKEY, `U...`): nobody speaks for another.
- **Ids.** `id` is the first 32 hex digits of the BLAKE3 hash of the event's name and the fields in the column *id
  follows from*, separated by U+001F (bytes in hex, several values by commas). The same cause gives the same id and
  the same bytes, and no one can take another event's id. Without such fields the id is random.
- **Time.** No event carries a clock. Its time is the timestamp that the server stored with it.
- **Strictness.** What arrives is not converted: a wrong type, a broken bound, an unknown field, a number that is not
  finite, or an id that does not follow refuses the message. Only fields of a newer minor version are dropped instead.
- **Arrays.** `Ids` (uint32), `LogProbs` and `Floats` (float32), `Seeds` and `Sequences` (uint64) are the little-endian
  bytes of their elements. `Many[X]` is a list of X.
- **Words.** `Token`: 1 to 64 of `A-Z a-z 0-9 _ -`. `Text`: up to 4096 characters. `Count`: an integer from 0, below
  2^53. `Digest`: 64 hex digits, `Hash`: 32 raw bytes, both BLAKE3. `PublicKey`: an NKEY public user key.
"""


def document() -> str:
    """The page as Markdown."""
    parts = [part for name in schemas.__all__ if _is_part(part := getattr(schemas, name))]
    return "\n".join(
        [INTRODUCTION, *_table(), *_sections("Events", EVENTS.values()), *_sections("Parts", parts)]
    )


def _table() -> Iterator[str]:
    yield "## Streams\n"
    yield "| stream | subject | event | publishers | owner | id follows from |"
    yield "|---|---|---|---|---|---|"
    for event in EVENTS.values():
        cells = [
            "each of the trainer's" if event is schemas.WriterStarted else event.stream,
            f"`{event.subject}`",
            f"[{event.__name__}](#{event.__name__.lower()})",
            ", ".join(sorted(event.publishers)),
            event.owner or "",
            ", ".join(event.key) or "(random)",
        ]
        yield f"| {' | '.join(cells)} |"


def _sections(title: str, models: Iterable[type[Struct]]) -> Iterator[str]:
    yield f"\n## {title}"
    for model in models:
        yield f"\n### {model.__name__}"
        if issubclass(model, Event):
            yield f"Version {model.schema_version[0]}.{model.schema_version[1]}.\n"
        yield inspect.getdoc(model) or ""
        yield "\n```python"
        yield from (_field(model, name) for name in model.model_fields if name != "id")
        yield "```"


def _field(model: type[Struct], name: str) -> str:
    """`name: type = default`, the type as it is written in the source."""
    written = next(notes[name] for base in model.__mro__ if name in (notes := inspect.get_annotations(base)))
    field = model.model_fields[name]
    default = "" if field.is_required() else f" = {field.get_default(call_default_factory=True)!r}"
    return f"{name}: {written}{default}"


def _is_part(value: object) -> TypeGuard[type[Struct]]:
    return (
        isinstance(value, type)
        and issubclass(value, Struct)
        and not issubclass(value, Event)
        and value is not Struct
    )


if __name__ == "__main__":
    print(document(), end="")
