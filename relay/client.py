"""The client: whole, verified folders of weights, fetched from several relays at once.

Below its directory lie `<name>/` (a whole version), `<name>.manifest` (what it is made of) and `<name>.partial/`
(a version on its way), where <name> is the manifest's own hash. A chunk is written only when its hash is right, and
a folder gets its name only when all of its chunks are there; a client that dies loses at most the chunks in flight.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from pathlib import Path
from weakref import WeakValueDictionary

from relay import manifest as manifests
from relay.errors import BadChunk
from relay.files import Bytes, Place, write_whole
from relay.parallel import for_each
from relay.selection import Selection
from relay.sources import Sources
from relay.transfer import AT_ONCE, Downloads, open_session
from schemas.weights import Manifest

_OURS = re.compile(r"[0-9a-f]{32}(\.partial|\.manifest)?")
Places = dict[str, list[Place]]
"""Chunk hash -> everywhere it occurs in a version's files."""


class Client:
    """Fetches versions into `directory` and keeps the last `keep`; the folder is this client's alone.

    patience: seconds without a source for a chunk after which the version counts as unavailable.
    """

    def __init__(
        self, directory: Path | str, sources: Sources, *, keep: int = 3, patience: float = 60.0
    ) -> None:
        self.directory = Path(directory)
        self.sources = sources
        self.keep = keep
        self.patience = patience
        self._selection = Selection()
        self._fetching: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def fetch(self, manifest: Manifest) -> Path:
        """A folder with all files of the manifest, every chunk verified; quick when it is here already.

        It stays until `keep` other versions were fetched after it. Raises WeightsUnavailable and DiskFull;
        what was fetched until then serves the next attempt.
        """
        folder = self.directory / manifests.name(manifest)
        lock = self._fetching.setdefault(folder.name, asyncio.Lock())
        async with lock:
            if not await asyncio.to_thread(_is_whole, manifest, folder):
                missing = await asyncio.to_thread(self._begin, manifest, folder)
                await self._download(manifest, missing)
            await asyncio.to_thread(self._finish, manifest, folder)
        return folder

    async def _download(self, manifest: Manifest, missing: Places) -> None:
        sizes = manifest.sizes()

        async def fetch(chunk: str) -> None:
            def keep(data: Bytes) -> None:
                manifests.check(chunk, sizes[chunk], data)
                for place in missing[chunk]:
                    place.write(data)

            await downloads.chunk(chunk, sizes[chunk], keep)

        async with open_session() as session:
            downloads = Downloads(session, self.sources, self._selection, self.patience)
            await for_each(missing, AT_ONCE, fetch)

    def _begin(self, manifest: Manifest, folder: Path) -> Places:
        """Make the partial folder from all that is at hand; returns the chunks that are not."""
        partial = _partial(folder)
        resumed = partial.exists()
        partial.mkdir(parents=True, exist_ok=True)
        for file in manifest.files:
            with open(partial / file.name, "ab") as created:
                created.truncate(file.size)
        sizes, at_hand = manifest.sizes(), self._at_hand()
        missing: Places = {}
        for chunk, places in _places(manifest, partial).items():
            size = sizes[chunk]
            if resumed and all(_holds(place, chunk, size) for place in places):
                continue
            if chunk in at_hand and _holds(at_hand[chunk], chunk, size):
                data = at_hand[chunk].read(size)
                for place in places:
                    place.write(data)
            else:
                missing[chunk] = places
        return missing

    def _at_hand(self) -> dict[str, Place]:
        """Every chunk of the versions that are here whole."""
        found: dict[str, Place] = {}
        for path in self.directory.glob("*.manifest"):
            with contextlib.suppress(OSError, ValueError):  # pruned meanwhile, or damaged: then not at hand
                places = _places(manifests.unpack(path.read_bytes()), path.with_suffix(""))
                found.update((chunk, where[0]) for chunk, where in places.items())
        return found

    def _finish(self, manifest: Manifest, folder: Path) -> None:
        """Give the whole folder its name, and remove what is not kept any more."""
        write_whole(_description(folder), manifests.pack(manifest))  # its time is that of the last fetch
        if not folder.exists():
            _partial(folder).rename(folder)
        described = sorted(self.directory.glob("*.manifest"), key=lambda path: path.stat().st_mtime_ns)
        fetching = set(self._fetching)
        kept = {path.stem for path in described[-self.keep :]} | fetching
        for path in self.directory.iterdir():
            if not _OURS.fullmatch(path.name) or path.stem in (
                fetching if path.suffix == ".partial" else kept
            ):
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _is_whole(manifest: Manifest, folder: Path) -> bool:
    """Whether the folder is there and sound; one that is not (power failure) becomes a partial one."""
    if not folder.exists():
        return False
    sizes = manifest.sizes()
    places = _places(manifest, folder)
    if all(_holds(place, chunk, sizes[chunk]) for chunk, where in places.items() for place in where):
        return True
    shutil.rmtree(_partial(folder), ignore_errors=True)
    os.rename(folder, _partial(folder))
    return False


def _holds(place: Place, chunk: str, size: int) -> bool:
    try:
        manifests.check(chunk, size, place.read(size))
    except (BadChunk, OSError):
        return False
    return True


def _places(manifest: Manifest, folder: Path) -> Places:
    places: Places = {}
    for file in manifest.files:
        for at, chunk in enumerate(file.chunks()):
            places.setdefault(chunk, []).append(Place(folder / file.name, at * manifest.chunk_bytes))
    return places


def _partial(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.partial")


def _description(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.manifest")
