"""What can go wrong in this room:

RelayError
├── WeightsUnavailable   nobody delivered a chunk within the client's patience
├── UploadFailed         the origin refused an upload
│   └── OriginAway       it could not be reached within the patience; trying again may help
├── DiskFull             no room to write; nothing half-written is left
├── UnknownChunk         no manifest that is kept names this chunk
└── BadChunk             the bytes are not those that the hash names
"""

from __future__ import annotations

from schemas.errors import CairnError


class RelayError(CairnError):
    """Base of this room's errors; the message is one line: what, why, what to do."""


class WeightsUnavailable(RelayError):
    """No source delivered a chunk in time: the version is gone or the relays are down."""


class UploadFailed(RelayError):
    """The origin refused the upload or could not be reached."""


class OriginAway(UploadFailed):
    """The origin could not be reached for a while."""


class DiskFull(RelayError):
    """The disk has no room; what was being written is removed."""


class UnknownChunk(RelayError):
    """The chunk belongs to no manifest that is kept."""


class BadChunk(RelayError):
    """The bytes do not have the hash or the size that the manifest names."""
