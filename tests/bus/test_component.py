"""The runtime: every start order, a clean end, and one clear line where it cannot go on."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bus import BusError, Component, Identity, key_file
from bus.server import Server
from bus.testing import Run, new_run
from schemas import Control, Heartbeat, RunCreated, RunEnded, Score, WorkRequested, WorkReturned
from tests.schemas.examples import EXAMPLES

ENDED = RunEnded(reason="finished", steps=1, version=1, digest="a" * 64, secret=bytes(32))


@asynccontextmanager
async def serving(component: Component) -> AsyncIterator[asyncio.Task[None]]:
    with capture_logs():
        task = asyncio.create_task(component.serve())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait((task,))


async def end(run: Run) -> None:
    async with run.connect("trainer") as bus:
        await bus.publish(ENDED)


async def test_a_handler_is_a_function_from_event_to_event(run: Run) -> None:
    component = run.component("worker")

    @component.on(WorkRequested)
    async def answer(event: WorkRequested) -> WorkReturned:
        return WorkReturned(worker="self", task="1", attempt=0, reason=event.name)

    async with serving(component) as serve, run.connect("node") as bus:
        await bus.publish(WorkRequested(worker="self", name="hello", groups=1))
        record = await anext(bus.records(WorkReturned))
        assert (record.signer, record.event.reason) == (component.public_key, "hello")
        await end(run)
        await serve
        assert component.config.run.name == run.name


async def test_tasks_run_beside_handlers_and_the_end_of_the_run_ends_them(run: Run) -> None:
    component = run.component("worker")
    told: list[str] = []

    @component.task
    async def work(component: Component) -> None:
        component.doing("sums")
        try:
            await asyncio.Event().wait()
        finally:
            told.append("cancelled")

    @component.on_stop
    async def give_back(component: Component) -> None:
        await component.bus.publish(WorkReturned(worker="self", task="1", attempt=0, reason="stopping"))
        told.append("returned")

    async with serving(component) as serve, run.connect("operator") as bus:
        async for beat in bus.records(Heartbeat, kind="worker"):
            if beat.event.state == "sums":
                break
        await end(run)
        await serve
        assert told == ["cancelled", "returned"]
        assert await bus.last(WorkReturned, worker=component.public_key) is not None
        last = await bus.last(Heartbeat, kind="worker", node=component.public_key)
        assert last is not None
        assert last.event.state == "stopped"


async def test_a_hook_that_hangs_or_fails_does_not_stop_the_end(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bus.component.STOP_SECONDS", 0.1)
    component = run.component("worker")
    called: list[str] = []

    @component.on_stop
    async def hangs(component: Component) -> None:
        called.append("hangs")
        await asyncio.Event().wait()

    @component.on_stop
    async def fails(component: Component) -> None:
        called.append("fails")
        raise RuntimeError

    @component.task
    async def nothing(component: Component) -> None:
        pass

    async with serving(component) as serve:
        await serve
    assert called == ["hangs", "fails"]


async def test_a_task_that_fails_ends_the_component(run: Run) -> None:
    component = run.component("worker")

    @component.task
    async def fails(component: Component) -> None:
        raise RuntimeError("no more disk")

    @component.on(WorkRequested)
    async def handler(event: WorkRequested) -> None:
        pass

    async with serving(component) as serve:
        with pytest.raises(RuntimeError, match="no more disk"):
            await serve


async def test_who_ends_the_run_is_not_cut_off(run: Run) -> None:
    component = run.component("trainer")
    finished: list[bool] = []

    @component.task
    async def train(component: Component) -> None:
        await component.bus.publish(ENDED)
        await asyncio.sleep(0.2)
        finished.append(True)

    async with serving(component) as serve:
        await serve
    assert finished == [True]


async def test_heartbeats_say_what_a_node_does_or_waits_for(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bus.heartbeat.SECONDS", 0.5)
    component = run.component("relay", "attic")

    @component.task
    async def wait(component: Component) -> None:
        component.capacity["bytes_per_s"] = 1e6
        component.beat(url="http://127.0.0.1:1", versions=(1, 2))
        component.waiting("for policies")
        await asyncio.Event().wait()

    async with serving(component), run.connect("operator") as bus:
        beats = bus.records(Heartbeat)
        seen = [(await anext(beats)).event for _ in range(3)]
        await beats.aclose()
    assert seen[-1].name == "attic"
    assert seen[-1].state == "waiting for policies"
    assert seen[-1].waiting
    assert seen[-1].seconds > 0.2
    assert seen[-1].capacity == {"bytes_per_s": 1e6}
    assert seen[-1].versions == (1, 2)


def counting(run: Run) -> Component:
    """A component that answers one request and is done."""
    component = run.component("worker")

    @component.on(WorkRequested)
    async def answer(event: WorkRequested) -> WorkReturned:
        return WorkReturned(worker="self", task=str(event.groups), attempt=0, reason="x")

    return component


async def test_the_component_may_come_before_the_server_and_the_run(tmp_path: Path) -> None:
    with Server(tmp_path / "store") as server:
        pass  # now its port is known
    run = Run(server.url, tmp_path / "keys", "late")
    with capture_logs() as logs:
        serve = asyncio.create_task(counting(run).serve())
        await asyncio.sleep(0.2)
        with server:
            while not any(entry["event"] == "waiting for the run" for entry in logs):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            await run.create()
            async with run.connect("node") as bus:
                await bus.publish(WorkRequested(worker="self", groups=1))
                await anext(bus.records(WorkReturned))
            await end(run)
            await serve
    said = [entry["event"] for entry in logs]
    assert said[:4] == ["starting", "waiting for the server", "waiting for the run", "joined"]


async def test_the_component_may_come_after_everything_else(run: Run) -> None:
    async with run.connect("node") as bus:
        await bus.publish(WorkRequested(worker="self", groups=1))
        async with serving(counting(run)):
            await anext(bus.records(WorkReturned))


async def test_the_component_outlives_the_server(tmp_path: Path) -> None:
    with Server(tmp_path / "store") as server:
        run = await new_run(server.url, tmp_path / "keys")
        async with serving(counting(run)) as serve, run.connect("node") as bus:
            for at in range(3):
                await bus.publish(WorkRequested(worker="self", groups=at))
                found = [record async for record in _until(bus.records(WorkReturned), at + 1)]
                assert len(found) == at + 1
                server.kill()
                await asyncio.sleep(0.05)
                server.start()
            await end(run)
            await serve


async def _until(records, count):  # type: ignore[no-untyped-def]
    at = 0
    async for record in records:
        yield record
        at += 1
        if at == count:
            return


async def test_no_server_ends_it_with_one_clear_line(tmp_path: Path) -> None:
    component = Component("worker", "w", url="nats://127.0.0.1:1", run="r", keys=tmp_path, patience=0.3)
    with (
        capture_logs(),
        pytest.raises(BusError, match=r"no NATS server at nats://127\.0\.0\.1:1 .* start one"),
    ):
        await component.serve()


async def test_a_wrong_run_name_ends_it_with_the_names_that_exist(run: Run) -> None:
    component = Component("worker", "w", url=run.url, run="typo", keys=run.keys, patience=0.2)
    with capture_logs(), pytest.raises(BusError, match=f"no run 'typo' .* runs there: .*{run.name}"):
        await component.serve()


async def test_the_trainer_creates_the_run_when_it_is_connected(nats_server: Server, tmp_path: Path) -> None:
    run = Run(nats_server.url, tmp_path, f"made-by-{tmp_path.name}"[:40])
    component = run.component("trainer")

    @component.on_start
    async def create(component: Component) -> None:
        config = run.config()
        await component.bus.create_streams(config.bus)
        await component.bus.publish(
            RunCreated(run=run.name, config=config.model_dump(mode="json"), commitment=bytes(32))
        )

    @component.task
    async def train(component: Component) -> None:
        assert component.config == run.config()

    async with serving(component) as serve:
        await serve


def test_two_handlers_for_one_event_are_refused(run: Run) -> None:
    component = run.component("worker")

    async def handler(event: Control) -> None: ...

    component.on(Control)(handler)
    with pytest.raises(ValueError, match="two handlers for Control"):
        component.on(Control)


PROGRAM = """
from bus import Component
from schemas import Rollouts, Score

