"""Who may write to the origin: the trainer's key, by an ed25519 signature over method, path and body hash.

A signature is good for these bytes at this place only. Repeating a recorded request changes nothing: a chunk is
its own hash, and a manifest that is older than those kept is ignored.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Container, Mapping

from bus.identity import Identity, verify

KEY, SIGNATURE, BODY = "Cairn-Key", "Cairn-Signature", "Cairn-Body"
_HASH = re.compile(r"[0-9a-f]{64}")


class Unauthorised(Exception):
    """The request is not signed by a key that may write; the message says why."""


def sign(identity: Identity, method: str, path: str, body_hash: str) -> dict[str, str]:
    """The headers that authorise one request. body_hash: BLAKE3 of the body, hex."""
    signature = identity.sign(_signed(method, path, body_hash))
    return {KEY: identity.public_key, SIGNATURE: base64.b64encode(signature).decode(), BODY: body_hash}


def authorise(headers: Mapping[str, str], method: str, path: str, trusted: Container[str]) -> str:
    """The hash that the body must have; raises Unauthorised. Reads nothing but the headers."""
    key, signature, body_hash = headers.get(KEY, ""), headers.get(SIGNATURE, ""), headers.get(BODY, "")
    if not key or not signature or not _HASH.fullmatch(body_hash):
        raise Unauthorised(f"the headers {KEY}, {SIGNATURE} and {BODY} are needed")
    if key not in trusted:
        raise Unauthorised("this key may not write here; only the trainer of the run may")
    try:
        raw = base64.b64decode(signature, validate=True)
    except binascii.Error:
        raise Unauthorised(f"{SIGNATURE} is not base64") from None
    if not verify(key, _signed(method, path, body_hash), raw):
        raise Unauthorised("the signature does not fit this request")
    return body_hash


def _signed(method: str, path: str, body_hash: str) -> bytes:
    return f"cairn-relay\n{method}\n{path}\n{body_hash}".encode()
