"""Several consumers of one iteration."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.tee import TeeState
from asyncdata.testing import leaves_nothing
from tests.reference import Boom, failed
from tests.running import taken, taken_async


class Counted:
    """A function that knows how often it was called, and fails for one element."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: int) -> int:
        self.calls += 1
        if x == 7:
            raise Boom(x)
        return x


EXPECTED = [failed(Boom(7)) if x == 7 else x for x in range(300)]


def in_threads(work: list[Callable[[], Any]]) -> list[Any]:
    results: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda number=number, one=one: results.update({number: one()}))
        for number, one in enumerate(work)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[number] for number in range(len(work))]


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("placement", ["thread", "current"])
def test_every_consumer_gets_everything_in_one_loop(count: int, size: int, placement: Any) -> None:
    counted = Counted()

    async def body() -> list[Any]:
        ds = ad.Dataset.range(300).map(counted).with_options(ad.Options(placement=placement))
        return await asyncio.gather(*map(taken_async, ds.tee(count, size)))

    with leaves_nothing():
        assert asyncio.run(body()) == [EXPECTED] * count
    assert counted.calls == 300


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_every_consumer_gets_everything_in_threads(count: int, size: int) -> None:
    counted = Counted()
    with leaves_nothing():
        parts = ad.Dataset.range(300).map(counted).tee(count, size)
        assert in_threads([lambda part=part: taken(part) for part in parts]) == [EXPECTED] * count
        del parts
    assert counted.calls == 300


def test_nobody_runs_further_ahead_than_the_buffer() -> None:
    async def body() -> None:
        first, second = ad.Dataset.counter().tee(2, 4)
        assert await taken_async(first, 4) == [0, 1, 2, 3]
        ahead = asyncio.ensure_future(anext(first))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not ahead.done()
        assert await anext(second) == 0
        assert await ahead == 4
        await first.aclose()
        await second.aclose()

    asyncio.run(body())


@pytest.mark.parametrize("size", [1, 2, 7, 16])
@pytest.mark.parametrize("ahead", [0, 1, 3, 20])
def test_each_element_that_who_is_behind_takes_lets_the_others_go_on_by_one(size: int, ahead: int) -> None:
    """However many it has at hand: first nobody waits, which lets it take more at once."""
    first, second = ad.Dataset.range(200).tee(2, size)
    with leaves_nothing(), first, second:
        for number in range(ahead):
            assert (next(second), next(first)) == (number, number)
        found: SimpleQueue[int] = SimpleQueue()
        thread = threading.Thread(target=lambda: deque(map(found.put, first), 0))
        thread.start()
        assert [found.get(timeout=60) for _ in range(size)] == [*range(ahead, ahead + size)]
        for number in range(ahead, 200):
            assert found.empty()
            assert next(second) == number
            if number + size < 200:
                assert found.get(timeout=60) == number + size
        thread.join()


def test_elements_that_are_there_are_taken_without_asking_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    look = TeeState.look
    monkeypatch.setattr(TeeState, "look", lambda shared, number: [looks.append(number), look(shared, number)][1])
    for first, second in zip(*ad.Dataset.range(10_000).tee(2, 1000), strict=True):
        assert first == second
    assert len(looks) < 1_000


@pytest.mark.parametrize("nothing", [None, 0, (), ""])
def test_elements_that_are_nothing_are_given_out_too(nothing: Any) -> None:
    for size in (1, 9):
        first, second = ad.Dataset.from_list([nothing] * 5).tee(2, size)
        assert [*zip(first, second, strict=True)] == [(nothing, nothing)] * 5


def test_a_consumer_may_go_on_in_another_loop() -> None:
    one, other = ad.Dataset.range(4).tee(2, buffer_size=1)

    async def two() -> list[int]:
        found = [await anext(one)]
        waiting = asyncio.ensure_future(anext(one))
        await asyncio.sleep(0)
        assert not waiting.done()
        return [*found, await anext(other), await waiting, await anext(other)]

    assert [asyncio.run(two()), asyncio.run(two())] == [[0, 0, 1, 1], [2, 2, 3, 3]]


def test_who_leaves_early_holds_up_nobody() -> None:
    async def body() -> list[Any]:
        first, second, third = ad.Dataset.range(300).map(Counted()).tee(3, 2)

        async def leave(part: Any) -> list[Any]:
            async with part:
                return await taken_async(part, 5)

        return await asyncio.gather(taken_async(first), leave(second), leave(third))

    with leaves_nothing():
        assert asyncio.run(body()) == [EXPECTED, EXPECTED[:5], EXPECTED[:5]]


def test_who_is_forgotten_holds_up_nobody() -> None:
    parts = list(ad.Dataset.range(50).tee(2, 2))
    del parts[1]
    gc.collect()
    assert taken(parts[0]) == list(range(50))


