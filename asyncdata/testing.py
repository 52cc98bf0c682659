"""For tests of pipelines: a clock that jumps, a contract that transformations keep, a check that nothing is left.

>>> from asyncdata.testing import check_transform
>>> check_transform(lambda ds: ds.map(lambda x: x * 2).skip(1), lambda items: [x * 2 for x in items][1:])
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import math
import os
import selectors
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import islice, product
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from asyncdata.dataset import Dataset
from asyncdata.options import Options

__all__ = ("check_transform", "leaves_nothing", "virtual_time")

END: Final = object()

Array: TypeAlias = npt.NDArray[Any]

PATIENCE: Final = 1.0
"""Seconds within which whatever a pipeline started must be gone."""

INPUTS: Final[tuple[Sequence[Any], ...]] = ((), (7,), range(10), range(300))
"""What `check_transform` feeds a transformation with unless told otherwise."""


class JumpingSelector(selectors.DefaultSelector):
    """Never wait for a timer: when nothing is ready, let the clock jump to it."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; block only where no timer would ever end the waiting."""
        ready = super().select(None if timeout is None else 0)
        if not ready and timeout is not None:
            self.now += max(timeout, 0.0)
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is that of its selector."""

    def __init__(self) -> None:
        self.clock = JumpingSelector()
        super().__init__(self.clock)

    def time(self) -> float:
        """Return the virtual time in seconds; it starts at 0."""
        return self.clock.now


def virtual_time() -> asyncio.AbstractEventLoop:
    """Return a new event loop whose clock jumps to the next timer when nothing else is ready.

    Hours of `asyncio.sleep` pass in milliseconds and in exact order. For pipelines with `Options(placement="current")`;
    threads are not waited for, so use coroutine functions.

    >>> import asyncio
    >>> with asyncio.Runner(loop_factory=virtual_time) as runner:
    ...     runner.run(asyncio.sleep(3600))
    ...     runner.get_loop().time()
    3600.0
    """
    return JumpingLoop()


@contextmanager
def leaves_nothing() -> Generator[None]:
    """Raise `AssertionError` if the body leaves a thread or file descriptor behind for longer than a second.

    Tasks end with their loop: run the loop inside the body.

    >>> with leaves_nothing():
    ...     for element in Dataset.range(10):
    ...         break
    """
    with Dataset.range(1).iterate() as elements:  # what libuv opens once for all loops is open before we look
        next(elements)
    threads, descriptors = set(threading.enumerate()), open_descriptors()
    yield
    gc.collect()
    deadline = time.monotonic() + PATIENCE
    left = [thread for thread in threading.enumerate() if thread not in threads]
    for thread in left:
        thread.join(max(0.0, deadline - time.monotonic()))
    alive = [thread.name for thread in left if thread.is_alive()]
    assert not alive, f"threads left behind: {alive}"
    opened = {fd: what for fd, what in open_descriptors().items() if descriptors.get(fd) != what}
    assert not opened, f"file descriptors left behind: {opened}"


def open_descriptors() -> dict[str, str]:
    """Return what each open file descriptor points to, where the system tells."""
    found: dict[str, str] = {}
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # the descriptor of the listing itself
            continue
    return found


def check_transform(
    transform: Callable[[Dataset[Any]], Dataset[Any]],
    meaning: Callable[[list[Any]], Iterable[Any]],
    inputs: Iterable[Sequence[Any]] = INPUTS,
) -> None:
    """Check that a transformation, as given to `Dataset.apply`, keeps what asyncdata promises of all of them.

    Its elements are those that `meaning` makes of each of the `inputs`, under `for` and `async for`, with both
    placements, with the optimizer and without; leaving it early leaves no thread, task or descriptor behind.
    Call it outside of an event loop. Raises `AssertionError` with the case that failed.
    """
    for items in inputs:
        expected = list(meaning(list(items)))
        for placement, optimize, read in product(("thread", "current"), (True, False), (read_plain, read_async)):
            options = Options(placement=placement, optimize=optimize)
            ds = Dataset.from_iterable(list(items)).apply(transform).with_options(options)
            check_reads(ds, expected, read, f"{list(items)!r:.80}, {options}, {read.__name__}")


def check_reads(
    ds: Dataset[Any], expected: list[Any], read: Callable[[Dataset[Any], int], list[Any]], case: str
) -> None:
    """Check what is read in full, and in part."""
    for count in (len(expected) + 1, len(expected) // 2):
        with leaves_nothing():
            got = read(ds, count)
        assert same(got, expected[:count]), f"{case}: got {got!r:.400}, its meaning is {expected[:count]!r:.400}"


def read_plain(ds: Dataset[Any], count: int) -> list[Any]:
    """Read up to `count` elements with a plain loop."""
    return list(islice(ds, count))


def read_async(ds: Dataset[Any], count: int) -> list[Any]:
    """Read up to `count` elements on an event loop, and see that no task is left there."""

    async def read() -> list[Any]:
        found: list[Any] = []
        async with ds.iterate() as elements:
            while len(found) < count and (element := await anext(elements, END)) is not END:
                found.append(element)
        if left := asyncio.all_tasks() - {asyncio.current_task()}:
            _, left = await asyncio.wait(left, timeout=PATIENCE)
        assert not left, f"tasks left behind: {left}"
        return found

    return asyncio.run(read())


def same(one: Any, other: Any) -> bool:
    """Tell whether two structures of arrays and objects are equal, in type and dtype too."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return same_arrays(cast("Array", one), other)
    if isinstance(one, (tuple, list)):
        parts = cast("Sequence[Any]", one)
        return len(parts) == len(other) and all(map(same, parts, other))
    if isinstance(one, dict):
        named = cast("dict[Any, Any]", one)
        return named.keys() == other.keys() and all(same(part, other[key]) for key, part in named.items())
    if dataclasses.is_dataclass(one) and not isinstance(one, type):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    return bool(one == other) or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


def same_arrays(one: Array, other: Array) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return all(map(same, one.ravel().tolist(), other.ravel().tolist()))
