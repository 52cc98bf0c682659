"""The window cuts its input into groups that leave no worker without one."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.executors.function_call import Call, ChunkSizer, Deadline
from asyncdata.executors.group_work import GroupWork
from asyncdata.executors.inflight_window import InFlightWindow
from asyncdata.executors.workers import Group, ThreadWorkers
from asyncdata.runtime.block import Block, Demand, Failure
from asyncdata.runtime.memory_budget import MemoryBudget
from asyncdata.runtime.meter import Meters
from asyncdata.runtime.tickets import Ordinals
from tests.reference import Boom
from tests.running import impatient

__all__ = ()


def scope_with(budget: MemoryBudget, loop: asyncio.AbstractEventLoop | None = None) -> SimpleNamespace:
    """What a window needs of a scope."""
    owned, meter = SimpleNamespace(budget=budget), Meters().output
    return SimpleNamespace(loop=loop or asyncio.get_running_loop(), owned=owned, meter=meter, sharing=None)


def idle_lanes(workers: int, pace: ChunkSizer, submitted: list[Group]) -> SimpleNamespace:
    """Lanes that take groups and never do them."""
    return SimpleNamespace(
        count=workers, pace=pace, tuned=False, trying=False, submit=lambda group, _: submitted.append(group)
    )


def cut(workers: int, megabytes: int, count: int) -> list[int]:
    """Return the sizes of the groups that are made of `count` elements, of which many would be a group."""
    submitted: list[Group] = []
    pace = ChunkSizer(1.0)
    pace.group = 1000
    lanes = idle_lanes(workers, pace, submitted)
    element = np.zeros(megabytes * 10**6, np.uint8)
    loop = asyncio.new_event_loop()
    try:
        scope = scope_with(MemoryBudget(64 << 20), loop)
        window = InFlightWindow(cast("Any", scope), cast("Any", lanes), ordered=True)
        window.known = True
        window.weigh(Block([element], Ordinals(0, 1)))
        window.widen()
        window.admit(Block([element] * count, Ordinals(0, count)))
    finally:
        loop.close()
    return [len(group.what) for group in submitted]


@pytest.mark.parametrize(
    ("workers", "megabytes", "count", "sizes"),
    [(1, 40, 2, [1, 1]), (1, 16, 4, [2, 2]), (2, 8, 8, [2, 2, 2, 2]), (1, 1, 66, [33, 33]), (2, 0, 100, [50, 50])],
)
def test_elements_of_which_few_may_be_in_flight_are_shared_out_to_all_groups(
    workers: int, megabytes: int, count: int, sizes: list[int]
) -> None:
    assert cut(workers, megabytes, count) == sizes


def test_the_rest_of_a_batch_that_was_begun_is_shared_out_to_all_workers() -> None:
    """A consumer waits for the first batch; the others are made by one worker each."""
    submitted: list[Group] = []
    lanes = idle_lanes(2, ChunkSizer(1.0), submitted)
    loop = asyncio.new_event_loop()
    try:
        scope = scope_with(MemoryBudget(), loop)
        window = InFlightWindow(cast("Any", scope), cast("Any", lanes), ordered=True, rows=32)
        window.admit(Block(list(range(3)), Ordinals(0, 3)))
        window.learnt.weight, window.known, lanes.pace.each = 10_000, True, 1e-3
        window.widen()
        window.admit(Block(list(range(93)), Ordinals(3, 96)))
    finally:
        loop.close()
    assert [len(group.what) for group in submitted] == [1, 1, 1, 15, 14, 32, 32]


async def test_groups_stay_whole_while_all_workers_are_busy() -> None:
    """What has become free is a group and a half: to cut it for two workers would make two small ones, and so on."""
    submitted: list[Group] = []
    pace = ChunkSizer(1.0)
    lanes = idle_lanes(2, pace, submitted)
    scope = scope_with(MemoryBudget())
    window = InFlightWindow(cast("Any", scope), cast("Any", lanes), ordered=True)
    window.known, window.most, pace.group = True, 1000, 20
    window.widen()
    window.admit(Block([*range(50)], Ordinals(0, 50)))
    assert window.may_feed()
    assert window.free == 20
    window.admit(Block([*range(50, 70)], Ordinals(50, 70)))
    assert [len(group.what) for group in submitted] == [20, 20, 10, 20]


async def test_groups_are_of_one_size_where_batches_are_large() -> None:
    """Of elements of which a batch is many groups, no group is cut in two because there is not another such one."""
    submitted: list[Group] = []
    pace = ChunkSizer(1.0)
    lanes = idle_lanes(2, pace, submitted)
    scope = scope_with(MemoryBudget())
    window = InFlightWindow(cast("Any", scope), cast("Any", lanes), ordered=True, rows=1000)
    window.known, window.most, pace.group = True, 1000, 200
    window.widen()
    window.admit(Block([*range(780)], Ordinals(0, 780)))
    assert [len(group.what) for group in submitted] == [200, 200, 200]
    assert sum(map(len, window.rest)) == 180
    window.admit(Block([*range(780, 800)], Ordinals(780, 800)))
    assert [len(group.what) for group in submitted] == [200, 200, 200, 200]


async def test_what_is_read_ends_with_a_batch_that_workers_make_whole() -> None:
    """Else the few that are left go to a worker that idles, and the next batch is put together from two groups."""
    pace = ChunkSizer(1.0)
    lanes = idle_lanes(1, pace, [])
    scope = scope_with(MemoryBudget())
    window = InFlightWindow(cast("Any", scope), cast("Any", lanes), ordered=True, rows=32)
    window.learnt.weight, window.most, window.known, pace.each, pace.group = 10_000, 1000, True, 1e-3, 4
    window.widen()
    assert window.may_feed()
    assert window.free == 64
    window.row = 2
    assert window.may_feed()
    assert window.free == 62
    window.rest = [Block([0], Ordinals(0, 1))]
    assert window.may_feed()
    assert window.free == 61


@pytest.mark.parametrize(
    ("weight", "each", "trying", "whole"),
    [
        (150_000, 5e-3, False, 3),  # more than a second for each batch, of elements that are large for their time
        (150_000, 1e-3, True, 0),  # AUTOTUNE wants to know soon
        (150_000, 1e-4, True, 3),
        (10_000, 1e-3, False, 0),  # a copy more is little beside the work
        (10_000, 3e-4, False, 3),
        (150_000, 7e-3, False, 0),
    ],
)
async def test_workers_make_batches_whole_that_do_not_take_long(
    weight: int, each: float, trying: bool, whole: int
) -> None:
    lanes = SimpleNamespace(count=2, pace=(pace := ChunkSizer(1.0)), tuned=trying, trying=trying)
    scope = scope_with(MemoryBudget())
    window = InFlightWindow(cast("Any", scope), cast("Any", lanes), ordered=True, rows=256)
    window.learnt.weight, window.known, pace.each = weight, True, each
    assert window.wanted_batches() == whole


def window_of_batches(
    workers: int, each: float, rows: int = 256, budget: int | None = None, weight: int = 150_000
) -> tuple[InFlightWindow, list[Group]]:
    """Return a window of which it is known how long an element takes and how large it is, and its groups."""
    submitted: list[Group] = []
    lanes = idle_lanes(workers, pace := ChunkSizer(16e-3), submitted)
    window = InFlightWindow(cast("Any", scope_with(MemoryBudget(budget))), cast("Any", lanes), True, rows)
    window.known, pace.each, pace.group, window.learnt.weight = True, each, max(1, int(16e-3 / each)), weight
    window.weigh(Block([0], Ordinals(0, 1)))
    window.widen()
    return window, submitted


@pytest.mark.parametrize("workers", [2, 16, 64])
@pytest.mark.parametrize("each", [15e-6, 2e-3, 5e-3])
async def test_each_worker_makes_complete_batches_however_many_workers_there_are(workers: int, each: float) -> None:
    window, submitted = window_of_batches(workers, each, budget=8 << 30)
    batches = 2 * workers
    for batch in range(batches):
        window.admit(Block(list(range(256)), Ordinals(256 * batch, 256 * (batch + 1))))
    sizes = [len(group.what) for group in submitted]
    assert sizes[-workers:] == [256] * workers
    assert sum(sizes) == 256 * batches


async def test_the_first_batches_of_a_run_are_shared_by_fewer_and_fewer_workers() -> None:
    """A reader does not wait until one worker has made a batch, and the pieces of each batch grow."""
    window, submitted = window_of_batches(16, 5e-3)
    for batch in range(18):
        window.admit(Block(list(range(256)), Ordinals(256 * batch, 256 * (batch + 1))))
    pieces = [[len(group.what) for group in submitted if group.what.tickets[0] // 256 == batch] for batch in range(18)]
    assert [len(piece) for piece in pieces] == [16, 8, 6, 4, 4, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1]
    assert {sum(piece) for piece in pieces} == {256}


@pytest.mark.parametrize(
    ("each", "weight", "most"), [(15e-6, 5000, 256), (15e-6, 150_000, 60), (2e-3, 150_000, 16), (0.2, 150_000, 1)]
)
async def test_the_first_batch_of_a_run_comes_soon(each: float, weight: int, most: int) -> None:
    """One worker makes it if that takes no longer than ten milliseconds, in memory that is new; else several do."""
    window, submitted = window_of_batches(16, each, weight=weight)
    window.admit(Block(list(range(256)), Ordinals(0, 256)))
    assert max(len(group.what) for group in submitted) == most


@pytest.mark.parametrize("budget", [0, 1 << 20, 100 << 20, 1000 << 20])
async def test_a_small_budget_makes_pieces_smaller(budget: int) -> None:
    """Two batches of 38.4 MB for each worker do not fit."""
    window, submitted = window_of_batches(16, 15e-6, budget=budget)
    assert window.may_feed()
    window.admit(Block(list(range(256)), Ordinals(0, 256)))
    sizes = [len(group.what) for group in submitted]
    assert max(sizes) * 150_000 <= max(150_000, budget // 32)
    assert window.bound * 150_000 <= max(32 * 150_000, budget)  # two elements for each worker in any case


@contextmanager
def sizes_of_groups() -> Iterator[list[int]]:
    """The sizes of the groups that threads are given."""
    sizes: list[int] = []
    submit = ThreadWorkers.submit

    def noted(lanes: ThreadWorkers, group: Group, finished: Any) -> None:
        sizes.append(len(group.what))
        submit(lanes, group, finished)

    with mock.patch.object(ThreadWorkers, "submit", noted):
        yield sizes


def test_a_filter_that_drops_everything_is_called_on_groups_as_any_other() -> None:
    """Its window need not see a result to know that more may be in flight."""
    with sizes_of_groups() as sizes:
        assert list(ad.Dataset.range(20_000).filter(lambda _: False, 2)) == []
    assert max(sizes) > 1


def test_an_epoch_begins_with_what_earlier_ones_have_learnt() -> None:
    """One worker makes whole batches from the start on, and groups of single elements still grow from one."""
    elements = ad.Dataset.range(64).map(lambda number: np.full(100_000, number), 1)
    with sizes_of_groups() as sizes:
        for ds, first in ((elements.batch(8), 1), (elements.batch(8), 8), (elements.batch(4), 4), (elements, 1)):
            sizes.clear()
            found = [int(row[0]) for part in ds for row in part.reshape(-1, 100_000)]
            assert found == [*range(64)]
            assert sizes[0] == first
            assert first == 1 or {size % first for size in sizes} == {0}  # of two batches where elements are quick


async def test_a_worker_that_finds_elements_dearer_just_as_more_are_read_changes_nothing() -> None:
    """What it finds shrinks what may be in flight, from its own thread; a range that is asked for less than nothing
    would go back."""
    pace, wanted = ChunkSizer(1.0), list[int]()
    lanes = idle_lanes(2, pace, [])
    scope = scope_with(MemoryBudget())
    window = InFlightWindow(cast("Any", scope), cast("Any", lanes), ordered=True)
    window.known, window.most, pace.group = True, 1000, 100
    window.widen()
    demand = Demand()

    async def source() -> AsyncGenerator[Block, None]:
        for start in range(0, 300, 100):
            wanted.append(demand.items)
            pace.group = 1
            yield Block([*range(start, start + 100)], Ordinals(start, start + 100))

    await window.feed(source(), demand)
    assert wanted == [400, 300, 200]


@pytest.mark.parametrize(("calls", "deterministic"), [(1, True), (2, True), (2, False)])
def test_what_is_done_of_a_group_is_there_before_a_slow_element(calls: int, deterministic: bool) -> None:
    """Groups have grown to hundreds of elements when it comes."""
    come = threading.Event()

    def slow(number: int) -> int:
        if number == 4000:
            assert come.wait(60), "the elements before it have not come"
        return number

    ds = ad.Dataset.range(5000).map(slow, calls, deterministic=deterministic)
    found: list[int] = []
    with impatient(), ds.iterate() as elements:
        for number in elements:
            found.append(number)
            if len(found) == 4000:
                come.set()
    assert sorted(found) == [*range(5000)]
    assert found == sorted(found) or not deterministic


@pytest.mark.parametrize("batched", [False, True])
def test_one_thread_makes_all_calls_in_order_whatever_it_gives_up(batched: bool) -> None:
    called: list[int] = []

    def noted(number: int) -> int:
        called.append(number)
        return number

    ds = ad.Dataset.range(3000).map(noted, 1)
    with impatient():
        found = [*(ds.batch(10).unbatch() if batched else ds)]
    assert called == found == [*range(3000)]


async def test_what_waits_does_not_keep_what_was_handed_out_of_it() -> None:
    """Of a group that was given up; it may wait for long, and elements may be large."""
    submitted: list[Group] = []
    scope = scope_with(MemoryBudget())
    window = InFlightWindow(cast("Any", scope), cast("Any", idle_lanes(1, ChunkSizer(1.0), submitted)), ordered=True)
    window.put_back(Block([np.zeros(10) for _ in range(10)], Ordinals(0, 10)))
    window.hand_out()
    elements = [weakref.ref(group.what.items[0]) for group in submitted]
    assert len(elements) == 2
    submitted.clear()
    for _ in elements:
        window.groups.popleft()
    assert [element() for element in elements] == [None, None]


@pytest.mark.parametrize("failed", [False, True])
def test_what_is_given_up_has_no_function_behind_it(failed: bool) -> None:
    """Other lanes may work on it, in processes to which what one function returns for the next cannot be sent."""
    called: list[int] = []
    work = GroupWork((Call("map", called.append), Call("map", lambda _: called.append(-1))))
    items: list[Any] = [*range(10)]
    if failed:
        items[1] = Failure(Boom(1))
    result, count = work.attempt(Block(items, Ordinals(0, 10), failed), Deadline(3, 0.0))
    assert (len(result), count) == (6, 6)
    first = [0, 2, 3, 4, 5] if failed else [0, 1, 2, 3, 4, 5]
    assert called == first + [-1] * len(first)


@pytest.mark.parametrize("calls", [None, 1, 2])
def test_each_function_is_called_once_for_each_element_whatever_is_given_up(calls: int | None) -> None:
    """Also where one of several functions in a row was done, and the next was not."""
    called: list[tuple[str, int]] = []

    def noted(name: str, number: int) -> int:
        called.append((name, number))
        if name == "g" and number % 100 == 7:
            raise Boom(number)
        return number

    ds = ad.Dataset.range(2000).map(partial(noted, "f"), calls).filter(lambda number: number % 3 > 0)
    ds = ds.map(partial(noted, "g"), calls).ignore_errors()
    wanted = [number for number in range(2000) if number % 3]
    with impatient():
        assert [*ds] == [number for number in wanted if number % 100 != 7]
    assert sorted(called) == [("f", number) for number in range(2000)] + [("g", number) for number in wanted]


async def test_what_was_given_up_counts_as_many_elements_as_are_left_of_it() -> None:
    """Workers that do not say how many they did have done all."""
    lanes = idle_lanes(1, ChunkSizer(1.0), [])
    window = InFlightWindow(cast("Any", scope_with(MemoryBudget())), cast("Any", lanes), ordered=True)
    window.share = 3
    window.put_back(Block([*range(8)], Ordinals(0, 8)))
    for _ in range(3):
        window.hand_out()
    assert [(group.what.items, group.count) for group in window.groups] == [
        ([0, 1, 2], 3),
        ([3, 4, 5], 3),
        ([6, 7], 2),
    ]


def finish(window: InFlightWindow, group: Group, result: Block | None = None) -> None:
    """Report a group as a worker does."""
    group.result, group.done = group.what if result is None else result, True
    window.finished(group)


async def waiting_reader(
    submitted: list[Group], count: int, least: int, ordered: bool
) -> tuple[InFlightWindow, asyncio.Task[Block | None]]:
    """Return a window of two workers and so many groups of one element, and a task that reads it."""
    lanes = idle_lanes(2, ChunkSizer(0.0), submitted)
    lanes.read = lambda _: None
    window = InFlightWindow(cast("Any", scope_with(MemoryBudget())), cast("Any", lanes), ordered)
    want = Demand(8)
    want.least = least
    reader = asyncio.create_task(window.collect(want))
    await asyncio.sleep(0)
    for number in range(count):  # also what is read while the reader waits counts
        window.admit(Block([number], Ordinals(number, number + 1)))
    return window, reader


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize(
    ("count", "least", "woken"), [(4, 8, 2), (4, 1, 1), (4, 2, 2), (8, 3, 3), (3, 8, 1), (2, 8, 1)]
)
async def test_a_reader_is_woken_once_for_all_that_it_needs_before_a_worker_is_idle(
    ordered: bool, count: int, least: int, woken: int
) -> None:
    submitted: list[Group] = []
    window, reader = await waiting_reader(submitted, count, least, ordered)
    for group in submitted[:woken]:
        assert window.reader.armed
        finish(window, group)
    assert not window.reader.armed
    block = await reader
    assert block is not None
    assert block.items == [*range(woken)]


@pytest.mark.parametrize("cause", ["failed", "left", "error"])
async def test_what_did_not_succeed_wakes_a_reader_at_once(cause: str) -> None:
    submitted: list[Group] = []
    window, reader = await waiting_reader(submitted, 4, 8, ordered=True)
    group = submitted[0]
    if cause == "error":
        group.error = Boom(0)
    if cause == "left":
        group.count = 0
    finish(window, group, Block([Failure(Boom(0))] if cause == "failed" else [], Ordinals(0, 1), cause == "failed"))
    assert not window.reader.armed
    with pytest.raises(Boom) if cause == "error" else nullcontext():
        assert await reader is not None
