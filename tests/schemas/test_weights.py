from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas import File, Manifest

CHUNK = 1024


def file(name: str = "model.safetensors", size: int = 2500, chunks: int = 3) -> File:
    return File(name=name, size=size, hashes=b"".join(bytes([at]) * 32 for at in range(chunks)))


def manifest(*files: File) -> Manifest:
    return Manifest(digest="0" * 64, chunk_bytes=CHUNK, files=files)


@given(st.lists(st.integers(0, 9 * CHUNK), min_size=1, max_size=4))
def test_sizes_and_chunks_agree(sizes: list[int]) -> None:
    made = manifest(*(file(f"{at}.bin", size, -(-size // CHUNK)) for at, size in enumerate(sizes)))
    assert made.size == sum(sizes)
    assert [len(each.chunks()) for each in made.files] == [-(-size // CHUNK) for size in sizes]


def test_the_last_chunk_is_shorter() -> None:
    assert list(manifest(file()).sizes().values()) == [1024, 1024, 452]


@pytest.mark.parametrize(
    ("size", "chunks"), [(2500, 2), (2500, 4), (0, 1), (1, 0), (2**46 - 1, 3), (1024, 2)]
)
def test_sizes_that_lie_are_refused(size: int, chunks: int) -> None:
    with pytest.raises(ValidationError, match="chunks, not"):
        manifest(file(size=size, chunks=chunks))


def test_half_a_hash_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"1 chunks, not 1\.5"):
        manifest(File(name="a", size=1, hashes=bytes(48)))


@pytest.mark.parametrize("size", [-1, 2**46])
def test_sizes_are_bounded(size: int) -> None:
    with pytest.raises(ValidationError):
        file(size=size)


def test_files_named_twice_are_refused() -> None:
    with pytest.raises(ValidationError, match="named twice"):
        manifest(file(), file())


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".hidden",
        "../up",
        "a/b",
        "/etc/passwd",
        "a\\b",
        "C:x",
        "a\x00",
        "a\n",
        "-rf",
        "a" * 129,
        "ä",
    ],
)
def test_names_stay_inside_the_folder(name: str) -> None:
    with pytest.raises(ValidationError):
        file(name=name)


def test_chunks_are_bounded() -> None:
    half = 1 << 14
    files = [
        file(f"{at}.bin", half * CHUNK, 0).model_copy(update={"hashes": bytes(half * 32)}) for at in range(3)
    ]
    assert manifest(*files[:2]).size == 2 * half * CHUNK
    with pytest.raises(ValidationError, match="more than 32768 chunks"):
        manifest(*files)
