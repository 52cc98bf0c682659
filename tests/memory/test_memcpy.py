"""Large copies: the same bytes whoever makes them, and others are kept from running only while it is short."""

from __future__ import annotations

import sys
import threading
from contextvars import copy_context

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.memory import memcpy
from asyncdata.memory.memcpy import HELP, LARGE, SHARED, SMALL, copy, copy_arrays, gather
from asyncdata.system.host_resources import lock_is_held
from tests.marks import first_by_default

DTYPES = ["u1", "?", "f2", "c16", ">i4", "M8[s]", "S3", "U2", "g", [("a", "i4"), ("b", "f8")]]


def some(shape, dtype="u1", seed=0):
    size = int(np.prod(shape))
    numbers = np.random.default_rng(seed).integers(0, 2, size)
    return numbers.astype("i4").astype(dtype if not isinstance(dtype, list) else "i4").astype(dtype).reshape(shape)


def gathered(parts):
    first = parts[0]
    out = np.empty((sum(map(len, parts)), *first.shape[1:]), first.dtype)
    gather(parts, out)
    np.testing.assert_array_equal(out, np.concatenate(parts))


def in_thread(job):
    """Help in another thread, at once."""
    threading.Thread(target=job).start()


def before(job):
    """Do all of it before the one who asked begins."""
    thread = threading.Thread(target=job)
    thread.start()
    thread.join()


def unable(_):
    """Have no thread that could help."""
    raise RuntimeError("can't start new thread")


class Offers:
    """Helpers to whom a function offers the jobs."""

    def __init__(self, submit, count=1):
        self.submit = submit
        self.count = count


HELPERS = {
    "nobody": None,
    "one who never comes": lambda _: None,
    "a thread": in_thread,
    "a quick one": before,
    "none": unable,
    "four": in_thread,
}


@pytest.fixture(autouse=True)
def calm(monkeypatch):
    """Have nobody who computes in Python, to begin with."""
    monkeypatch.setattr(memcpy.COPIER, "wary", 0)


@pytest.fixture(params=HELPERS)
def help_with(request):
    submit = HELPERS[request.param]
    token = HELP.set(submit and Offers(submit, 4 if request.param == "four" else 1))
    yield
    HELP.reset(token)


@pytest.mark.parametrize("dtype", first_by_default(DTYPES, 3), ids=str)
@pytest.mark.parametrize("each", first_by_default([SHARED + 12, SMALL, LARGE, 100]))
def test_rows_of_any_dtype(dtype, each, help_with):
    size = each // np.dtype(dtype).itemsize
    gathered([some((1, size), dtype, seed) for seed in range(3)])


@pytest.mark.parametrize("sizes", [[1], [0, 3], [2, 0, 1], [1, 70_000], [SHARED + 1], [SHARED, 5, LARGE + 3, 0]])
def test_parts_of_any_size(sizes, help_with):
    gathered([some((size,), seed=size) for size in sizes])


def test_parts_that_do_not_lie_in_one_piece(help_with):
    picture = some((3, 600, 700, 3))
    gathered([picture[:, :500, :400], picture[:, 1:501, 300:]])
    gathered([np.asfortranarray(some((2, 1000, 600), seed=seed)) for seed in range(3)])
    large = some((2, 2 * SHARED))
    gathered([large[:, ::2], large[:, 1::2]])


def test_parts_that_may_not_be_written_to(help_with):
    parts = [some((1, SHARED)), some((1, SHARED), seed=1)]
    for part in parts:
        part.flags.writeable = False
    gathered(parts)


@pytest.mark.parametrize("size", [0, 1, SMALL, LARGE, SHARED - 1, SHARED, SHARED + 13])
def test_bytes(size, help_with):
    source, target = some((size,)), bytearray(size)
    copy(memoryview(target), memoryview(source))
    assert target == source.tobytes()


def test_help_that_comes_too_late_does_nothing():
    jobs = []
    source, target = some((SHARED,)), bytearray(SHARED)
    context = copy_context()
    context.run(HELP.set, Offers(jobs.append))
    context.run(copy, memoryview(target), memoryview(source))
    target[:] = bytes(SHARED)
    for job in jobs:
        job()
    assert len(jobs) == 1
    assert not any(target)


def test_a_copy_that_was_late_is_followed_by_some_that_nobody_helps_with(monkeypatch):
    """Each time that two threads change places, one that computes may come between them."""
    jobs = []
    source, target = some((SHARED,)), bytearray(SHARED)
    context = copy_context()
    context.run(HELP.set, Offers(jobs.append))
    monkeypatch.setattr(memcpy, "LATE", -1)
    for _ in range(memcpy.WARY + 1):
        target[:] = bytes(SHARED)
        context.run(copy, memoryview(target), memoryview(source))
        assert target == source.tobytes()
    assert len(jobs) == 2


@pytest.mark.skipif(not lock_is_held(), reason="threads do not take turns")
def test_no_thread_that_computes_comes_between_rows():
    """Each time it would keep the lock for `sys.getswitchinterval()`, 5 ms.

    Where this thread loses its core for longer than that, another one comes between all the same.
    """
    turns, over = [0], threading.Event()

    def compute():
        while not over.is_set():
            turns[0] += 1

    parts = [some((1, SMALL * 2), seed=seed) for seed in range(16)]
    out = np.empty((16, SMALL * 2), np.uint8)
    thread = threading.Thread(target=compute)
    interval = sys.getswitchinterval()
    try:
        thread.start()
        sys.setswitchinterval(0.1)
        gather(parts, out)  # once, and the thread is found to compute
        undisturbed = 0
        for _ in range(20):
            seen = turns[0]
            gather(parts, out)
            undisturbed += turns[0] == seen
        assert undisturbed > 0
    finally:
        sys.setswitchinterval(interval)
        over.set()
        thread.join()


@pytest.mark.parametrize("placement", ["thread", "current", "process"])
def test_a_batch_of_large_arrays_is_what_it_was(placement):
    arrays = [some((SHARED + 5,), seed=seed) for seed in range(5)]
    batches = list(ad.Dataset.from_list(arrays).batch(2).with_options(ad.Options(placement=placement)))
    np.testing.assert_array_equal(np.concatenate(batches), np.stack(arrays))


def large(number):
    """Give the same array again and again, as one that was made before."""
    return np.full(2 * SHARED + number, number, np.uint8)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_large_arrays_are_copied_by_as_many_threads_as_there_are(count, monkeypatch):
    monkeypatch.setattr(memcpy.COPIER, "held_up", lambda begin: False)  # by what else the machine does
    jobs = []

    def help_soon(job):
        jobs.append(thread := threading.Thread(target=job))
        thread.start()

    for dtype in (">f8", "f4", "?"):
        source = some((7, 1 << 20), dtype)
        pairs = [
            (np.empty_like(one, one.dtype.newbyteorder("=")), one) for one in (source, source[:, ::2], source[0, :0])
        ]
        copy_arrays(pairs, Offers(help_soon, count))
        for target, one in pairs:
            np.testing.assert_array_equal(target, one)
        assert len(jobs) == count
        while jobs:
            jobs.pop().join()


def test_large_results_of_workers_are_what_they_were():
    results = ad.Dataset.range(6).map(large, executor="process", num_parallel_calls=2)
    for number, result in enumerate(results):
        np.testing.assert_array_equal(result, large(number))
