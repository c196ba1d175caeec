"""The embedded server: its own port and store, its errors, its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bus import BusError
from bus.server import Server


def test_a_free_port_is_taken_and_kept_over_a_restart(tmp_path: Path) -> None:
    server = Server(tmp_path)
    with server:
        url, first = server.url, server.pid
        socket.create_connection(("127.0.0.1", server.port)).close()
    assert server.pid is None
    with server:
        assert server.url == url
        assert server.pid != first


def test_a_port_in_use_is_one_clear_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BusError, match=f"port {port} on 127.0.0.1 is taken") as error:
            Server(tmp_path, port).start()
    assert "\n" not in str(error.value)


def test_a_store_that_cannot_be_used_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "jetstream").write_text("not a folder")
    with pytest.raises(BusError, match="nats-server did not start"):
        Server(tmp_path).start()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does this")
def test_it_does_not_outlive_a_process_that_is_killed(tmp_path: Path) -> None:
    program = (
        f"from bus.server import Server\nprint(Server({str(tmp_path)!r}).start().pid, flush=True)\ninput()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        os.kill(server, 0)
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while _runs(server):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
