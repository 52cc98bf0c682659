"""Copies of arrays: large ones are copied by several threads, as one core does not use the full memory bandwidth.

Reasons and measurements: docs/design.md, "Memory".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from threading import Lock
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ("HELP", "Helpers", "copy", "copy_arrays", "gather", "helper_count")

Array: TypeAlias = npt.NDArray[Any]

Strip: TypeAlias = Callable[[], object]
"""Copies a part of a large copy."""


class Helpers(Protocol):
    """Threads that may help with a copy, at most `count` of them."""

    @property
    def count(self) -> int: ...

    def submit(self, job: Callable[[], None]) -> object:
        """Offer a job to a thread, which may or may not run it."""
        ...


HELP: Final[ContextVar[Helpers | None]] = ContextVar("HELP", default=None)
"""The helpers for copies that are made in a context, if there are some."""


def helper_count(cores: int) -> int:
    """Return how many threads help with a copy: one for two cores, which one core does not keep busy."""
    return cores // 2


SMALL: Final = 1 << 16
"""Arrays of fewer bytes are copied before another thread is awake."""

LARGE: Final = 1 << 20
"""Copies of arrays of this many bytes always release the interpreter's lock."""

SHARED: Final = 4 << 20
"""Arrays of this many bytes are copied faster by several threads."""

LEAST_STRIP: Final = 1 << 19
"""Bytes of a strip: a shorter one is copied before another thread is awake."""

LATE: Final = 2e-3
USUAL: Final = 2e-4
SLOW: Final = 2e-10
"""Seconds: a copy is `LATE` if another thread computed meanwhile; a row takes at most `USUAL`, a byte `SLOW`."""

WARY: Final = 33


def gather(parts: Sequence[Array], out: Array) -> None:
    """Copy arrays into `out`, one after another along the first axis, as `numpy.concatenate` does.

    All have its dtype, which holds no objects, and `out` is in row-major order.
    """
    each = out.nbytes // max(1, len(parts))
    if each < SMALL:
        np.concatenate(parts, out=out)
    elif each < LARGE:
        COPIER.gather(parts, out)
    elif all(part.flags.c_contiguous for part in parts):
        copy_arrays(list(rows_for(parts, out)), HELP.get())
    else:
        one_by_one(parts, out)


def rows_for(parts: Sequence[Array], out: Array) -> Iterator[tuple[Array, Array]]:
    """Yield the rows of `out` for each part, and the part."""
    row = 0
    for part in parts:
        yield out[row : row + len(part)], part
        row += len(part)


class StripedCopier:
    """Copies rows of batches, and detects whether another thread wants the interpreter's lock.

    NumPy releases the lock for each array. A thread that computes in Python then takes it, and holds it for five
    milliseconds (`sys.setswitchinterval`): a batch of 256 images, 3 ms of work, would take more than a second. If that
    is detected, rows are copied without releasing the lock. If no other thread computes, holding the lock would only
    keep the consumer from elements that are ready.
    """

    def __init__(self) -> None:
        self.wary = 0  # the number of next copies that hold the lock

    def gather(self, parts: Sequence[Array], out: Array) -> None:
        """Copy rows; the time of the first one decides how."""
        if self.is_wary():
            one_by_one(parts, out)
            return
        begin, first = time.perf_counter(), len(parts[0])
        out[:first] = parts[0]
        if self.held_up(begin):
            one_by_one(parts[1:], out[first:])
        elif len(parts) > 1:
            np.concatenate(parts[1:], out=out[first:])
            self.held_up(begin + len(parts) * USUAL)

    def is_wary(self) -> bool:
        """Return whether the next copy must release the lock as rarely as possible."""
        self.wary = max(0, self.wary - 1)
        return self.wary > 0

    def held_up(self, begin: float) -> bool:
        """Return whether a copy since `begin` took so long that another thread must have had the lock."""
        if late := time.perf_counter() - begin > LATE:
            self.wary = WARY
        return late


