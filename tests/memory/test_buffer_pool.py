"""Memory of large batches serves again, and never while somebody looks into it."""

from __future__ import annotations

import gc
import pickle
import platform
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.memory.buffer_pool import LARGE, BufferPool, empty, joined

BYTES = np.dtype(np.uint8)
MOST = 4 << 20


def address(array: Any) -> int:
    return array.ctypes.data


def test_memory_that_nobody_looks_into_serves_again() -> None:
    pool = BufferPool(MOST)
    first = pool.empty((1000, 1000), BYTES)
    where = address(first)
    del first
    assert address(pool.empty((250, 1000), np.dtype(np.float32))) == where


@pytest.mark.parametrize(
    "look",
    [
        lambda array: array[7],
        lambda array: array.reshape(-1)[3:5].view(np.int8),
        lambda array: memoryview(array)[2:],
        lambda array: np.frombuffer(memoryview(array[5]), np.uint8),
        lambda array: np.asarray(memoryview(array)[4:]),
        lambda array: pickle.PickleBuffer(array[1]),
        lambda array: np.lib.stride_tricks.sliding_window_view(array, (2, 2)),
    ],
)
def test_memory_that_somebody_looks_into_does_not(look: Any) -> None:
    pool = BufferPool(MOST)
    array = pool.empty((1000, 1000), BYTES)
    array[:] = 1
    view = look(array)
    del array
    assert pool.bytes == 0
    pool.empty((1000, 1000), BYTES)[:] = 2
    assert (np.asarray(view) == 1).all()
    del view
    gc.collect()
    assert pool.bytes > 0


def test_what_is_idle_is_bounded_and_what_was_used_last_stays() -> None:
    pool = BufferPool(MOST)
    arrays = [pool.empty((1 << 20,), BYTES) for _ in range(6)]
    last = address(arrays[0])
    while arrays:
        arrays.pop()
    assert pool.bytes == MOST == sum(memory.nbytes for memory in pool.idle)
    assert address(pool.empty((1 << 20,), BYTES)) == last


def test_what_is_larger_than_all_that_may_lie_idle_is_left_to_the_allocator() -> None:
    pool = BufferPool(MOST)
    del (array := [pool.empty((MOST + 1,), BYTES)])[0]
    assert not array
    assert pool.bytes == 0


def test_a_finalizer_does_not_wait_for_a_lock_that_its_thread_holds() -> None:
    pool = BufferPool(MOST)
    array = pool.empty((1 << 20,), BYTES)
    with pool.lock:
        del array
        assert len(pool.empty((10,), BYTES)) == 10
    assert pool.bytes == 0


def test_threads_share_a_pool() -> None:
    pool, wrong = BufferPool(MOST), list[int]()

    def work(mark: int) -> None:
        for _ in range(300):
            array = pool.empty((1 << 16,), BYTES)
            array[:] = mark
            rows = array.reshape(16, -1)[3:]
            del array
            if (rows != mark).any():
                wrong.append(mark)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert pool.bytes == sum(memory.nbytes for memory in pool.idle) <= MOST


def test_objects_are_never_put_there() -> None:
    assert (empty((LARGE,), np.dtype(object)) == None).all()  # noqa: E711


@pytest.mark.parametrize(
    "build",
    [
        lambda: [np.ones((3, LARGE)), np.zeros((1, LARGE))],
        lambda: [np.ones((3, LARGE), np.float32), np.zeros((1, LARGE), np.int64)],
        lambda: [np.ones((3, LARGE), order="F"), np.zeros((1, LARGE), order="F")],
        lambda: [np.ones((3, LARGE), "M8[s]"), np.zeros((0, LARGE), "M8[s]")],
    ],
    ids=["one type", "two types", "columns", "dates"],
)
def test_joining_is_concatenating(build: Callable[[], list[Any]]) -> None:
    arrays = build()
    found, wanted = joined(arrays), np.concatenate(arrays)
    assert found.dtype == wanted.dtype
    assert found.strides == wanted.strides
    assert found.flags.writeable
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "how", [lambda ds: ds.batch(4), lambda ds: ds.batch(8).rebatch(4), lambda ds: ds.padded_batch(4)]
)
def test_batches_and_rows_that_are_kept_stay_as_they_are(how: Any) -> None:
    pictures = ad.Dataset.range(80).map(lambda number: np.full(LARGE // 2, number % 251, np.uint8))
    rows: list[Any] = []
    for place, batch in enumerate(how(pictures)):
        rows.append(batch if place % 3 == 0 else batch[1])
    for place, row in enumerate(rows):
        wanted = 4 * place + np.arange(4)[:, None] if place % 3 == 0 else 4 * place + 1
        assert (row == wanted).all()


FAULTS = """
import resource
import threading
import numpy as np
from asyncdata.memory.buffer_pool import keep_memory_warm

def made():
    pictures = [np.ones(150_528, np.uint8) for _ in range(50)]
    pictures.reverse()  # lists let go of their last one first

def work():
    held = [np.ones(100_000, np.uint8) for _ in range(660)]
    made()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        made()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

first = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
keep_memory_warm()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - first)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about glibc's heaps of 64 MB")
def test_blocks_across_the_border_of_two_heaps_of_a_thread_are_of_memory_that_is_there() -> None:
    ran = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    keeping, working = map(int, ran.stdout.split())
    assert keeping < 100  # 8,000 if all of the block is written
    assert working < 1_000  # 16,000 if the second heap is unmapped each time