def raised_to(elements: Any, kept: list[Any]) -> None:
    """Have an error raised where a variable still holds its consumer when that is left."""
    try:
        next(elements)
    except Boom as error:
        kept.append(error)


@pytest.mark.parametrize("size", [1, 30])
def test_who_met_an_error_and_is_forgotten_holds_up_nobody_without_the_garbage_collector(size: int) -> None:
    """Also where the error is kept by another consumer, which it was raised to later."""
    first: list[Any] = []
    others: list[Any] = []
    parts = list(ad.Dataset.range(7, 50).map(Counted()).tee(2, size))
    forgotten = weakref.ref(parts[1])
    gc.disable()
    try:
        raised_to(parts.pop(), first)
        first.clear()
        raised_to(parts[0], others)
        assert forgotten() is None
        assert taken(parts[0]) == list(range(8, 50))
    finally:
        gc.enable()
    assert [*map(failed, others)] == [failed(Boom(7))]


def test_an_error_that_is_kept_does_not_keep_the_pipeline() -> None:
    kept: list[Any] = []
    with leaves_nothing():
        parts = list(ad.Dataset.counter().map(lambda x: 1 // x).tee(2))
        for part in parts:
            with pytest.raises(ZeroDivisionError) as caught:
                next(part)
            kept.append(caught.value)
        del part, caught
        parts.clear()
    assert kept[0] is kept[1]


def test_an_error_tells_where_it_came_from_and_not_whom_it_was_raised_to_before() -> None:
    parts = list(ad.Dataset.range(7, 9).map(Counted()).tee(3))
    for part in parts:
        with pytest.raises(Boom) as caught:
            next(part)
        names = [entry.name for entry in caught.traceback]
        assert names[-1] == "__call__"
        assert names.count("__next__") == 1


def test_who_is_cancelled_while_it_reads_leaves_it_to_the_others() -> None:
    async def slow(x: int) -> int:
        await gate.wait()
        return x

    async def body() -> list[Any]:
        first, second = ad.Dataset.range(3).map(slow).with_options(ad.Options(placement="current")).tee(2)
        readers = [asyncio.ensure_future(taken_async(part)) for part in (first, second)]
        for _ in range(50):
            await asyncio.sleep(0)
        readers[0].cancel()
        await asyncio.wait([readers[0]])
        gate.set()
        await first.aclose()
        return await readers[1]

    gate = asyncio.Event()
    assert asyncio.run(body()) == [0, 1, 2]


def test_the_last_one_to_leave_ends_the_pipeline() -> None:
    with leaves_nothing():
        first, second = ad.Dataset.counter().tee(2)
        assert (taken(first, 2), taken(second, 3)) == ([0, 1], [0, 1, 2])
        first.close()
        assert taken(second, 1) == [3]
        second.close()
        for part in (first, second):
            with pytest.raises(ad.ClosedError):
                next(part)


def test_dropping_all_consumers_leaves_nothing() -> None:
    with leaves_nothing():
        parts = ad.Dataset.counter().tee(3)
        next(parts[0])
        del parts


def test_after_the_end_it_stays_at_the_end() -> None:
    (only,) = ad.Dataset.range(1).tee(1)
    assert [list(only), list(only)] == [[0], []]


def test_each_tee_is_an_epoch() -> None:
    ds = ad.Dataset.range(30).shuffle(30, seed=1)
    assert [taken(ds.tee(1)[0]) for _ in range(2)] == [
        list(ds) for ds in [ad.Dataset.range(30).shuffle(30, seed=1)] * 2
    ]


@pytest.mark.parametrize("wrong", [{"n": 0}, {"n": 1.5}, {"n": 2, "buffer_size": 0}])
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ad.PlanError, match=r"tee\(" + list(wrong)[-1]):
        ad.Dataset.range(1).tee(**wrong)


def test_what_ended_the_pipeline_is_raised_again_and_again_though_others_are_behind() -> None:
    broken = ad.Dataset.range(9).filter(lambda x: x < 3).assert_cardinality(5)
    ahead, behind = broken.tee(2, buffer_size=3)
    with ahead, behind:
        assert [next(ahead) for _ in range(2)] == [0, 1]
        assert next(behind) == 0
        assert next(ahead) == 2
        for _ in range(9):
            with pytest.raises(ad.StageError, match="ended after 3"):
                next(ahead)
        assert [next(behind) for _ in range(2)] == [1, 2]
        for _ in range(9):
            with pytest.raises(ad.StageError, match="ended after 3"):
                next(behind)


def test_each_consumer_tells_what_the_pipeline_does() -> None:
    first, second = ad.Dataset.range(10).batch(5).tee(2)
    assert len([*first]) == len([*second]) == 2
    assert first.stats().elements == second.stats().elements == second.monitor()().elements == 2
    assert first.bottleneck().loads == second.bottleneck().loads
