import msgpack
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from relay import BadChunk
from relay import manifest as manifests
from schemas import File, Manifest
from tests.relay.nodes import DIGEST, policy


def test_build_cuts_every_file_into_hashed_chunks(tmp_path):
    folder = policy(tmp_path / "policy", 5000)
    manifest = manifests.build(folder, DIGEST, 2048)
    assert [(file.name, file.size) for file in manifest.files] == [
        ("config.json", 23),
        ("merges.txt", 0),
        ("model.safetensors", 5000),
    ]
    weights = (folder / "model.safetensors").read_bytes()
    assert manifest.files[2].chunks() == [
        blake3(weights[at : at + 2048]).hexdigest() for at in (0, 2048, 4096)
    ]
    assert manifest.digest == DIGEST


def test_build_refuses_what_a_manifest_cannot_carry(tmp_path):
    with pytest.raises(ValueError, match="holds no files"):
        manifests.build(tmp_path, DIGEST, 2048)
    (tmp_path / "with space.bin").touch()
    with pytest.raises(ValueError, match="only letters"):
        manifests.build(tmp_path, DIGEST, 2048)
    (tmp_path / "with space.bin").unlink()
    (tmp_path / "sub").mkdir()
    with pytest.raises(ValueError, match="flat folder"):
        manifests.build(tmp_path, DIGEST, 2048)


@pytest.mark.parametrize(
    "name", ["../weights", "a/b", "/etc/passwd", ".hidden", "..", "a\\b", "a\0b", "", "a\n"]
)
def test_a_manifest_names_no_file_outside_its_folder(name):
    fields = {"digest": DIGEST, "chunk_bytes": 1024, "files": [{"name": name, "size": 0, "hashes": b""}]}
    with pytest.raises(ValueError, match="name"):
        manifests.unpack(msgpack.packb(fields))


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=5), st.integers(1024, 4096))
def test_pack_and_unpack(sizes, chunk_bytes):
    files = tuple(
        File(name=f"f{at}", size=size, hashes=bytes(32 * -(-size // chunk_bytes)))
        for at, size in enumerate(sizes)
    )
    manifest = Manifest(digest=DIGEST, chunk_bytes=chunk_bytes, files=files)
    assert manifests.unpack(manifests.pack(manifest)) == manifest


@given(st.binary(max_size=200))
def test_unpack_of_anything_else_is_a_value_error(data):
    with pytest.raises(ValueError, match="not a manifest"):
        manifests.unpack(data)


def test_unpack_is_bounded():
    with pytest.raises(ValueError, match="at most"):
        manifests.unpack(bytes(manifests.MAX_PACKED + 1))


def test_check_names_the_fault():
    data = b"some bytes"
    manifests.check(blake3(data).hexdigest(), len(data), data)
    with pytest.raises(BadChunk, match="9 bytes instead of 10"):
        manifests.check(blake3(data).hexdigest(), 10, data[:9])
    with pytest.raises(BadChunk, match="hash to"):
        manifests.check(blake3(data).hexdigest(), 10, b"Some bytes")
