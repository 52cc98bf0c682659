"""Copies of arrays: large ones are copied by two threads, as one core does not use the full memory bandwidth."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from itertools import pairwise
from threading import Lock
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ("HELP", "Help", "copy", "gather")

Array: TypeAlias = npt.NDArray[Any]

Help: TypeAlias = Callable[[Callable[[], None]], object]
"""Offers a job to another thread, which may or may not run it."""

HELP: Final[ContextVar[Help | None]] = ContextVar("HELP", default=None)
"""The helper for copies that are made in a context, if there is one."""

SMALL: Final = 1 << 16
"""Arrays of fewer bytes are copied before another thread is awake."""

LARGE: Final = 1 << 20
"""Copies of arrays of this many bytes always release the interpreter's lock."""

SHARED: Final = 4 << 20
"""Arrays of this many bytes are copied faster by two threads."""

STRIPS: Final = 5
"""An odd number: the helper starts later, so the asking thread copies the last strip and need not wait to be woken."""

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
    else:
        one_by_one(parts, out)


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
    size = source.nbytes
    if size < LARGE:
        target[:] = source
        return
    help_with = HELP.get() if size >= SHARED else None
    into, of = np.frombuffer(target, np.uint8), np.frombuffer(source, np.uint8)
    if help_with is None or COPIER.is_wary():
        np.copyto(into, of)
        return
    begin, ends = time.perf_counter(), [size * count // STRIPS for count in range(STRIPS + 1)]
    task = CopyTask([(into[begin:end], of[begin:end]) for begin, end in pairwise(ends)])
    with suppress(RuntimeError):  # no thread can be started
        help_with(task.help)
    task.finish()
    COPIER.held_up(begin + size * SLOW)


class CopyTask:
    """A copy in strips, each made by the thread that takes it first: the asking thread or the helper."""

    def __init__(self, strips: list[tuple[Array, Array]]) -> None:
        self.strips = strips
        self.helped = Lock()
        self.done = Lock()
        self.done.acquire()

    def work(self) -> None:
        """Copy strips that no thread has taken; NumPy releases the interpreter's lock meanwhile."""
        with suppress(IndexError):
            while True:
                np.copyto(*self.strips.pop())

    def help(self) -> None:
        """Copy strips in the helper's thread, unless all are taken."""
        if self.helped.acquire(blocking=False):
            try:
                self.work()
            finally:
                self.done.release()

    def finish(self) -> None:
        """Copy strips, and wait for the strip of the helper."""
        try:
            self.work()
        finally:
            if not self.helped.acquire(blocking=False):
                self.done.acquire()


def memory_of(array: Array) -> memoryview:
    """Return the bytes of a contiguous array."""
    try:
        return array.data.cast("B")
    except (TypeError, ValueError):  # a dtype that memoryview does not support
        return array.reshape(-1).view(np.uint8).data