COPIER: Final = StripedCopier()


def one_by_one(parts: Sequence[Array], out: Array) -> None:
    """Copy arrays one by one; only large ones release the lock."""
    target, end, row = memory_of(out), 0, 0
    for part in parts:
        begin, end = end, end + part.nbytes
        if part.flags.c_contiguous:
            copy(target[begin:end], memory_of(part))
        else:
            out[row : row + len(part)] = part
        row += len(part)


def copy(target: memoryview, source: memoryview) -> None:
    """Copy bytes to a target of the same size."""
    if source.nbytes < LARGE:
        target[:] = source
    else:
        copy_arrays([(np.frombuffer(target, np.uint8), np.frombuffer(source, np.uint8))], HELP.get())


def copy_arrays(pairs: Sequence[tuple[Array, Array]], helpers: Helpers | None) -> None:
    """Copy the second array of each pair to the first one, which has its shape; much data with the help of threads."""
    size = sum([target.nbytes for target, _ in pairs])
    if helpers is None or not helpers.count or size < SHARED or COPIER.is_wary():
        for pair in pairs:
            np.copyto(*pair)
        return
    begin, each = time.perf_counter(), strip_size(size, helpers.count)
    task = CopyTask([strip for target, source in pairs for strip in strips_of(target, source, each)])
    task.run(helpers)
    COPIER.held_up(begin + size * SLOW)


def strip_size(size: int, helpers: int) -> int:
    """Return the bytes of a strip, of which each thread copies about two.

    They are an odd number: helpers start later, so the asking thread copies the last strip and need not wait to be
    woken.
    """
    return max(LEAST_STRIP, -(-size // (2 * helpers + 3)))


def strips_of(target: Array, source: Array, size: int) -> Iterator[Strip]:
    """Yield copies of the parts of an array, of about `size` bytes each."""
    if target.flags.c_contiguous and source.flags.c_contiguous:
        target, source = target.reshape(-1), source.reshape(-1)
    count = -(-target.nbytes // size) if target.ndim else 1
    step = max(1, -(-len(target) // count)) if count > 1 else 0
    if not step:
        yield partial(np.copyto, target, source)
        return
    for start in range(0, len(target), step):
        yield partial(np.copyto, target[start : start + step], source[start : start + step])


class CopyTask:
    """A copy in strips, each made by the thread that takes it first: the asking thread or a helper."""

    def __init__(self, strips: list[Strip]) -> None:
        self.strips = strips

    def run(self, helpers: Helpers) -> None:
        """Copy all strips; return when those that helpers have begun are copied, too."""
        helping = [Helping(self) for _ in range(min(helpers.count, len(self.strips) - 1))]
        try:
            with suppress(RuntimeError):  # no thread can be started
                for each in helping:
                    helpers.submit(each.run)
            self.work()
        finally:
            for each in helping:
                each.finish()

    def work(self) -> None:
        """Copy strips that no thread has taken; NumPy releases the interpreter's lock meanwhile."""
        with suppress(IndexError):
            while True:
                self.strips.pop()()


class Helping:
    """The part of one helper in a copy."""

    def __init__(self, task: CopyTask) -> None:
        self.task = task
        self.begun = Lock()
        self.done = Lock()
        self.done.acquire()

    def run(self) -> None:
        """Copy strips in the helper's thread, unless the copy is over."""
        if self.begun.acquire(blocking=False):
            try:
                self.task.work()
            finally:
                self.done.release()

    def finish(self) -> None:
        """Wait for the helper's strip if it has begun one, and let it begin no more."""
        if not self.begun.acquire(blocking=False):
            self.done.acquire()


def memory_of(array: Array) -> memoryview:
    """Return the bytes of a contiguous array."""
    try:
        return array.data.cast("B")
    except (TypeError, ValueError):  # a dtype that memoryview does not support
        return array.reshape(-1).view(np.uint8).data
