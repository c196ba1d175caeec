"""Weights over HTTP: chunks that carry their own hash, a tree of relays, clients that verify (docs/weights.md)."""

from relay.client import Client
from relay.errors import BadChunk, DiskFull, RelayError, UnknownChunk, UploadFailed, WeightsUnavailable
from relay.sources import Fixed, Relays, Sources

__all__ = [
    "BadChunk",
    "Client",
    "DiskFull",
    "Fixed",
    "RelayError",
    "Relays",
    "Sources",
    "UnknownChunk",
    "UploadFailed",
    "WeightsUnavailable",
]
