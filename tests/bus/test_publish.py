"""Publishing: stored once, whatever is lost on the way and whoever stands in it."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from bus import AlreadyPublished, Bus, BusError, Identity, NotTrusted
from bus.envelope import KEY, MESSAGE_ID, SCHEMA, SIGNATURE, seal
from bus.publish import WINDOW
from bus.testing import Run
from schemas import Control, Event, Judgement, RunCreated, Verdict, WorkRequested
from tests.bus.proxy import Proxy
from tests.schemas.examples import EXAMPLES, WORKER


def verdict(reward: float = 0.5) -> Verdict:
    return Verdict(
        worker=WORKER,
        task="7",
        attempt=0,
        slice=0,
        rollouts_sequence=3,
        judgements=(Judgement(index=0, outcome="accepted", reward=reward),),
    )


async def raw(
    bus: Bus, subject: str, payload: bytes = b"junk", headers: dict[str, str] | None = None
) -> None:
    """What a node with its own program could do: anything."""
    reply = await bus.connection.request(
        f"{bus.run}.{subject}", payload, headers or {"Cairn-Schema": "Verdict/1.0"}
    )
    assert b'"seq"' in reply.data


async def test_the_same_event_twice_is_one_message(run: Run) -> None:
    async with run.connect("operator") as bus:
        control = Control(action="pause")
        assert [await bus.publish(control), await bus.publish(control)] == [1, 1]
        assert await bus.publish(Control(action="pause")) == 2


@pytest.mark.parametrize(
    ("role", "event", "once"), [("operator", Control(action="pause"), False), ("validator", verdict(), True)]
)
async def test_an_ack_that_was_lost_does_not_store_twice(
    run: Run, role: str, event: Event, once: bool
) -> None:
    async with (
        Proxy(run.url) as proxy,
        run.connect(role) as watcher,
        Bus.connect(proxy.url, run.name, run.identity(role)) as bus,
    ):
        await bus.trust()
        stored = watcher.records(type(event))
        proxy.deaf = True
        publishing = asyncio.create_task(bus.publish(event, once))
        record = await anext(stored)
        await stored.aclose()
        proxy.deaf = False
        with capture_logs():
            proxy.cut()
            assert await publishing == record.sequence == 1
        assert await watcher.end(event.destination()) == 1


async def test_many_publishes_at_once_survive_a_lost_connection(run: Run) -> None:
    async with Proxy(run.url) as proxy, Bus.connect(proxy.url, run.name, run.identity("operator")) as bus:
        with capture_logs():
            publishing = [
                asyncio.create_task(bus.publish(Control(action="pause"))) for _ in range(5 * WINDOW)
            ]
            await publishing[WINDOW]
            proxy.cut()
            sequences = await asyncio.gather(*publishing)
        assert len(set(sequences)) == len(sequences) == await bus.end("CONTROL")


async def test_a_message_id_that_another_took_does_not_hide_the_event(run: Run) -> None:
    control = Control(action="pause")
    sealed = seal(control, run.name, run.identity("operator"))
    async with run.connect("stranger") as stranger, run.connect("operator") as bus:
        await raw(stranger, "control", headers={MESSAGE_ID: sealed.headers[MESSAGE_ID]})
        with capture_logs() as logs:
            assert await bus.publish(control) == 2
        assert logs[0]["event"] == "another message holds this message id"
        with capture_logs():
            assert [record.event async for record in bus.records(Control, live=False)] == [control]


async def test_a_copy_with_a_foreign_signature_is_not_taken_for_ours(run: Run) -> None:
    control = Control(action="pause")
    sealed = seal(control, run.name, run.identity("operator"))
    async with run.connect("stranger") as stranger, run.connect("operator") as bus:
        copy = {**sealed.headers, SIGNATURE: "AAAA"}
        await raw(stranger, "control", sealed.payload, copy)
        with capture_logs():
            assert await bus.publish(control) == 2


async def test_what_is_written_once_is_written_once(run: Run) -> None:
    async with run.connect("validator") as bus:
        assert await bus.publish(verdict(), once=True) == 1
        assert await bus.publish(verdict(), once=True) == 1
        with pytest.raises(AlreadyPublished) as error:
            await bus.publish(verdict(reward=1.0), once=True)
        assert error.value.record.event == verdict()
        assert error.value.record.signer == bus.public_key
        assert await bus.end("VERDICTS") == 1


async def test_two_who_write_once_at_the_same_moment(run: Run) -> None:
    async with run.connect("validator") as one, run.connect("validator") as two:
        results = await asyncio.gather(
            *(bus.publish(verdict(at), once=True) for at, bus in enumerate((one, two))),
            return_exceptions=True,
        )
        assert sorted(type(result).__name__ for result in results) == ["AlreadyPublished", "int"]
        assert await one.end("VERDICTS") == 1


async def test_junk_cannot_block_what_is_written_once(run: Run) -> None:
    async with run.connect("stranger") as stranger, run.connect("validator") as bus:
        place = verdict().subject_below()
        await raw(stranger, place)
        with capture_logs():
            assert await bus.publish(verdict(), once=True) == 2
            await raw(stranger, place)
            assert await bus.publish(verdict(), once=True) == 2
            with pytest.raises(AlreadyPublished):
                await bus.publish(verdict(reward=1.0), once=True)
            last = await bus.last(Verdict, worker=WORKER, task="7", attempt=0, slice=0, ordinal=0)
        assert last is not None
        assert last.sequence == 2


async def test_who_has_not_the_role_is_told_before_anything_is_sent(run: Run) -> None:
    async with run.connect("validator", "stranger") as bus:
        with pytest.raises(NotTrusted, match=r"is not trusted as validator in run .* under trust\.validator"):
            await bus.publish(verdict())
        assert await bus.end("VERDICTS") == 0


async def test_another_trainer_cannot_create_the_run_again(run: Run) -> None:
    async with run.connect("trainer", "stranger") as bus:
        with pytest.raises(NotTrusted, match="was created by another trainer"):
            await bus.publish(EXAMPLES["RunCreated"].replace(run=run.name))


async def test_a_run_that_does_not_exist_is_one_clear_line(run: Run) -> None:
    identity = Identity.create()
    async with Bus.connect(run.url, "elsewhere", identity) as bus:
        bus._claimed = True
        created = RunCreated(run="elsewhere", config={}, commitment=bytes(32))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bus.publish.NO_STREAM_ATTEMPTS", 2)
            with pytest.raises(BusError, match=r"no stream takes elsewhere\.run"):
                await bus.publish(created)


async def test_headers_on_the_wire(run: Run) -> None:
    async with run.connect("worker") as bus:
        await bus.publish(WorkRequested(worker="self", groups=1))
        reply = await bus.connection.request(f"$JS.API.DIRECT.GET.{run.name}_REQUESTS", b'{"seq": 1}')
        headers = reply.headers or {}
        assert headers[SCHEMA] == "WorkRequested/1.0"
        assert headers["Cairn-Encoding"] == "zstd+msgpack"
        assert headers[KEY] == bus.public_key
