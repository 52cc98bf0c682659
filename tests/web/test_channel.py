"""What is sent to a channel comes out once and in order, from any loop or thread; a full one holds up who sends."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import asyncdata as ad
from tests.reference import Boom
from tests.running import WAYS, results

pytestmark = pytest.mark.usefixtures("nothing_left")

Run = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]


def in_thread(body: Callable[[], Coroutine[Any, Any, Any]]) -> threading.Thread:
    thread = threading.Thread(target=lambda: asyncio.run(body()))
    thread.start()
    return thread


@pytest.mark.parametrize("read", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("size", [1, 7, 100])
def test_what_is_sent_on_another_loop_comes_in_order(read: Callable[..., list[Any]], size: int) -> None:
    channel = ad.Channel(max_items=150)

    async def serve() -> None:
        async with channel:
            for start in range(0, 700, size):
                await channel.send(range(start, start + size))

    thread = in_thread(serve)
    found = read(ad.Dataset.from_channel(channel).map(lambda x: x + 1))
    thread.join()
    assert found == list(range(1, 701))


def test_senders_of_several_loops_and_threads() -> None:
    channel = ad.Channel(max_items=20)

    async def serve(name: int) -> None:
        for number in range(100):
            await channel.send([(name, number)])

    def feed() -> None:
        number = 0
        while number < 100:
            try:
                channel.send_nowait([(9, number)])
            except ad.ChannelFull:
                asyncio.run(channel.send([(9, number)]))
            number += 1

    threads = [in_thread(lambda name=name: serve(name)) for name in range(3)]
    threads.append(threading.Thread(target=feed))
    threads[-1].start()
    with ad.Dataset.from_channel(channel).iterate() as items:
        found = [next(items) for _ in range(400)]
        channel.close()
        assert list(items) == []
    for thread in threads:
        thread.join()
    for name in (0, 1, 2, 9):
        assert [number for sender, number in found if sender == name] == list(range(100))


def test_a_service_and_its_pipeline_on_one_loop(run: Run) -> None:
    async def body() -> list[Any]:
        channel = ad.Channel(max_items=10)

        async def serve() -> None:
            async with channel:
                for number in range(100):
                    await channel.send([number])

        async with asyncio.TaskGroup() as group:
            group.create_task(serve())
            return [len(batch) async for batch in ad.Dataset.from_channel(channel).batch(30)]

    assert run(body) == [30, 30, 30, 10]


def test_an_item_is_given_as_soon_as_it_is_there(run: Run) -> None:
    async def body() -> None:
        channel = ad.Channel()
        async with ad.Dataset.from_channel(channel).iterate() as items:
            for number in range(3):
                await channel.send([number])
                assert await anext(items) == number

    run(body)


def test_a_full_channel_holds_up_who_sends_in_turn(run: Run) -> None:
    async def body() -> None:
        channel = ad.Channel(max_items=4)
        await channel.send([*"abcd"])
        tasks = [asyncio.create_task(channel.send([*items])) for items in ("e", "fgh", "i")]
        await asyncio.sleep(0)
        assert channel.stats()["waiting"] == 3
        with pytest.raises(ad.ChannelFull, match=r"holds 4 of 4 items.* no space for 1 more"):
            channel.send_nowait([*"x"])
        tasks[1].cancel()
        async with ad.Dataset.from_channel(channel).iterate() as items:
            found = [await anext(items) for _ in range(6)]
        await asyncio.gather(tasks[0], tasks[2])
        assert "".join(found) == "abcdei"
        assert tasks[1].cancelled()
        counts = {"items": 0, "bytes": 0, "sent": 6, "taken": 6, "dropped": 0, "waiting": 0}
        assert channel.stats().items() >= counts.items()

    run(body)


def test_who_is_cancelled_first_in_line_lets_the_next_have_its_turn(run: Run) -> None:
    async def body() -> None:
        channel = ad.Channel(max_items=3)
        await channel.send([*"abc"])
        big, small = asyncio.create_task(channel.send([*"def"])), asyncio.create_task(channel.send(["g"]))
        await asyncio.sleep(0)
        async with ad.Dataset.from_channel(channel).prefetch(1).iterate() as items:
            assert await anext(items) == "a"
            big.cancel()
            assert [await anext(items) for _ in range(3)] == ["b", "c", "g"]
        await small

    run(body)


def test_bytes_are_bounded_too() -> None:
    channel = ad.Channel(max_bytes=1000)
    channel.send_nowait(["a"], nbytes=900)
    with pytest.raises(ad.ChannelFull, match="900 of 1000 bytes"):
        channel.send_nowait(["b"], nbytes=200)
    with pytest.raises(ad.PlanError, match="send them in parts"):
        channel.send_nowait(["b"], nbytes=2000)
    with pytest.raises(ad.PlanError, match="send them in parts"):
        ad.Channel(max_items=2).send_nowait([1, 2, 3])


def test_a_closed_channel_takes_nothing_and_is_read_once(run: Run) -> None:
    channel = ad.Channel(max_items=1)
    channel.send_nowait([1])

    async def body() -> None:
        waiting = asyncio.create_task(channel.send([2]))
        await asyncio.sleep(0)
        channel.close()
        with pytest.raises(ad.ClosedError, match="closed"):
            await waiting
        with pytest.raises(ad.ClosedError):
            channel.send_nowait([3])

    run(body)
    ds = ad.Dataset.from_channel(channel)
    assert results(ds) == [1]
    with pytest.raises(ad.PlanError, match="read to its end"):
        list(ds)


def test_a_failure_comes_after_what_was_sent() -> None:
    channel = ad.Channel()
    channel.send_nowait([1, 2])
    channel.fail(Boom("the sensor"))
    channel.close()
    ds = ad.Dataset.from_channel(channel)
    with ds.iterate() as items:
        assert [next(items), next(items)] == [1, 2]
        with pytest.raises(Boom) as caught:
            next(items)
        assert caught.value.__notes__ == ["in from_channel(Channel), element 2"]
        assert list(items) == []


def test_stale_items_are_dropped_and_counted() -> None:
    channel, policy = ad.Channel(), [2]
    for version in (1, 2, 1, 3, None):
        channel.send_nowait([version] * 2, version=version)
    ds = ad.Dataset.from_channel(channel, min_version=lambda: policy[0])
    with ds.with_options(ad.Options(disabled_rules=("inject_prefetch",))).iterate() as items:
        assert [next(items) for _ in range(2)] == [2, 2]
        policy[0] = 4
        channel.send_nowait([4], version=4)
        channel.close()
        assert list(items) == [None, None, 4]
    assert channel.stats()["dropped"] == 6


def test_items_that_came_too_long_ago_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    channel, now = ad.Channel(), [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    channel.send_nowait([*"old"])
    now[0] = 104.0
    channel.send_nowait([*"new"])
    now[0] = 106.0
    channel.close()
    assert list(ad.Dataset.from_channel(channel, max_age=5)) == list("new")
    assert channel.stats()["dropped"] == 3


def test_leaving_ends_the_wait() -> None:
    channel = ad.Channel()
    channel.send_nowait([1])
    with ad.Dataset.from_channel(channel).iterate() as items:
        assert next(items) == 1
    assert not channel.stats()["items"]


@pytest.mark.parametrize("items", [{"x": 1}, "ab", b"ab", 5])
def test_one_item_is_no_list(items: Any) -> None:
    with pytest.raises(ad.PlanError, match="needs a list of items"):
        ad.Channel().send_nowait(items)


@pytest.mark.parametrize("how", [{"version": "new"}, {"version": 1 << 63}, {"nbytes": -1}])
def test_wrong_versions_and_sizes(how: dict[str, Any]) -> None:
    with pytest.raises(ad.PlanError, match=f"send.{next(iter(how))}="):
        ad.Channel().send_nowait([1], **how)


def test_what_cannot_be_done_says_so() -> None:
    channel = ad.Channel()
    channel.send_nowait(range(4))
    ds = ad.Dataset.from_channel(channel)
    with ds.iterate() as items:
        next(items)
        state = items.state_dict()
    with pytest.raises(ad.ResumeError, match="does not store"):
        next(iter(ds.iterate(state=state)))
    with pytest.raises(ad.StructureError, match="would lose it"):
        ds.head()
    with pytest.raises(TypeError, match="belongs to its process"):
        pickle.dumps(channel)
    assert ds.plan.process_bound_reason == "a Channel belongs to its process"
    with pytest.raises(ad.PlanError, match="max_age"):
        ad.Dataset.from_channel(channel, max_age=-1)
    with pytest.raises(ad.PlanError, match="min_version"):
        ad.Dataset.from_channel(channel, min_version="new")  # type: ignore[arg-type]
    with pytest.raises(ad.PlanError, match="needs a Channel"):
        ad.Dataset.from_channel([1])  # type: ignore[arg-type]
