import resource

import pytest
from blake3 import blake3

from relay import BadChunk, DiskFull, UnknownChunk
from relay.chunks import ChunkStore
from schemas import File, Manifest
from tests.relay.nodes import DIGEST

SIZE = 4096


def content(seed: int) -> bytes:
    return seed.to_bytes(4, "little") * (SIZE // 4)


def hash_of(seed: int) -> str:
    return blake3(content(seed)).hexdigest()


def version(*seeds: int) -> Manifest:
    hashes = b"".join(blake3(content(seed)).digest() for seed in seeds)
    return Manifest(
        digest=DIGEST, chunk_bytes=SIZE, files=(File(name="f", size=SIZE * len(seeds), hashes=hashes),)
    )


def test_a_version_is_held_when_its_last_chunk_is(tmp_path):
    store = ChunkStore(tmp_path, keep=2)
    assert store.register(0, version(1, 2))
    store.put(hash_of(1), content(1))
    assert (store.versions(), store.missing(0)) == ([], [hash_of(2)])
    store.put(hash_of(2), content(2))
    assert (store.versions(), store.missing(0)) == ([0], [])
    assert store.path(hash_of(1)).read_bytes() == content(1)


def test_wrong_or_unknown_bytes_are_refused(tmp_path):
    store = ChunkStore(tmp_path, keep=2)
    store.register(0, version(1))
    with pytest.raises(BadChunk):
        store.put(hash_of(1), content(2))
    with pytest.raises(BadChunk):
        store.put(hash_of(1), content(1)[1:])
    with pytest.raises(UnknownChunk):
        store.put(hash_of(2), content(2))
    assert not list((tmp_path / "chunks").iterdir())


def test_only_the_newest_versions_are_kept_with_the_chunks_they_share(tmp_path):
    store = ChunkStore(tmp_path, keep=2)
    for number, manifest in enumerate([version(1, 2), version(2, 3), version(3, 4)]):
        store.register(number, manifest)
        for seed in (number + 1, number + 2):
            store.put(hash_of(seed), content(seed))
    assert store.versions() == [1, 2]
    assert {path.name for path in (tmp_path / "chunks").iterdir()} == {hash_of(seed) for seed in (2, 3, 4)}
    assert not store.register(0, version(1, 2)), "older than all that are kept"
    assert store.size(hash_of(1)) is None


def test_a_restart_finds_everything_again_and_removes_the_rest(tmp_path):
    store = ChunkStore(tmp_path, keep=2)
    store.register(7, version(1, 2, 3))
    for seed in (1, 2):
        store.put(hash_of(seed), content(seed))
    (tmp_path / "chunks" / ".half-written").write_bytes(b"x")
    (tmp_path / "chunks" / hash_of(3)).write_bytes(content(3)[:100])
    (tmp_path / "chunks" / hash_of(9)).write_bytes(content(9))
    (tmp_path / "manifests" / ".half-written").write_bytes(b"x")
    (tmp_path / "manifests" / "8").write_bytes(b"not a manifest")

    again = ChunkStore(tmp_path, keep=2)
    assert (again.versions(), again.missing(7)) == ([], [hash_of(3)])
    assert {path.name for path in (tmp_path / "chunks").iterdir()} == {hash_of(1), hash_of(2)}
    assert {path.name for path in (tmp_path / "manifests").iterdir()} == {"7"}


def test_verify_drops_what_rotted_on_disk(tmp_path):
    store = ChunkStore(tmp_path, keep=2)
    store.register(0, version(1, 2))
    for seed in (1, 2):
        store.put(hash_of(seed), content(seed))
    store.path(hash_of(2)).write_bytes(content(3))
    assert store.verify(hash_of(1))
    assert not store.verify(hash_of(2))
    assert not store.verify(hash_of(5))
    assert store.missing(0) == [hash_of(2)]
    assert not store.path(hash_of(2)).exists()


def test_no_room_is_a_clear_error_and_leaves_nothing(tmp_path):
    store = ChunkStore(tmp_path, keep=2)
    store.register(0, version(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE // 2, hard))  # the file system refuses to grow a file
    try:
        with pytest.raises(DiskFull, match="free space or keep fewer"):
            store.put(hash_of(1), content(1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list((tmp_path / "chunks").iterdir())
    store.put(hash_of(1), content(1))
    assert store.versions() == [0]
