"""The manifest of a policy: what its files are and which chunks they are made of (docs/weights.md)."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from schemas.event import Digest, Many, Struct

HASH_BYTES = 32
MAX_CHUNKS = 1 << 15
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")]
"""A file name without folders; it never starts with a dot."""


class File(Struct):
    """One file, cut into chunks of `Manifest.chunk_bytes` (the last one shorter).

    hashes: the BLAKE3 digests of the chunks, 32 bytes each, in order.
    """

    name: FileName
    size: Annotated[int, Field(ge=0, lt=2**46)]
    hashes: Annotated[bytes, Field(max_length=HASH_BYTES * MAX_CHUNKS)]

    def chunks(self) -> list[str]:
        """Chunk hashes in hex, in file order."""
        return [self.hashes[at : at + HASH_BYTES].hex() for at in range(0, len(self.hashes), HASH_BYTES)]


class Manifest(Struct):
    """A directory that transformers and vLLM load, as content-addressed chunks.

    digest: of the weights after loading (`schemas.digest`), not of the files.
    """

    digest: Digest
    chunk_bytes: Annotated[int, Field(ge=1 << 10, le=1 << 26)]
    files: Annotated[Many[File], Field(min_length=1, max_length=256)]

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        if len({file.name for file in self.files}) != len(self.files):
            raise ValueError("a file is named twice")
        for file in self.files:
            chunks = -(-file.size // self.chunk_bytes)
            if len(file.hashes) != chunks * HASH_BYTES:
                raise ValueError(
                    f"{file.name}: {file.size} bytes are {chunks} chunks, not {len(file.hashes) / HASH_BYTES:g}"
                )
        if sum(len(file.hashes) for file in self.files) > MAX_CHUNKS * HASH_BYTES:
            raise ValueError(f"more than {MAX_CHUNKS} chunks; use larger chunks")
        return self

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def sizes(self) -> dict[str, int]:
        """Chunk hash in hex -> its size in bytes."""
        return {
            chunk: min(self.chunk_bytes, file.size - at * self.chunk_bytes)
            for file in self.files
            for at, chunk in enumerate(file.chunks())
        }
