"""The runtime under every node of a run: identity, connection, handlers, tasks, heartbeats, a clean end.

    component = Component(kind="filter", name="variety")

    @component.on(Rollouts)
    async def score(event: Rollouts) -> Score: ...

    component.run()

Nodes may be started in any order: one that finds no server or no run waits for it and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeVar

import structlog

from bus import logs
from bus.client import Bus
from bus.errors import BusError, NoStream
from bus.heartbeat import Pulse
from bus.identity import Identity, key_file
from bus.subscribe import Handler, Subscription, handle
from bus.tasks import cancel
from schemas import Event, RunEnded
from schemas.config import Config, parse
from schemas.errors import mendable

log = structlog.get_logger()

PATIENCE_SECONDS = 30.0
STOP_SECONDS = 8.0

Hook = Callable[["Component"], Awaitable[None]]
H = TypeVar("H", bound=Hook)
F = TypeVar("F", bound=Handler)


class Component:
    """One node of a run.

    kind: what it is (`worker`, `validator`, `filter`); nodes of one kind share their handlers' messages.
    name: for people. url, run, keys (folder of key files): default to CAIRN_URL, CAIRN_RUN and CAIRN_KEYS.
    anchor: public keys of which one must have created the run. patience: seconds to wait for a server, and
    for the run when the server has only others. ends_with_run: end when RunEnded is read; otherwise when all
    tasks are done. capacity: measured figures, told in heartbeats.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        url: str | None = None,
        run: str | None = None,
        keys: str | os.PathLike[str] | None = None,
        anchor: tuple[str, ...] = (),
        patience: float = PATIENCE_SECONDS,
        ends_with_run: bool = True,
    ) -> None:
        self.kind = kind
        self.name = name
        self.url = url or os.environ.get("CAIRN_URL") or "nats://127.0.0.1:4222"
        self.run_name = run or os.environ.get("CAIRN_RUN") or "run"
        self._key_file = key_file(kind, name, os.fspath(keys) if keys else None)
        self.anchor = anchor
        self.patience = patience
        self.ends_with_run = ends_with_run
        self.bus: Bus
        self.config: Config
        self._pulse = Pulse(kind, name)
        self._subscriptions: dict[type[Event], Subscription] = {}
        self._start_hooks: list[Hook] = []
        self._tasks: list[Hook] = []
        self._stop_hooks: list[Hook] = []

    @cached_property
    def identity(self) -> Identity:
        """The key in this node's key file, made at its first use. Raises BusError."""
        return Identity.load_or_create(self._key_file)

    @property
    def public_key(self) -> str:
        """This node's name in subjects."""
        return self.identity.public_key

    @property
    def capacity(self) -> dict[str, float]:
        return self._pulse.capacity

    def on(
        self,
        kind: type[Event],
        batch: int = 1,
        ack_wait: float = 30.0,
        deliveries: int = 5,
        records: bool = False,
    ) -> Callable[[F], F]:
        """Register a handler: event -> event, events or None (with batch > 1: list of events -> events).

        What it returns is published before the message is acked. A message is given to one node of this
        kind; to another when this one dies for `ack_wait` seconds, or fails; after `deliveries` failures it
        becomes a DeadLetter. records: hand over Records (sequence, timestamp, signer) instead of events.
        """
        if kind in self._subscriptions:
            raise ValueError(
                f"{self.kind} has two handlers for {kind.__name__}; they would share its messages"
            )

        def register(function: F) -> F:
            durable = f"{self.kind}-{kind.__name__}"
            self._subscriptions[kind] = Subscription(
                kind, durable, function, batch, ack_wait, deliveries, records
            )
            return function

        return register

    def on_start(self, function: H) -> H:
        """Register `async def f(component)`, called once connected and before the run is looked for."""
        self._start_hooks.append(function)
        return function

    def task(self, function: H) -> H:
        """Register `async def f(component)`, run beside the handlers; its failure ends the component."""
        self._tasks.append(function)
        return function

    def on_stop(self, function: H) -> H:
        """Register `async def f(component)`, called at the end while the bus is still there, for some seconds."""
        self._stop_hooks.append(function)
        return function

    def waiting(self, what: str) -> None:
        """Say what this node waits for: `waiting("for grants")`."""
        self._pulse.state(f"waiting {what}", True)

    def doing(self, what: str) -> None:
        """Say what this node does: `doing("generating 8 groups")`."""
        self._pulse.state(what, False)

    def beat(self, **fields: Any) -> None:
        """Set other fields of this node's Heartbeat: url, parent, versions, alarms."""
        self._pulse.set(**fields)

    def run(self) -> None:
        """Serve until the run ends or a signal comes; an error that a user can mend is one line on stderr."""
        logs.configure()
        try:
            asyncio.run(self.serve())
        except Exception as error:
            told = mendable(error)
            if told is None:
                raise
            print(f"{self.kind} {self.name}: {told}", file=sys.stderr)
            sys.exit(told.exit_code)

    async def serve(self) -> None:
        """Connect, wait for the run, work until RunEnded (or, without handlers, until all tasks are done).

        SIGINT and SIGTERM end it cleanly. Raises BusError, and whatever a task raised.
        """
        work = asyncio.ensure_future(self._serve())
        with _stopped_by_signals(work) as stopped:
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                work.cancel()
                await asyncio.wait((work,))
                if not stopped.is_set():
                    raise
                if not work.cancelled():
                    work.result()

    async def _serve(self) -> None:
        log.info(
            "starting",
            kind=self.kind,
            name=self.name,
            node=self.public_key,
            run=self.run_name,
        )
        async with Bus.connect(
            self.url, self.run_name, self.identity, f"{self.kind}-{self.name}", self.anchor, self.patience
        ) as self.bus:
            for start in self._start_hooks:
                await start(self)
            self.config = await self._wait_for_run()
            log.info("joined", run=self.run_name)
            beating = asyncio.create_task(self._pulse.beat(self.bus))
            try:
                await self._work(beating)
            finally:
                await self._finish(beating)

    async def _wait_for_run(self) -> Config:
        said = False
        while True:
            try:
                created = await self.bus.wait_for_run(1.0 if not said else self.patience)
                return parse(created.event.config, f"the configuration of run {self.run_name!r}")
            except NoStream as error:
                if said and error.runs:
                    raise
                if not said:
                    log.info("waiting for the run", run=self.run_name, reason=str(error))
                said = True

    async def _work(self, beating: asyncio.Task[None]) -> None:
        """Until the run ends, all tasks are done and there are no handlers, or something fails."""
        ended = asyncio.create_task(self._until_run_ended())
        tasks = [asyncio.ensure_future(task(self)) for task in self._tasks]
        handlers = [asyncio.ensure_future(handle(self.bus, each)) for each in self._subscriptions.values()]
        working = {*tasks, *handlers}
        try:
            while working or not self._tasks:
                done, _ = await asyncio.wait({*working, ended, beating}, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
                if ended in done:
                    return
                working -= done
        finally:
            await cancel(*tasks, *handlers, ended)

    async def _until_run_ended(self) -> None:
        async for record in self.bus.records(RunEnded):
            if record.signer != self.public_key and self.ends_with_run:  # who ended it finishes by itself
                log.info("the run has ended", reason=record.event.reason, steps=record.event.steps)
                return

    async def _finish(self, beating: asyncio.Task[None]) -> None:
        await cancel(beating)
        self.doing("stopping")
        for stop in self._stop_hooks:
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await stop(self)
            except Exception as error:
                log.warning(
                    "could not finish cleanly", hook=getattr(stop, "__name__", "?"), error=repr(error)
                )
        self.doing("stopped")
        with contextlib.suppress(BusError):
            await self._pulse.once(self.bus)
        log.info("stopped", kind=self.kind, name=self.name)


@contextmanager
def _stopped_by_signals(work: asyncio.Future[None]) -> Iterator[threading.Event]:
    """SIGINT and SIGTERM cancel `work`, once: a second signal has its usual effect."""
    stopped = threading.Event()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()

    def stop() -> None:
        stopped.set()
        for each in signals:
            loop.remove_signal_handler(each)
        work.cancel()

    for each in signals:
        loop.add_signal_handler(each, stop)
    try:
        yield stopped
    finally:
        for each in signals:
            loop.remove_signal_handler(each)
