"""What every event has: an id inside the signed bytes, a version, and a subject spelled from its own fields.

An id is derived from the event's cause where it has one, so that a cause delivered twice gives the same
bytes; commands without a cause get a random id (pause, resume, pause are three events). No event carries
a wall clock: the time of an event is the server's stored timestamp.
"""

from __future__ import annotations

import re
import secrets
from typing import Annotated, Any, ClassVar, Self

from blake3 import blake3
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

Token = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""One token of a subject: a run, worker, task, ranker. No dots, wildcards or white space."""
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""A BLAKE3 digest in hex."""
Hash = Annotated[bytes, Field(min_length=32, max_length=32)]
"""A BLAKE3 digest in raw bytes."""
Text = Annotated[str, StringConstraints(max_length=4096)]
Count = Annotated[int, Field(ge=0, lt=2**53)]

_FIELD = re.compile(r"\{(\w+)\}")


class Struct(BaseModel):
    """An immutable value inside an event; unknown fields are refused (`bus.wire` says when they are dropped)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.model_dump() == other.model_dump()  # type: ignore[attr-defined]

    __hash__ = None  # type: ignore[assignment]


class Event(Struct):
    """Base of every message on the bus. Subclasses set the class variables below.

    stream: the JetStream stream, upper case.
    subject: template below the run's prefix; its {fields} are fields of the event.
    publishers: the roles whose keys may sign it. For "worker", "relay", "node" and the other roles anyone
        may take, the field named in `owner` must equal the signer's public key.
    key: fields from which the id is derived; empty for commands, whose id is random.
    schema_version: (major, minor). A new optional field raises minor, anything else major.
    """

    stream: ClassVar[str]
    subject: ClassVar[str]
    publishers: ClassVar[frozenset[str]]
    owner: ClassVar[str | None] = None
    key: ClassVar[tuple[str, ...]] = ()
    schema_version: ClassVar[tuple[int, int]] = (1, 0)

    id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]

    @model_validator(mode="before")
    @classmethod
    def _give_id(cls, values: Any) -> Any:
        if isinstance(values, dict) and "id" not in values:
            parts = [str(values.get(name, _default(cls, name))) for name in cls.key]
            text = "\x1f".join([cls.__name__, *parts])
            return {**values, "id": blake3(text.encode()).hexdigest()[:32] if cls.key else secrets.token_hex(16)}
        return values

    def subject_below(self) -> str:
        """This event's subject below the run's prefix, e.g. `rollouts.UABC.12.0.1`."""
        return _FIELD.sub(lambda match: str(getattr(self, match[1])), self.subject)

    def destination(self) -> str:
        """The stream that stores this event."""
        return self.stream

    @classmethod
    def pattern(cls, **tokens: object) -> str:
        """The subject filter below the run's prefix, `*` for every token that is not given.

        Raises ValueError for a token that the subject does not have.
        """
        unknown = set(tokens) - set(_FIELD.findall(cls.subject))
        if unknown:
            raise ValueError(f"{cls.__name__} has no subject token {', '.join(sorted(unknown))}: {cls.subject}")
        return _FIELD.sub(lambda match: str(tokens.get(match[1], "*")), cls.subject)

    @classmethod
    def parse_subject(cls, subject_below: str) -> dict[str, str]:
        """The fields spelled in a subject; raises ValueError when it is not one of this event's."""
        parts, template = subject_below.split("."), cls.subject.split(".")
        if len(parts) != len(template):
            raise ValueError(f"{subject_below} is no subject of {cls.__name__} ({cls.subject})")
        found: dict[str, str] = {}
        for part, place in zip(parts, template, strict=True):
            if match := _FIELD.fullmatch(place):
                found[match[1]] = part
            elif part != place:
                raise ValueError(f"{subject_below} is no subject of {cls.__name__} ({cls.subject})")
        return found

    def replace(self, **changes: Any) -> Self:
        """A validated copy with other values."""
        return type(self).model_validate({**self.model_dump(), **changes})


def _default(cls: type[Event], name: str) -> Any:
    return cls.model_fields[name].get_default(call_default_factory=True)
