"""What every event has: an id inside the signed bytes, a version, and a subject spelled from its own fields.

An id is derived from the event's cause where it has one, so that a cause delivered twice gives the same
bytes; commands without a cause get a random id (pause, resume, pause are three events). No event carries
a wall clock: the time of an event is the server's stored timestamp.

Python code may give whatever pydantic can convert (a list, a NumPy integer). What arrives on the wire is
taken as it is or refused: `Event.from_wire`.
"""

from __future__ import annotations

import re
import secrets
from typing import Annotated, Any, ClassVar, Self, TypeVar

from blake3 import blake3
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

PART = r"^[A-Za-z0-9_-]{1,64}$"
Token = Annotated[str, StringConstraints(pattern=PART)]
"""One token of a subject: a run, worker, task, ranker. No dots, wildcards or white space."""
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""A BLAKE3 digest in hex."""
Hash = Annotated[bytes, Field(min_length=32, max_length=32)]
"""A BLAKE3 digest in raw bytes."""
Text = Annotated[str, StringConstraints(max_length=4096)]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Item = TypeVar("Item")
FromList = BeforeValidator(lambda value: tuple(value) if type(value) is list else value)
"""msgpack and TOML know only lists: where a tuple is meant a list is one too, in strict validation as well."""
Many = Annotated[tuple[Item, ...], FromList]
"""Any number of items of one kind."""

_FIELD = re.compile(r"\{(\w+)\}")


class Struct(BaseModel):
    """An immutable value inside an event; unknown fields are refused (`bus.wire` says when they are dropped)."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, ser_json_bytes="hex", val_json_bytes="hex"
    )

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.model_dump() == other.model_dump()

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

    id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")] = ""
    """Given when the event is made; an id that does not follow from `key` is refused."""

    @model_validator(mode="after")
    def _identify(self) -> Self:
        if not self.key:
            given = self.id or secrets.token_hex(16)
        else:
            parts = [type(self).__name__, *(_spell(getattr(self, name)) for name in self.key)]
            given = blake3("\x1f".join(parts).encode()).hexdigest()[:32]
            if self.id not in ("", given):
                raise ValueError(f"the id does not follow from {', '.join(self.key)}")
        object.__setattr__(self, "id", given)  # the model is frozen for everybody else
        return self

    @classmethod
    def from_wire(cls, values: dict[str, Any], newer: bool = False) -> Self:
        """The event that was sent, from its decoded fields: nothing is converted, nothing filled in but defaults.

        newer: the sender's minor version is newer than ours; then fields that we do not know are dropped.
        Raises ValidationError for a wrong type, a broken bound, an unknown field or an id that is missing or
        does not follow from the event's cause.
        """
        sent = {"id": "", **values}  # an empty id is refused, a missing one would be given
        return cls.model_validate(sent, strict=True, extra="ignore" if newer else "forbid")

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
            raise ValueError(
                f"{cls.__name__} has no subject token {', '.join(sorted(unknown))}: {cls.subject}"
            )
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
        """A validated copy with other values, and so with an id of its own."""
        return type(self).model_validate({**self.model_dump(exclude={"id"}), **changes})


def _spell(value: Any) -> str:
    """A key field's value in an id: bytes in hex, several values separated by commas."""
    if isinstance(value, tuple):
        return ",".join(map(_spell, value))
    return value.hex() if isinstance(value, bytes) else str(value)
