"""What surrounds an event on the wire: headers and a signature over its run, subject, schema and bytes.

A message is believed only if its signer may say such a thing, the signature covers where it lies, and the
event itself spells that subject; the payload is not even decompressed before the first two hold.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from blake3 import blake3

from bus import wire
from bus.errors import NotTrusted, WireError
from bus.identity import Identity, Trust, verify
from schemas import Event

SCHEMA, ENCODING, KEY, SIGNATURE = "Cairn-Schema", "Cairn-Encoding", "Cairn-Key", "Cairn-Signature"
MESSAGE_ID = "Nats-Msg-Id"

E_co = TypeVar("E_co", bound=Event, covariant=True)


@dataclass(frozen=True, slots=True)
class Message:
    """One stored message, before anything in it is believed.

    timestamp: when the server stored it, nanoseconds since 1970. deliveries: how often a consumer got it.
    pending: how many more the consumer will get. reply: where it is acked.
    """

    stream: str
    sequence: int
    subject: str
    headers: Mapping[str, str]
    payload: bytes
    timestamp: int
    deliveries: int = 1
    pending: int = 0
    reply: str = ""


@dataclass(frozen=True, slots=True)
class Record(Generic[E_co]):
    """An event that was believed, and what the server knows about it.

    subject: with the run's prefix. timestamp: when the server stored it, seconds since 1970.
    signer: public key. digest: BLAKE3 of the wire bytes in hex (`Rollouts.proof` names a Proof by it).
    """

    sequence: int
    event: E_co
    subject: str
    timestamp: float
    signer: str
    digest: str


@dataclass(frozen=True, slots=True)
class Sealed:
    """An event ready to be published."""

    stream: str
    subject: str
    headers: Mapping[str, str]
    payload: bytes

    def is_in(self, message: Message | None) -> bool:
        """Whether this very event, with this signature, is what a stored message holds."""
        return (
            message is not None
            and message.subject == self.subject
            and message.payload == self.payload
            and all(message.headers.get(name) == self.headers[name] for name in (SCHEMA, KEY, SIGNATURE))
        )


def seal(event: Event, run: str, identity: Identity) -> Sealed:
    """Encode and sign. An owner field that still says "self" gets the signer's key.

    The message id is a hash of the signed bytes and the signature: no other node can compute it before
    the message is out, so none can occupy it in the stream's duplicate window.
    """
    event = _own(event, identity.public_key)
    payload = wire.encode(event)
    subject = f"{run}.{event.subject_below()}"
    schema = wire.schema_header(type(event))
    signed = _signed(run, subject, schema, payload)
    signature = identity.sign(signed)
    headers = {
        SCHEMA: schema,
        ENCODING: wire.ENCODING,
        KEY: identity.public_key,
        SIGNATURE: base64.b64encode(signature).decode(),
        MESSAGE_ID: blake3(signed + signature).hexdigest(),
    }
    return Sealed(event.destination(), subject, headers, payload)


def kind_of(message: Message) -> tuple[type[Event], int]:
    """The event class that the message claims to be, and the sender's minor version. Raises WireError."""
    return wire.parse_schema(message.headers.get(SCHEMA, ""))


def unseal(message: Message, run: str, trust: Trust) -> Record[Event]:
    """Check and decode. Raises WireError with the first reason not to believe the message."""
    kind, minor = kind_of(message)
    if message.headers.get(ENCODING) != wire.ENCODING:
        raise WireError(f"encoding {message.headers.get(ENCODING, '')[:40]!r}, {wire.ENCODING} is expected")
    signer = message.headers.get(KEY, "")
    if not trust.allows(kind, signer):
        raise WireError(f"{signer[:56] or 'nobody'} may not publish {kind.__name__} in this run")
    signed = _signed(run, message.subject, message.headers[SCHEMA], message.payload)
    if not verify(signer, signed, _signature(message)):
        raise WireError("the signature does not fit the message, its subject and its run")
    event = wire.decode(kind, message.payload, minor)
    if message.subject != f"{run}.{event.subject_below()}":
        raise WireError(f"the event belongs on {run}.{event.subject_below()[:200]}")
    if event.owner is not None and getattr(event, event.owner) != signer:
        raise WireError(f"{kind.__name__}.{event.owner} is not its signer {signer}")
    return Record(
        sequence=message.sequence,
        event=event,
        subject=message.subject,
        timestamp=message.timestamp / 1e9,
        signer=signer,
        digest=blake3(message.payload).hexdigest(),
    )


def _own(event: Event, public_key: str) -> Event:
    owner = event.owner
    if owner is None or getattr(event, owner) == public_key:
        return event
    if getattr(event, owner) != "self":
        raise NotTrusted(
            f"{type(event).__name__}.{owner} is {getattr(event, owner)}, but this node signs as {public_key}; "
            f"set {owner} to the node's own public key"
        )
    values = event.model_dump(exclude={"id"} if event.key else None)  # the id is derived anew from the key
    return type(event).model_validate({**values, owner: public_key})


def _signed(run: str, subject: str, schema: str, payload: bytes) -> bytes:
    """The 32 bytes that are signed: a hash, because ed25519 itself reads the message twice with SHA-512."""
    return blake3(f"cairn\n{run}\n{subject}\n{schema}\n{wire.ENCODING}\n".encode() + payload).digest()


def _signature(message: Message) -> bytes:
    try:
        return base64.b64decode(message.headers.get(SIGNATURE, ""), validate=True)
    except (binascii.Error, ValueError):
        raise WireError("the signature is not base64") from None
