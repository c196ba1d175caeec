"""Manifests: made from a directory, as bytes on disk and in a request, and named by their content."""

from __future__ import annotations

from pathlib import Path

import msgpack
from blake3 import blake3
from pydantic import TypeAdapter, ValidationError

from relay.errors import BadChunk
from relay.files import Bytes
from schemas.weights import File, FileName, Manifest

MAX_PACKED = 2 << 20
"""Bytes of the largest manifest: 32,768 chunk hashes, 256 file names and sizes."""

_file_name: TypeAdapter[str] = TypeAdapter(FileName)


def build(directory: Path | str, digest: str, chunk_bytes: int) -> Manifest:
    """The manifest of all files that lie directly in `directory`, read one chunk at a time.

    digest: of the weights after loading (`schemas.digest`). Raises ValueError for a folder without files, a
    sub-folder, or a name that a manifest cannot carry.
    """
    files = []
    for path in sorted(Path(directory).iterdir()):
        if not path.is_file():
            raise ValueError(f"{path} is not a file; a policy is one flat folder of files")
        try:
            name = _file_name.validate_python(path.name)
        except ValidationError:
            raise ValueError(
                f"{path}: only letters, digits, _ . - are allowed in a file's name, and no dot first"
            ) from None
        files.append(_cut(path, name, chunk_bytes))
    if not files:
        raise ValueError(f"{directory} holds no files")
    return Manifest(digest=digest, chunk_bytes=chunk_bytes, files=tuple(files))


def _cut(path: Path, name: str, chunk_bytes: int) -> File:
    buffer = memoryview(bytearray(chunk_bytes))
    hashes, size = bytearray(), 0
    with open(path, "rb") as file:
        while filled := file.readinto(buffer):
            hashes += blake3(buffer[:filled]).digest()
            size += filled
    return File(name=name, size=size, hashes=bytes(hashes))


def check(chunk: str, size: int, data: Bytes) -> None:
    """Raises BadChunk unless `data` has the size and the BLAKE3 hash (hex) that a manifest names."""
    length = memoryview(data).nbytes
    if length != size:
        raise BadChunk(f"chunk {chunk[:12]}: {length} bytes instead of {size}")
    if (found := blake3(data).hexdigest()) != chunk:
        raise BadChunk(f"chunk {chunk[:12]}: its bytes hash to {found[:12]}")


def pack(manifest: Manifest) -> bytes:
    """msgpack of the manifest's fields; at most MAX_PACKED bytes."""
    packed: bytes = msgpack.packb(manifest.model_dump())
    return packed


def unpack(data: bytes) -> Manifest:
    """The inverse of `pack`, for bytes from anywhere; raises ValueError."""
    if len(data) > MAX_PACKED:
        raise ValueError(f"a manifest of {len(data)} bytes; at most {MAX_PACKED} are allowed")
    try:
        return Manifest.model_validate(msgpack.unpackb(data), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"not a manifest: {where}: {first['msg']}") from None
    except (ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"not a manifest: {error or type(error).__name__}") from None


def name(manifest: Manifest) -> str:
    """The manifest's own name, 32 hex digits: equal if and only if all files are."""
    return blake3(pack(manifest)).hexdigest()[:32]
