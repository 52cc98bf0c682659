"""Ways to run a dataset to its end (or to leave it before), failures in the places of their elements."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import asyncdata as ad
from asyncdata.executors import function_call
from asyncdata.executors.process import task
from tests.reference import failed

__all__ = (
    "WAYS",
    "collect",
    "impatient",
    "read_async",
    "read_plain",
    "results",
    "said",
    "taken",
    "taken_async",
    "unnamed",
)

MOST = 5000
"""More elements than any test delivers: what goes on after them goes on for ever."""


def read_plain(ds: ad.Dataset, most: int = MOST) -> list[Any]:
    """Read with `next`, at most `most` elements, and leave."""
    with ds.iterate() as elements:
        return taken(elements, most)


def taken(elements: Iterator[Any], most: int = MOST) -> list[Any]:
    """At most so many more elements of an iterator, failures in their places."""
    found: list[Any] = []
    while len(found) < most:
        try:
            found.append(next(elements))
        except StopIteration:
            break
        except Exception as error:
            found.append(failed(error))
    return found


async def collect(ds: ad.Dataset, most: int = MOST) -> list[Any]:
    """Read with `anext`, at most `most` elements, and leave."""
    async with ds.iterate() as elements:
        return await taken_async(elements, most)


async def taken_async(elements: AsyncIterator[Any], most: int = MOST) -> list[Any]:
    """The same as `taken`, by `anext`."""
    found: list[Any] = []
    while len(found) < most:
        try:
            found.append(await anext(elements))
        except StopAsyncIteration:
            break
        except Exception as error:
            found.append(failed(error))
    return found


def read_async(ds: ad.Dataset, most: int = MOST) -> list[Any]:
    """Read on an event loop of its own; no task may be left on it for longer than ten seconds."""

    async def alone() -> list[Any]:
        found = await collect(ds, most)
        if left := asyncio.all_tasks() - {asyncio.current_task()}:
            _, left = await asyncio.wait(left, timeout=10)
        assert not left, f"tasks left behind: {left}"
        return found

    return asyncio.run(alone())


def on_thread(read: Callable[..., list[Any]], placement: Any) -> Callable[..., list[Any]]:
    def run(ds: ad.Dataset, most: int = MOST) -> list[Any]:
        return read(ds.with_options(ad.Options(placement=placement)), most)

    run.__name__ = f"{read.__name__}_{placement}"
    return run


WAYS: tuple[Callable[..., list[Any]], ...] = tuple(
    on_thread(read, placement) for placement in ("thread", "current") for read in (read_plain, read_async)
)
"""Every way to read a dataset: plain and async, with the engine on its own thread and on the consumer's."""


def results(ds: ad.Dataset) -> list[Any]:
    """All elements of a dataset, failures in their places."""
    return read_plain(ds)


@contextmanager
def impatient() -> Iterator[None]:
    """Every group is given up after each call that is made for it."""
    with (
        mock.patch.object(function_call, "BETWEEN", 0.0),
        mock.patch.object(function_call, "LATE", -1.0),
        mock.patch.object(task, "LATE", -1.0),
    ):
        yield


def unnamed(way: str, path: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run a process that keeps elements at a path, and is killed just before that gets its name."""
    root = Path(__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-W", "error", str(root / "tests" / "faults" / "unnamed.py"), way, str(path), *more],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )


def said(errors: str) -> str:
    """Return what a program wrote to its standard error, without the advice that any coroutine may get on a busy
    machine."""
    return re.sub(r"^in .*: blocked the event loop for .*\n", "", errors, flags=re.MULTILINE)
