"""How functions are called: results and failures in their places, groups of a useful size, threads that end."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any

import pytest

from asyncdata.executors.function_call import Call, ChunkSizer, ThreadPool, describe
from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.tickets import Numbered, Ordinals


def run(fn: Any, *items: Any) -> list[Any]:
    result = Call("map", fn).run(Block(list(items), Ordinals(0, len(items))))
    assert result.failed == any(type(item) is Failure for item in result.items)
    return [item.error if type(item) is Failure else item for item in result.items]


def third(x: int) -> int:
    if x % 3 == 0:
        raise ValueError(x)
    return x


def test_failures_stand_in_their_places_and_the_rest_goes_on() -> None:
    found = run(third, 0, 1, 2, 3, 4)
    assert [type(item) for item in found] == [ValueError, int, int, ValueError, int]
    assert found[3].__notes__ == [f"in map(third) at test_function_call.py:{third.__code__.co_firstlineno}, element 3"]


def test_stop_iteration_from_a_function_is_an_error_and_ends_nothing() -> None:
    def stop(x: int) -> int:
        return next(iter(())) if x == 1 else x

    found = run(stop, 0, 1, 2)
    assert [found[0], found[2]] == [0, 2]
    assert isinstance(found[1], RuntimeError)


def test_tuples_are_unpacked_also_beside_other_elements() -> None:
    assert run(lambda *a: len(a), (1, 2), (1, 2, 3)) == [2, 3]
    assert run(lambda *a: len(a), (1, 2), [1, 2, 3], 5) == [2, 1, 1]


def test_a_failed_element_is_passed_on_and_the_function_not_called_with_it() -> None:
    failure = Failure(KeyError("before"))
    result = Call("map", lambda x: x + 1).run(Block([1, failure, 3], Ordinals(0, 3), True))
    assert (result.items, result.failed) == ([2, failure, 4], True)


def test_a_coroutine_that_nobody_would_await_is_refused() -> None:
    async def fetch(x: int) -> int:
        return x

    found = run(lambda x: fetch(x), 1)
    assert isinstance(found[0], TypeError)
    assert "async def" in str(found[0])


def test_a_user_function_that_raises_cancelled_error_fails_alone() -> None:
    def cancelled(x: int) -> int:
        raise asyncio.CancelledError

    assert [type(item) for item in run(cancelled, 1, 2)] == [asyncio.CancelledError] * 2


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (third, "map(third)"),
        (functools.partial(third, 1), "map(partial(third))"),
        (len, "map(len)"),
        (str.upper, "map(str.upper)"),
        (lambda x: x, "map(<lambda>)"),
    ],
)
def test_functions_have_the_names_that_a_reader_calls_them_by(fn: Any, name: str) -> None:
    assert Call("map", fn).name == name


def test_objects_with_an_async_call_are_coroutine_functions() -> None:
    class Fetch:
        async def __call__(self, x: int) -> int:
            return x

    assert Call("map", Fetch()).is_async
    assert not Call("map", third).is_async


@pytest.mark.parametrize(
    ("ticket", "words"),
    [
        (5, "element 5"),
        ((2, 7), "element (2, 7)"),
        (Ordinals(3, 6), "elements 3 to 5"),
        (Ordinals(4, 5), "element 4"),
        ((Ordinals(3, 6), 1), "element ([3, 4, 5], 1)"),
        (((Ordinals(0, 100), 7), 1), "element (([0, ..., 99], 7), 1)"),
        (Numbered(5, Ordinals(0, 2)), "element 5"),
        ((Numbered(5, 2), 0), "element (5, 0)"),
    ],
)
def test_tickets_in_words(ticket: Any, words: str) -> None:
    assert describe(ticket) == words


def test_groups_grow_from_one_by_doubling_to_what_fits_the_time() -> None:
    pace = ChunkSizer(1e-3)
    sizes: list[int] = []
    for _ in range(6):
        sizes.append(pace.group)
        pace.measured(pace.group, pace.group * 1e-4)
    assert sizes == [1, 2, 4, 8, 10, 10]
    pace.measured(10, 1.0)
    assert pace.group == 1


def test_jobs_that_end_at_once_are_all_counted() -> None:
    """Else ever more threads would seem to be busy; on a free-threaded interpreter `+=` of two threads is one."""
    threads: list[threading.Thread] = []

    def start(work: Any, name: str) -> None:
        threads.append(threading.Thread(target=work, name=name))
        threads[-1].start()

    workers = ThreadPool(start, 8, "test")
    for _ in range(20_000):
        workers.submit(lambda: None)
    workers.finish()
    for thread in threads:
        thread.join(60)
    assert workers.finished == 20_000


def test_workers_start_as_needed_and_end_when_told() -> None:
    started: list[threading.Thread] = []

    def start(work: Any, name: str) -> None:
        started.append(threading.Thread(target=work, name=name))
        started[-1].start()

    gate, done = threading.Barrier(3), threading.Semaphore(0)
    workers = ThreadPool(start, 2, "test")
    for _ in range(2):
        workers.submit(lambda: done.release() if gate.wait(60) >= 0 else None)
    gate.wait(60)
    workers.submit(done.release)
    assert all(done.acquire(timeout=60) for _ in range(3))
    workers.stop()
    for thread in started:
        thread.join(60)
    assert [thread.is_alive() for thread in started] == [False, False]
