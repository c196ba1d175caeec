"""Connecting, losing and getting back a connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import nats.errors
import pytest
from structlog.testing import capture_logs

from bus import Bus, BusError, Identity
from bus.connection import Connection, Disconnected
from bus.server import _binary
from bus.testing import Run
from schemas import Control, WorkRequested
from schemas.config import BusSection
from tests.bus.proxy import Proxy


@pytest.mark.parametrize("url", ["nats://127.0.0.1:1", "nats://nowhere.invalid:4222"])
async def test_no_server_is_one_clear_line(url: str) -> None:
    with pytest.raises(BusError, match=rf"no NATS server at {url} after 0\.3 s .*; start one"):
        async with Bus.connect(url, "demo", patience=0.3):
            pass


@pytest.mark.parametrize("url", ["nats://127.0.0.1:port", "nats://:99999"])
async def test_an_address_that_is_none_is_one_clear_line(url: str) -> None:
    with pytest.raises(BusError, match=r"cannot use the server address|no NATS server"):
        async with Bus.connect(url, "demo", patience=0.3):
            pass


async def test_a_password_is_never_shown() -> None:
    with pytest.raises(BusError) as error:
        async with Bus.connect("nats://user:secret@127.0.0.1:1", "demo", patience=0.2):
            pass
    assert "secret" not in str(error.value)


async def test_a_lost_connection_ends_requests_at_once_and_comes_back(run: Run) -> None:
    async with Proxy(run.url) as proxy:
        connection = Connection(proxy.url)
        await connection.open(5)
        proxy.deaf = True
        asking = asyncio.create_task(connection.request("$JS.API.INFO"))
        await asyncio.sleep(0.05)
        proxy.deaf = False
        proxy.cut()
        started = time.monotonic()
        with capture_logs(), pytest.raises(Disconnected):
            await asking
        assert time.monotonic() - started < 1
        with capture_logs() as logs:
            assert (await connection.request("$JS.API.INFO")).data
        assert [entry["event"] for entry in logs] == ["connected to the server again"]
        await connection.close()


async def test_a_client_that_was_closed_for_good_is_replaced(run: Run) -> None:
    async with run.connect("worker") as bus:
        await bus.publish(WorkRequested(worker="self", groups=1))
        with capture_logs() as logs:
            await bus.connection.client.close()  # as nats-py does when a credential has expired
            assert await bus.publish(WorkRequested(worker="self", groups=1)) == 2
        assert "the client was closed; opening another" in [entry["event"] for entry in logs]


async def test_a_closed_bus_says_so(run: Run) -> None:
    async with run.connect("worker") as bus:
        pass
    with pytest.raises(BusError, match="the bus is closed"):
        await bus.connection.request("$JS.API.INFO")


async def test_no_answer_is_a_timeout(run: Run) -> None:
    async with run.connect("worker") as bus:
        with pytest.raises(nats.errors.NoRespondersError):
            await bus.connection.request("nobody.listens")


@contextlib.contextmanager
def other_server(folder: Path, configuration: str) -> Iterator[str]:
    """A nats-server with a configuration of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*free.getsockname())
    (folder / "server.conf").write_text(f'listen: "{address}"\n{configuration}')
    process = subprocess.Popen([_binary(), "-c", folder / "server.conf"], stderr=subprocess.DEVNULL)
    try:
        yield f"nats://{{}}{address}"
    finally:
        process.kill()
        process.wait()


async def test_a_refused_login_is_one_clear_line(tmp_path: Path) -> None:
    with (
        other_server(tmp_path, "authorization { user: a, password: b }") as url,
        pytest.raises(BusError, match=r"refused the login: .*Authorization"),
    ):
        async with Bus.connect(url.format("a:wrong@"), "demo"):
            pass


async def test_a_server_without_jetstream_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bus.connection.NO_JETSTREAM_SECONDS", 0.1)
    with other_server(tmp_path, "") as url:
        async with Bus.connect(url.format(""), "demo") as bus:
            with pytest.raises(BusError, match="runs without JetStream; start it with nats-server -js"):
                await bus.wait_for_run()
            with pytest.raises(BusError, match="runs without JetStream"):
                await bus.create_streams(BusSection())


async def test_a_denied_subject_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bus.connection.REQUEST_SECONDS", 0.2)
    user = 'user: a, password: b, permissions: { publish: { deny: "demo.control" } }'
    configuration = f'jetstream {{ store_dir: "{tmp_path}" }}\nauthorization {{ users: [{{ {user} }}] }}'
    with other_server(tmp_path, configuration) as url:
        run = Run(url.format("a:b@"), tmp_path / "keys", "demo")
        with capture_logs():
            await run.create()
            async with run.connect("operator") as bus:
                with pytest.raises(
                    BusError, match=r"does not let this node publish on demo\.control: .*permissions"
                ):
                    await bus.publish(Control(action="pause"))


async def test_the_operators_key_is_made_when_something_is_published(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAIRN_KEYS", str(tmp_path / "home"))
    async with Bus.connect(run.url, run.name) as bus:
        assert [record async for record in bus.records(Control, live=False)] == []
        assert not (tmp_path / "home").exists()
        with pytest.raises(BusError, match=r"is not trusted as operator .* under trust\.operator"):
            await bus.publish(Control(action="pause"))
    assert bus.public_key == Identity.load_or_create(tmp_path / "home" / "operator-operator.nk").public_key