component = Component(kind="ranker", name="test")

@component.on(Rollouts)                      # shared with others of its kind; acked once the Score is stored
async def score(event: Rollouts) -> Score:
    return Score.of(event, [len(set(c.ids)) / max(1, len(c.ids)) for c in event.completions])

@component.on_stop
async def bye(component):
    print("bye", flush=True)

component.run()
"""


async def test_a_program_as_a_user_writes_it(run: Run, tmp_path: Path) -> None:
    program = tmp_path / "variety.py"
    program.write_text(PROGRAM)
    environment = {
        "CAIRN_URL": run.url,
        "CAIRN_RUN": run.name,
        "CAIRN_KEYS": str(run.keys),
        "PYTHONPATH": ".",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    async with run.connect("worker") as bus:
        rollouts = EXAMPLES["Rollouts"].replace(worker=bus.public_key)
        await bus.publish(rollouts)
        score = await anext(bus.records(Score))
        assert score.event.ranker == run.identity("ranker").public_key
        assert len(score.event.scores) == 2
    process.send_signal(signal.SIGTERM)
    output, errors = await asyncio.wait_for(process.communicate(), 10)
    assert (process.returncode, output) == (0, b"bye\n")
    assert b"stopped" in errors
    assert b"Traceback" not in errors


async def test_a_program_that_cannot_go_on_says_so_in_one_line(tmp_path: Path) -> None:
    program = f"from bus import Component\nComponent('w', 'x', url='nats://127.0.0.1:1', keys={str(tmp_path)!r}, patience=0.1).run()"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stderr=subprocess.PIPE)
    _, errors = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 1
    assert errors.decode().splitlines()[-1].startswith("w x: no NATS server at nats://127.0.0.1:1")
    assert b"Traceback" not in errors


def test_a_component_has_a_key_of_its_own(tmp_path: Path) -> None:
    component = Component("worker", "one", url="nats://127.0.0.1:1", keys=tmp_path)
    assert component.public_key == Identity.load_or_create(key_file("worker", "one", tmp_path)).public_key
