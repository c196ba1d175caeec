"""Everything that nats-py needs to be relied upon: one connection that comes back for ever.

Requests are matched here instead of by `Client.request`, so that a lost connection ends them at once and
not after their timeout. A client that nats-py closes for good (an expired credential, a protocol error)
is replaced; a flusher that has died silently is noticed by a watchdog.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import nats.errors
import nats.js.errors
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from bus.errors import BusError
from bus.retry import delays

log = structlog.get_logger()

REQUEST_SECONDS = 5.0
WATCHDOG_SECONDS = 10.0
CLOSE_SECONDS = 3.0
NO_JETSTREAM_SECONDS = 3.0
NO_JETSTREAM = "the server runs without JetStream; start it with nats-server -js"


class Disconnected(Exception):
    """The connection was lost while a request was under way; whether it arrived is unknown."""


TRANSIENT = (
    Disconnected,
    TimeoutError,
    nats.errors.TimeoutError,
    nats.errors.NoRespondersError,
    nats.errors.ConnectionClosedError,
    nats.errors.ConnectionReconnectingError,
    nats.errors.StaleConnectionError,
    nats.errors.OutboundBufferLimitError,
    nats.js.errors.NoStreamResponseError,
    nats.js.errors.ServiceUnavailableError,
    ConnectionError,
)
"""What goes away by itself while a server restarts, a leader changes or the network is down."""


class Connection:
    """One client of one server or cluster.

    url: `nats://host:port`, or several separated by commas. name: shown by the server.
    owner: the public key that replies are addressed by, so that a server can permit each node its own inbox.
    """

    def __init__(self, url: str, name: str = "", owner: str = "") -> None:
        self.url = url
        self._name = name
        self._inbox = f"_INBOX_{owner or secrets.token_hex(8)}"
        self._client = Client()
        self._ready = asyncio.Event()
        self._closing = False
        self._reopening = False
        self._no_api_since = 0.0
        self._connected_before = self._said = False
        self._errors: deque[str] = deque(maxlen=16)
        self._refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tokens = itertools.count()
        self._replies: dict[str, asyncio.Future[Msg]] = {}
        self._prefix = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self.interrupted: set[Callable[[], None]] = set()
        """Called at every loss of the connection, by whoever waits for messages."""

    @property
    def client(self) -> Client:
        return self._client

    @property
    def address(self) -> str:
        """The URL without a password, for people."""
        return ",".join(part.rpartition("@")[2] for part in self.url.split(","))

    @property
    def js(self) -> JetStreamContext:
        return self._client.jetstream(timeout=REQUEST_SECONDS)

    def reason(self, word: str = "") -> str:
        """The latest error of the connection (that contains `word`), or nothing."""
        return next((error for error in reversed(self._errors) if word.lower() in error.lower()), "")

    async def open(self, patience: float) -> None:
        """Connect; raises BusError when there is no server after `patience` seconds, or it refuses us."""
        attempt = asyncio.ensure_future(self._connect())
        try:
            await asyncio.wait(
                (attempt, self._refused), timeout=patience, return_when=asyncio.FIRST_COMPLETED
            )
            if attempt.done():
                attempt.result()
                self._spawn(self._watch())
                return
        except (nats.errors.Error, ValueError) as error:
            raise BusError(f"cannot use the server address {self.address}: {error}") from None
        finally:
            if not self._ready.is_set():
                await self._give_up(attempt)
        raise BusError(self._no_server(patience))

    async def close(self) -> None:
        """Send what is queued and close; never takes longer than a few seconds (drain of nats-py can hang)."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        try:
            with contextlib.suppress(*TRANSIENT, nats.errors.Error):
                if self._client.is_connected:
                    await self._client.flush(timeout=1)
        finally:  # cancelled or not, the socket is not left open
            closing = asyncio.ensure_future(self._client.close())
            await asyncio.wait((closing,), timeout=CLOSE_SECONDS)  # its outcome does not matter any more
            closing.cancel()
            self._ready.set()
            self._interrupt()

    async def ready(self) -> None:
        """Wait until there is a connection. Raises BusError when this side has closed it."""
        await self._ready.wait()
        if self._closing:
            raise BusError("the bus is closed")

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Msg:
        """One reply to one message. Raises one of TRANSIENT when there is none."""
        await self.ready()
        token = str(next(self._tokens))
        future: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._replies[token] = future
        try:
            await self._client.publish(
                subject, payload, reply=self._prefix + token, headers=dict(headers) if headers else None
            )
            async with asyncio.timeout(timeout or REQUEST_SECONDS):
                reply = await future
        finally:
            del self._replies[token]
        if not reply.data and reply.headers and reply.headers.get("Status") == "503":
            raise nats.errors.NoRespondersError
        return reply

    async def api(self, subject: str, request: Mapping[str, object] | None = None) -> dict[str, Any]:
        """One request to JetStream (`$JS.API.<subject>`).

        Raises APIError, one of TRANSIENT, and BusError when nobody has listened there for some seconds.
        """
        payload = json.dumps(request).encode() if request else b""
        try:
            message = await self.request(f"$JS.API.{subject}", payload)
        except nats.errors.NoRespondersError:
            self._no_api_since = self._no_api_since or time.monotonic()
            if time.monotonic() - self._no_api_since > NO_JETSTREAM_SECONDS:
                raise BusError(f"{self.address}: {NO_JETSTREAM}") from None
            raise
        self._no_api_since = 0.0
        reply: dict[str, Any] = json.loads(message.data)
        if "error" in reply:
            raise nats.js.errors.APIError.from_error(reply["error"])
        return reply

    async def send(self, subject: str, payload: bytes = b"", reply: str = "") -> None:
        """One message without an answer (acks, pull requests); dropped while there is no connection."""
        if self._client.is_connected:
            with contextlib.suppress(*TRANSIENT):
                await self._client.publish(subject, payload, reply=reply)

    async def _give_up(self, attempt: asyncio.Future[None]) -> None:
        self._closing = True
        if not attempt.done():
            attempt.cancel()
            await asyncio.wait((attempt,), timeout=CLOSE_SECONDS)
            await self._client.close()

    async def _connect(self) -> None:
        await self._client.connect(
            self.url.split(","),
            name=self._name,
            inbox_prefix=self._inbox,
            allow_reconnect=True,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.2,  # type: ignore[arg-type]
            connect_timeout=2,
            ping_interval=10,
            max_outstanding_pings=2,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnect,
            reconnected_cb=self._on_reconnect,
            closed_cb=self._on_close,
        )
        self._prefix = self._client.new_inbox() + "."
        await self._client.subscribe(self._prefix + "*", cb=self._on_reply)
        await self._client.flush()
        self._connected_before = True
        self._ready.set()

    async def _on_reply(self, message: Msg) -> None:
        future = self._replies.get(message.subject.rpartition(".")[2])
        if future is not None and not future.done():
            future.set_result(message)

    async def _on_error(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        self._errors.append(text)
        if not (self._connected_before or self._said):
            self._said = True
            log.info("waiting for the server", url=self.address, reason=text)
        if "uthorization" in text and not self._ready.is_set() and not self._refused.done():
            self._refused.set_result(None)
        if "violation" in text.lower():
            log.warning("the server refused something", reason=text)

    async def _on_disconnect(self) -> None:
        self._no_api_since = 0.0
        self._ready.clear()
        self._interrupt()
        if not self._closing:
            log.warning("connection to the server lost; reconnecting", url=self.address)

    async def _on_reconnect(self) -> None:
        self._ready.set()
        log.info("connected to the server again", url=self.address)

    async def _on_close(self) -> None:
        if not self._closing:
            log.warning("the client was closed; opening another", reason=self.reason())
            self._spawn(self._reopen())

    async def _reopen(self) -> None:
        self._reopening = True
        for delay in delays(0.2, 5.0):
            self._client = Client()
            try:
                await self._connect()
                self._reopening = False
                return
            except (nats.errors.Error, OSError) as error:
                self._errors.append(str(error))
                await asyncio.sleep(delay)

    async def _watch(self) -> None:
        """A client whose flusher or reconnection has died says nothing for ever: only looking notices."""
        down = 0
        while True:
            await asyncio.sleep(WATCHDOG_SECONDS)
            down = 0 if self._ready.is_set() or self._reopening else down + 1
            try:
                if down >= 3:
                    down = 0
                    await asyncio.wait((asyncio.ensure_future(self._client.close()),), timeout=CLOSE_SECONDS)
                elif self._client.is_connected:
                    await self._client.flush(timeout=5)
            except nats.errors.TimeoutError:
                log.warning("the server does not answer; connecting again")
                await self._client.force_reconnect()
            except nats.errors.Error as error:
                self._errors.append(str(error))

    def _interrupt(self) -> None:
        for future in self._replies.values():
            if not future.done():
                future.set_exception(Disconnected())
        for call in tuple(self.interrupted):
            call()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _no_server(self, patience: float) -> str:
        if self._refused.done():
            return f"the server at {self.address} refused the login: {self.reason('uthorization')}"
        return (
            f"no NATS server at {self.address} after {patience:g} s ({self.reason() or 'no answer'}); "
            "start one (nats-server -js) or give its address (--url, CAIRN_URL; the trainer: bus.url)"
        )
