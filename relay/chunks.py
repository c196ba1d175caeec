"""The bounded store of content-addressed chunks on disk.

`chunks/<hash>` holds the bytes of a chunk, `manifests/<version>` the manifest of a version that is kept. The
newest `keep` versions are kept with every chunk they name; all else is deleted. Everything is found again from
the disk after a restart. A chunk is hashed when it is written; whoever reads it hashes it too, and tells.
"""

from __future__ import annotations

import threading
from pathlib import Path

from relay import manifest as manifests
from relay.errors import BadChunk, UnknownChunk
from relay.files import Bytes, write_whole
from schemas.weights import Manifest


class ChunkStore:
    """Chunks of the newest `keep` versions below `directory`; all methods may be called from any thread."""

    def __init__(self, directory: Path | str, keep: int) -> None:
        self.keep = keep
        self._chunks = Path(directory) / "chunks"
        self._manifests = Path(directory) / "manifests"
        self._lock = threading.RLock()
        self._kept: dict[int, Manifest] = {}
        self._sizes_of: dict[int, dict[str, int]] = {}
        self._sizes: dict[str, int] = {}
        self._held: set[str] = set()
        self._read_disk()

    def register(self, version: int, manifest: Manifest) -> bool:
        """Keep this version from now on; the oldest beyond `keep` is dropped with the chunks only it names.

        False when it is itself older than all that are kept. Raises DiskFull.
        """
        with self._lock:
            if self._kept.get(version) == manifest:
                return True
            if len(self._kept) >= self.keep and version < min(self._kept):
                return False
            write_whole(self._manifests / str(version), manifests.pack(manifest))
            self._know(version, manifest)
            for old in sorted(self._kept)[: -self.keep]:
                del self._kept[old], self._sizes_of[old]
                (self._manifests / str(old)).unlink(missing_ok=True)
            self._forget_unnamed()
            return True

    def put(self, chunk: str, data: Bytes) -> None:
        """Verify and store a chunk. Raises UnknownChunk, BadChunk, DiskFull."""
        check_size = self.size(chunk)
        if check_size is None:
            raise UnknownChunk(f"chunk {chunk[:12]} belongs to no version that is kept")
        manifests.check(chunk, check_size, data)
        write_whole(self._chunks / chunk, data)
        with self._lock:
            self._held.add(chunk)
            self._forget_unnamed([chunk])  # its version may have been dropped while it was written

    def verify(self, chunk: str) -> bool:
        """Hash a held chunk again; one that is wrong on disk is dropped. False when it is not held (any more)."""
        size = self.size(chunk)
        if size is None or not self.holds(chunk):
            return False
        try:
            manifests.check(chunk, size, self.path(chunk).read_bytes())
        except (BadChunk, OSError):
            with self._lock:
                self._held.discard(chunk)
                self.path(chunk).unlink(missing_ok=True)
            return False
        return True

    def path(self, chunk: str) -> Path:
        """Where a held chunk's bytes lie."""
        return self._chunks / chunk

    def holds(self, chunk: str) -> bool:
        return chunk in self._held

    def size(self, chunk: str) -> int | None:
        """Bytes of a chunk that a kept version names; None when none does."""
        return self._sizes.get(chunk)

    def missing(self, version: int) -> list[str]:
        """Chunks of a kept version that are not held, in file order; empty for a version that is not kept."""
        return [chunk for chunk in self._sizes_of.get(version, ()) if chunk not in self._held]

    def incomplete(self) -> list[int]:
        """Kept versions that lack a chunk, newest first."""
        with self._lock:
            return sorted(
                (version for version, sizes in self._sizes_of.items() if not sizes.keys() <= self._held),
                reverse=True,
            )

    def versions(self) -> list[int]:
        """Versions that are held whole, oldest first."""
        with self._lock:
            return sorted(version for version, sizes in self._sizes_of.items() if sizes.keys() <= self._held)

    def _know(self, version: int, manifest: Manifest) -> None:
        self._kept[version] = manifest
        self._sizes_of[version] = manifest.sizes()

    def _forget_unnamed(self, among: list[str] | None = None) -> None:
        """Delete held chunks (all, or those given) that no kept version names."""
        if among is None:
            self._sizes = {chunk: size for sizes in self._sizes_of.values() for chunk, size in sizes.items()}
        for chunk in [chunk for chunk in among or self._held if chunk not in self._sizes]:
            self._held.discard(chunk)
            self.path(chunk).unlink(missing_ok=True)

    def _read_disk(self) -> None:
        """Rebuild the index. Only sizes are checked: hashing many versions would delay a restart for minutes."""
        self._chunks.mkdir(parents=True, exist_ok=True)
        self._manifests.mkdir(parents=True, exist_ok=True)
        for path in self._manifests.iterdir():
            try:
                self._know(int(path.name), manifests.unpack(path.read_bytes()))
            except ValueError:
                path.unlink()  # a temporary file of a process that died, or damage: the bus tells it again
        self._forget_unnamed()
        for path in self._chunks.iterdir():
            if path.stat().st_size == self._sizes.get(path.name):
                self._held.add(path.name)
            else:
                path.unlink()
