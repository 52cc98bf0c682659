"""Copying: what is large is copied by two threads, as one core alone does not use what the memory can do."""

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
"""Has a job done in another thread, some time or never."""

HELP: Final[ContextVar[Help | None]] = ContextVar("HELP", default=None)
"""What helps with the copies that are made in a context, if somebody does."""

SMALL: Final = 1 << 16
"""Bytes of an array that are copied before another thread is awake."""

LARGE: Final = 1 << 20
"""Bytes of an array while which is copied other threads may always run."""

SHARED: Final = 4 << 20
"""Bytes of an array that two threads copy quicker than one."""

STRIPS: Final = 5
"""An odd number: who helps begins later, so that who asked has the last strip, and waits for nobody to wake it."""

LATE: Final = 2e-3
USUAL: Final = 2e-4
SLOW: Final = 2e-10
"""Seconds by which a copy is late if another thread computed meanwhile; and what a row, or a byte, takes at most."""

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
    """Copies rows of batches, and learns whether another thread wants Python's lock.

    NumPy gives it up for each array. A thread that computes in Python takes it then, and keeps it for five milliseconds
    (`sys.setswitchinterval`): a batch of 256 images, 3 ms of work, would take more than a second. Where that shows,
    rows are copied without letting go; where nobody computes that would keep the consumer from what is there already.
    """

    def __init__(self) -> None:
        self.wary = 0  # for so many copies, the next one among them

    def gather(self, parts: Sequence[Array], out: Array) -> None:
        """Copy rows; the first one shows how."""
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
        """Return whether the next copy is one of those for which the lock is not given up more often than need be."""
        self.wary = max(0, self.wary - 1)
        return self.wary > 0

    def held_up(self, begin: float) -> bool:
        """Return whether something that began then took so long that others have had the lock."""
        if late := time.perf_counter() - begin > LATE:
            self.wary = WARY
        return late


COPIER: Final = StripedCopier()


def one_by_one(parts: Sequence[Array], out: Array) -> None:
    """Copy arrays of which the large ones alone let other threads run."""
    target, end, row = memory_of(out), 0, 0
    for part in parts:
        begin, end = end, end + part.nbytes
        if part.flags.c_contiguous:
            copy(target[begin:end], memory_of(part))
        else:
            out[row : row + len(part)] = part
        row += len(part)


def copy(target: memoryview, source: memoryview) -> None:
    """Copy bytes into as many others."""
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
    """A copy in strips, of which each is made by whoever comes for it: the thread that asked, or another that helps."""

    def __init__(self, strips: list[tuple[Array, Array]]) -> None:
        self.strips = strips
        self.helped = Lock()
        self.done = Lock()
        self.done.acquire()

    def work(self) -> None:
        """Make what nobody makes yet; NumPy lets other threads run meanwhile."""
        with suppress(IndexError):
            while True:
                np.copyto(*self.strips.pop())

    def help(self) -> None:
        """Do so in another thread, unless that comes too late."""
        if self.helped.acquire(blocking=False):
            try:
                self.work()
            finally:
                self.done.release()

    def finish(self) -> None:
        """Do so, and wait for what another thread is at."""
        try:
            self.work()
        finally:
            if not self.helped.acquire(blocking=False):
                self.done.acquire()


def memory_of(array: Array) -> memoryview:
    """Return the bytes of an array that lies in one piece."""
    try:
        return array.data.cast("B")
    except (TypeError, ValueError):  # a dtype that memoryview does not know
        return array.reshape(-1).view(np.uint8).data
