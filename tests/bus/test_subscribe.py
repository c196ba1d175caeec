"""Handlers: work is divided, done at least once, and given up with a word."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

import nats.js.errors
import pytest
from structlog.testing import capture_logs

from bus import Bus
from bus.subscribe import Handler, Subscription, handle
from bus.testing import Run
from schemas import Control, DeadLetter, Event, WorkRequested, WorkReturned
from tests.bus.proxy import Proxy


@contextlib.asynccontextmanager
async def handling(
    bus: Bus, function: Handler, kind: type[Event] = WorkRequested, **options: float
) -> AsyncIterator[None]:
    subscription = Subscription(kind, "test-handler", function, **options)  # type: ignore[arg-type]
    task = asyncio.create_task(handle(bus, subscription))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.result()


async def ask(bus: Bus, count: int) -> None:
    await asyncio.gather(*(bus.publish(WorkRequested(worker="self", groups=at)) for at in range(count)))


async def first(bus: Bus, kind: type[Event], count: int) -> list[Event]:
    found: list[Event] = []
    async for record in bus.records(kind):
        found.append(record.event)
        if len(found) == count:
            break
    return found


async def settled(bus: Bus) -> None:
    """Until the consumer has nothing open."""
    while True:
        with contextlib.suppress(nats.js.errors.NotFoundError):  # deleted by the test
            info = await bus.connection.js.consumer_info(f"{bus.run}_REQUESTS", "test-handler")
            if not info.num_pending and not info.num_ack_pending:
                return
        await asyncio.sleep(0.01)


async def answer(event: WorkRequested) -> WorkReturned:
    return WorkReturned(worker="self", task=str(event.groups), attempt=0, reason="answer")


async def test_a_message_is_acked_after_its_result_is_stored(run: Run) -> None:
    async with run.connect("worker") as bus:
        await ask(bus, 1)
        async with handling(bus, answer):
            [result] = await first(bus, WorkReturned, 1)
            assert isinstance(result, WorkReturned)
            await settled(bus)


async def test_two_divide_the_work_and_lose_nothing(run: Run) -> None:
    async with (
        run.connect("worker") as asker,
        run.connect("node", "a") as one,
        run.connect("node", "b") as two,
    ):
        done: Counter[str] = Counter()
        by: Counter[str] = Counter()

        def counting(name: str) -> Handler:
            async def count(event: WorkRequested) -> None:
                await asyncio.sleep(0.001)
                done[event.id] += 1
                by[name] += 1

            return count

        async with handling(one, counting("one")), handling(two, counting("two")):
            await ask(asker, 100)
            await settled(asker)
        assert len(done) == 100
        assert set(done.values()) == {1}
        assert min(by["one"], by["two"]) > 10


async def test_a_batch_is_what_has_arrived_and_no_more(run: Run) -> None:
    async with run.connect("worker") as bus:
        sizes: list[int] = []

        async def batch(events: list[WorkRequested]) -> list[WorkReturned]:
            sizes.append(len(events))
            return [await answer(event) for event in events]

        await ask(bus, 40)
        async with handling(bus, batch, batch=16):
            await first(bus, WorkReturned, 40)
            await settled(bus)
        assert sum(sizes) == 40
        assert max(sizes) == 16


async def test_a_failed_message_comes_again_and_then_becomes_a_dead_letter(run: Run) -> None:
    async with run.connect("worker") as bus:
        tries: Counter[int] = Counter()

        async def fail(event: WorkRequested) -> None:
            tries[event.groups] += 1
            if event.groups == 1 or tries[event.groups] == 1:
                raise RuntimeError("no luck")

        await ask(bus, 3)
        with capture_logs():
            async with handling(bus, fail, deliveries=3):
                [letter] = await first(bus, DeadLetter, 1)
                await settled(bus)
        assert tries == {0: 2, 1: 3, 2: 2}
        assert isinstance(letter, DeadLetter)
        assert (letter.source, letter.deliveries) == ("REQUESTS", 3)
        dead = await bus.get(WorkRequested, letter.sequence)
        assert dead is not None
        assert dead.event.groups == 1
        assert letter.reason == "RuntimeError: no luck"
        assert letter.original_subject == f"{run.name}.requests.{bus.public_key}"


async def test_one_poisonous_message_does_not_take_its_batch_with_it(run: Run) -> None:
    async with run.connect("worker") as bus:

        async def fail(events: list[WorkRequested]) -> list[WorkReturned]:
            if any(event.groups == 3 for event in events):
                raise RuntimeError("poison")
            return [await answer(event) for event in events]

        await ask(bus, 8)
        with capture_logs():
            async with handling(bus, fail, batch=8, deliveries=2):
                results = await first(bus, WorkReturned, 7)
                letters = await first(bus, DeadLetter, 1)
                await settled(bus)
        assert len({event.id for event in results}) == 7
        assert len(letters) == 1


async def test_a_broken_payload_goes_to_the_dead_letters_and_harms_nothing(run: Run) -> None:
    async with run.connect("worker") as bus, run.connect("stranger") as stranger:
        for headers in (None, {"Cairn-Schema": "WorkRequested/1.0", "Cairn-Encoding": "zstd+msgpack"}):
            await stranger.connection.request(f"{run.name}.requests.x", b"\xff" * 100, headers)
        await ask(bus, 1)
        with capture_logs():
            async with handling(bus, answer):
                assert len(await first(bus, WorkReturned, 1)) == 1
                letters = await first(bus, DeadLetter, 2)
                await settled(bus)
        assert [letter.model_dump()["reason"] for letter in letters] == [
            "malformed schema header ''",
            "the signature does not fit the message, its subject and its run",
        ]


async def test_long_work_is_not_given_to_another(run: Run) -> None:
    async with run.connect("worker") as bus:
        started = asyncio.Event()
        calls = 0

        async def slow(event: WorkRequested) -> WorkReturned:
            nonlocal calls
            calls += 1
            started.set()
            await asyncio.sleep(1.2)
            return await answer(event)

        await ask(bus, 1)
        async with handling(bus, slow, ack_wait=0.5):
            await first(bus, WorkReturned, 1)
            await settled(bus)
        assert calls == 1


async def test_who_is_stopped_hands_its_messages_on_at_once(run: Run) -> None:
    async with run.connect("worker") as bus, run.connect("node") as other:
        started = asyncio.Event()

        async def never(event: WorkRequested) -> None:
            started.set()
            await asyncio.Event().wait()

        await ask(bus, 1)
        async with handling(other, never, ack_wait=30):
            await started.wait()
        async with handling(bus, answer, ack_wait=30):
            async with asyncio.timeout(5):
                await first(bus, WorkReturned, 1)
            await settled(bus)


async def test_a_message_that_kills_its_handler_is_given_up(run: Run) -> None:
    async with run.connect("worker") as bus:
        await ask(bus, 1)
        for _ in range(2):  # taken, and never heard of again
            started = asyncio.Event()

            async def die(event: WorkRequested, started: asyncio.Event = started) -> None:
                started.set()
                await asyncio.Event().wait()

            async with handling(bus, die, deliveries=2):
                await started.wait()
        with capture_logs():
            async with handling(bus, answer, deliveries=2):
                [letter] = await first(bus, DeadLetter, 1)
        assert isinstance(letter, DeadLetter)
        assert letter.reason == "its handler died each time"


async def test_handling_survives_lost_connections_and_consumers(run: Run) -> None:
    async with (
        Proxy(run.url) as proxy,
        run.connect("worker") as asker,
        Bus.connect(proxy.url, run.name, run.identity("node")) as bus,
    ):
        with capture_logs():
            async with handling(bus, answer, ack_wait=1.0):
                for at in range(4):
                    await ask(asker, 25)
                    if at % 2:
                        proxy.cut()
                    else:
                        with contextlib.suppress(nats.js.errors.NotFoundError):
                            await asker.connection.js.delete_consumer(f"{run.name}_REQUESTS", "test-handler")
                async with asyncio.timeout(20):
                    await settled(asker)


async def test_other_events_on_the_same_subject_are_let_pass(run: Run) -> None:
    async with run.connect("worker") as bus:
        await bus.publish(WorkReturned(worker="self", task="1", attempt=0, reason="x"))
        await ask(bus, 1)
        async with handling(bus, answer):
            await first(bus, WorkReturned, 2)
            await settled(bus)
        assert await bus.end("DEAD") == 0


async def test_a_result_that_nobody_would_believe_ends_the_handler(run: Run) -> None:
    async with run.connect("node") as bus, run.connect("worker") as asker:

        async def overreach(event: WorkRequested) -> Control:
            return Control(action="stop")

        await ask(asker, 1)
        subscription = Subscription(WorkRequested, "test-handler", overreach)
        with pytest.raises(Exception, match="is not trusted as operator"):
            await asyncio.wait_for(handle(bus, subscription), 5)
