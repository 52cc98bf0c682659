"""The queue between stages, its depth, and the signals of its two sides."""

from __future__ import annotations

import asyncio
import threading

import pytest

from asyncdata.options import AUTOTUNE
from asyncdata.runtime.block import Block
from asyncdata.runtime.memory_budget import MemoryBudget
from asyncdata.runtime.queue import BufferSize, LoopQueue, LoopSignal, ThreadSignal
from asyncdata.runtime.tickets import Ordinals


def block(*items: int) -> Block:
    return Block(list(items), Ordinals(0, len(items)))


def queue_of(depth: int) -> LoopQueue:
    loop = asyncio.get_running_loop()
    return LoopQueue(BufferSize(depth), LoopSignal(loop), LoopSignal(loop))


async def test_room_is_what_the_depth_leaves_in_chunks() -> None:
    queue = queue_of(8)
    assert await queue.wait_for_capacity() == 2
    queue.put(block(*range(7)))
    assert await queue.wait_for_capacity() == 1


async def test_a_writer_waits_for_room_and_is_woken_by_a_reader() -> None:
    queue = queue_of(1)
    queue.put(block(0))
    waiting = asyncio.ensure_future(queue.wait_for_capacity())
    await asyncio.sleep(0)
    assert not waiting.done()
    assert queue.take() is not None
    assert await waiting == 1


async def test_with_no_depth_only_a_waiting_reader_makes_room() -> None:
    queue = queue_of(0)
    waiting = asyncio.ensure_future(queue.wait_for_capacity())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.request_more()
    assert await waiting == 1


@pytest.mark.parametrize("left", [0, -1])
async def test_room_that_is_gone_as_soon_as_it_is_seen_is_no_end(left: int) -> None:
    """A reader in another thread doubles a depth, and halves it again if the budget has not so much."""
    queue = queue_of(1)
    queue.put(block(0))
    may_write = queue.may_write

    def shrinking() -> bool:
        queue.depth.items = 2
        ready = may_write()
        queue.depth.items = 1 + left
        del queue.may_write
        return ready

    queue.may_write = shrinking
    waiting = asyncio.ensure_future(queue.wait_for_capacity())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.depth.items = 1
    queue.take()
    assert await waiting == 1


async def test_what_is_ready_is_taken_together_and_cut_to_the_limit() -> None:
    queue = queue_of(100)
    for start in range(3):
        queue.put(block(start, start + 10))
    first, second = queue.take_ready(5), queue.take_ready(5)
    assert first is not None
    assert first.items == [0, 10, 1, 11, 2]
    assert second is not None
    assert second.items == [12]
    assert queue.take_ready(5) is None


async def test_stopping_wakes_both_sides() -> None:
    queue = queue_of(1)
    queue.put(block(0))
    writer = asyncio.ensure_future(queue.wait_for_capacity())
    await asyncio.sleep(0)
    queue.stop()
    assert await writer == 0
    assert queue.may_read()


async def test_the_end_is_said_once() -> None:
    queue = queue_of(1)
    error = ValueError("first")
    queue.finish(error)
    queue.finish(KeyError("second"))
    assert queue.error is error


def test_a_thread_is_woken_by_a_loop_and_a_loop_by_a_thread() -> None:
    async def echo(asked: list[int], answered: list[int], here: LoopSignal, there: ThreadSignal) -> None:
        for number in range(100):
            await here.until(lambda number=number: len(asked) > number)
            answered.append(asked[number] * 2)
            there.notify()

    loop = asyncio.new_event_loop()
    here, there = LoopSignal(loop, threadsafe=True), ThreadSignal()
    asked: list[int] = []
    answered: list[int] = []
    thread = threading.Thread(target=lambda: loop.run_until_complete(echo(asked, answered, here, there)))
    thread.start()
    for number in range(100):
        asked.append(number)
        here.notify()
        there.until(lambda number=number: len(answered) > number)
    thread.join()
    loop.close()
    assert answered == [2 * number for number in range(100)]


@pytest.mark.parametrize("threadsafe", [True, False])
async def test_notifying_a_closed_loop_does_nothing(threadsafe: bool) -> None:
    loop = asyncio.new_event_loop()
    signal = LoopSignal(loop, threadsafe=threadsafe)
    signal.armed = True
    signal.future = loop.create_future()
    signal.future.add_done_callback(print)  # as the task that waits has done
    loop.close()
    signal.notify()
    assert not signal.armed


def test_a_fixed_depth_never_changes() -> None:
    depth = BufferSize(3)
    depth.filled = True
    depth.each = 1e-6
    depth.starved()
    assert (depth.items, depth.chunk) == (3, 1)


def test_a_depth_that_tunes_itself_doubles_when_it_was_full_and_is_found_empty() -> None:
    depth = BufferSize(AUTOTUNE)
    assert depth.items == 2
    depth.filled = True
    depth.starved()
    assert depth.items == 4
    depth.starved()
    assert depth.items == 4


def test_a_depth_that_tunes_itself_grows_while_it_holds_next_to_no_work() -> None:
    depth = BufferSize(AUTOTUNE)
    found: list[int] = []
    for depth.each in (4e-3, 1.2e-3, 1.2e-3, 1.2e-3, 4e-6, 4e-6, 4e-6, 0.0):
        depth.starved()
        found.append(depth.items)
    assert found == [2, 6, 12, 12, 96, 768, 1536, 4096]


@pytest.mark.parametrize(("size", "expected"), [(1 << 10, [8, 8, 24, 48, 96, 96]), (1 << 20, [2, 2, 6, 12, 24, 24])])
def test_a_depth_that_tunes_itself_holds_less_work_of_what_no_cache_holds(size: int, expected: list[int]) -> None:
    depth = BufferSize(AUTOTUNE, MemoryBudget(1 << 40).share())
    depth.weigh(Block([bytes(size)], range(1)))
    found: list[int] = []
    for depth.each in (1e-3, 1e-3, 3e-4, 3e-4, 1e-4, 1e-4):
        depth.starved()
        found.append(depth.items)
    assert found == expected


def test_a_reader_that_takes_all_there_is_lets_a_depth_grow() -> None:
    depth = BufferSize(AUTOTUNE)
    found: list[int] = []
    for written, now in zip((0, 1, 1, 2, 3), (0.0, 4e-3, 8e-3, 8.4e-3, 4.0), strict=True):
        depth.emptied(written, now)
        found.append(depth.items)
    assert found == [2, 2, 2, 16, 16]


def test_a_depth_that_tunes_itself_is_bounded_in_bytes() -> None:
    """What it holds, and the quarter that the block being made may have, are within the budget; one item always is."""
    budget = MemoryBudget(165 << 20)
    depth = BufferSize(AUTOTUNE, budget.share())
    depth.items = 4096
    depth.weigh(Block([bytes(16 << 20)], range(1)))
    assert (depth.items, depth.chunk) == (8, 2)
    other = BufferSize(AUTOTUNE, budget.share())
    other.weigh(Block([bytes(16 << 20)], range(1)))
    assert (other.items, other.chunk) == (1, 1)
    assert BufferSize(AUTOTUNE, budget.share(), (depth.items, depth.weight)).items == 1
    del depth
    other.filled = True
    other.starved()
    assert other.items == 2


def test_a_depth_does_not_grow_to_much_because_it_holds_little_work() -> None:
    depth = BufferSize(AUTOTUNE, MemoryBudget(1 << 40).share())
    depth.weigh(Block([bytes(24 << 20)], range(1)))
    depth.each = 0.0
    depth.starved()
    assert depth.items == 2
    depth.filled = True
    depth.starved()
    assert depth.items == 4
