import pytest

from bus.identity import Identity
from relay import Client, Fixed, UploadFailed
from relay.publication import upload
from tests.relay.nodes import CHUNK, DIGEST, TRAINER, origin, policy, same


async def test_upload_then_fetch(tmp_path):
    folder = policy(tmp_path / "policy", (20 << 20) + 3)
    async with origin(tmp_path / "origin") as top:
        manifest = await upload(top.url, folder, 0, DIGEST, 4 << 20, TRAINER)
        assert top.store.versions() == [0]
        assert manifest.digest == DIGEST
        assert same(folder, await Client(tmp_path / "client", Fixed(top.url)).fetch(manifest))


async def test_a_repeated_upload_sends_only_what_is_missing(tmp_path):
    folder = policy(tmp_path / "policy", 4 * CHUNK)
    async with origin(tmp_path / "origin") as top:
        manifest = await upload(top.url, folder, 0, DIGEST, CHUNK, TRAINER)
        lost = manifest.files[-1].chunks()[1]
        times = {chunk: top.store.path(chunk).stat().st_mtime_ns for chunk in manifest.sizes()}
        top.store.path(lost).write_bytes(b"")
        top.store.verify(lost)
        await upload(top.url, folder, 0, DIGEST, CHUNK, TRAINER)
        assert {
            chunk for chunk, time in times.items() if top.store.path(chunk).stat().st_mtime_ns != time
        } == {lost}


async def test_refusals_are_one_clear_line(tmp_path, monkeypatch):
    folder = policy(tmp_path / "policy", CHUNK)
    async with origin(tmp_path / "origin") as top:
        with pytest.raises(UploadFailed, match="401: this key may not write here"):
            await upload(top.url, folder, 0, DIGEST, CHUNK, Identity.create())
    monkeypatch.setattr("relay.publication.PATIENCE_SECONDS", 0.1)
    with pytest.raises(UploadFailed, match="is the origin running there"):
        await upload(top.url, folder, 0, DIGEST, CHUNK, TRAINER)
