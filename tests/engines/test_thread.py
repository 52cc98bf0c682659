"""Engines with a thread of their own: which plans need an event loop there, and how those without one are left."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextvars import ContextVar
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.iterator import Reader
from asyncdata.testing import leaves_nothing
from tests.running import WAYS

pytestmark = pytest.mark.usefixtures("nothing_left")

SEEN: ContextVar[str] = ContextVar("SEEN")


def has_loop(_: Any) -> bool:
    """Tell whether an event loop is running in this thread, which is an engine's."""
    assert threading.current_thread().name == "asyncdata-engine"
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def awaited(x: Any) -> Any:
    return x


NUMBERS = ad.Dataset.range(20)


@pytest.mark.parametrize(
    ("ds", "looped"),
    [
        (NUMBERS.map(has_loop), False),
        (NUMBERS.map(has_loop).shuffle(4).repeat(2).prefetch(3), False),
        (NUMBERS.prefetch(3).map(has_loop), True),
        (NUMBERS.map(awaited).map(has_loop), True),
        (NUMBERS.map(abs, num_parallel_calls=2).map(has_loop), True),
        (ad.Dataset.from_generator(lambda: iter(range(3))).map(has_loop), True),
        (NUMBERS.flat_map(lambda _: NUMBERS).map(has_loop), True),
    ],
    ids=lambda value: value.explain().splitlines()[0] if isinstance(value, ad.Dataset) else None,
)
@pytest.mark.parametrize("way", WAYS[:2], ids=lambda way: way.__name__)
def test_a_loop_is_there_where_something_may_wait(ds: ad.Dataset[bool], looped: bool, way: Any) -> None:
    assert set(way(ds.with_options(ad.Options(placement="thread")))) == {looped}


def test_a_function_may_run_a_loop_of_its_own() -> None:
    assert list(NUMBERS.take(3).map(lambda x: asyncio.run(awaited(x)))) == [0, 1, 2]


def test_functions_see_the_context_in_which_the_iterator_began() -> None:
    SEEN.set("here")
    with NUMBERS.map(lambda _: SEEN.get("nothing")).iterate() as found:
        assert next(found) == "here"


def test_no_more_is_made_than_the_buffer_holds() -> None:
    made, full = list[int](), threading.Event()

    def count(x: int) -> int:
        made.append(x)
        if len(made) == 5:
            full.set()
        return x

    with ad.Dataset.counter().map(count).prefetch(4).iterate() as found:
        assert next(found) == 0
        assert full.wait(60)
        assert made == [0, 1, 2, 3, 4]


async def test_what_gives_nothing_ends_when_its_consumer_leaves() -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def nothing(x: int) -> bool:
        if x == 1000:
            loop.call_soon_threadsafe(begun.set)
        return False

    async with ad.Dataset.counter().filter(nothing).iterate() as found:
        waiting = asyncio.ensure_future(anext(found))
        await begun.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


def test_what_ends_the_pipeline_is_raised_again_and_again() -> None:
    ds = NUMBERS.filter(lambda x: x < 3).assert_cardinality(2)
    with ds.iterate() as found:
        assert [next(found), next(found)] == [0, 1]
        for _ in range(2):
            with pytest.raises(ad.StageError, match="there are more elements"):
                next(found)


def test_closed_by_another_thread_between_two_steps_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    enter = Reader.enter

    def closed_behind(self: Reader) -> None:
        enter(self)
        thread = threading.Thread(target=self.leave)
        thread.start()
        thread.join()

    monkeypatch.setattr(Reader, "enter", closed_behind)
    with pytest.raises(ad.ClosedError):
        next(iter(NUMBERS))


@pytest.mark.parametrize("ds", [NUMBERS, NUMBERS.map(awaited)], ids=["by hand", "loop"])
def test_where_there_can_be_no_more_threads_it_is_said_again_and_again(
    ds: ad.Dataset[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch, ds.iterate() as found:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                next(found)


@pytest.mark.parametrize("ds", [ad.Dataset.counter(), ad.Dataset.counter().map(awaited)], ids=["by hand", "loop"])
def test_left_before_its_thread_runs_it_makes_nothing(ds: ad.Dataset[int], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    start = threading.Thread.start

    def left_first(self: threading.Thread) -> None:
        if self.name == "asyncdata-engine":
            found.close()
        start(self)

    monkeypatch.setattr(threading.Thread, "start", left_first)
    found = ds.map(made.append).iterate()
    with leaves_nothing(), pytest.raises(ad.ClosedError):
        next(found)
    assert made == []


LOOPS = """
import asyncio, sys, threading
from contextlib import suppress

sys._is_gil_enabled = lambda: False
from asyncdata.engines.thread import new_loop

def wake(loop, go):
    go.wait()
    with suppress(RuntimeError):  # it is closed
        while True:
            loop.call_soon_threadsafe(int)

for _ in range(200):
    loop, go = new_loop(), threading.Barrier(3)
    threads = [threading.Thread(target=wake, args=(loop, go)) for _ in range(2)]
    for thread in threads:
        thread.start()
    go.wait()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    for thread in threads:
        thread.join()
"""


@pytest.mark.slow
def test_a_loop_may_be_woken_while_it_is_closed() -> None:
    """One of uvloop's alone ends the process with a segmentation fault, on a free-threaded interpreter."""
    done = subprocess.run([sys.executable, "-c", LOOPS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
