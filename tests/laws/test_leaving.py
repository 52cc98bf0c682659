"""Leaving a pipeline anywhere, by any way out, leaves no task, thread, descriptor or child, whatever its steps."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.testing import leaves_nothing
from tests.executors.process.children import children_of
from tests.laws.pipelines import ALL_STEPS, SOURCES, Pipeline, Step, pipelines, sources
from tests.running import WAYS, read_async

PLACEMENTS = st.sampled_from(["thread", "current"])

FEW = settings(max_examples=max(5, settings().max_examples // 20))
"""For each step by itself."""


@contextmanager
def nothing_is_left() -> Iterator[None]:
    """As `leaves_nothing`, child processes too."""
    before = children()
    with leaves_nothing():
        yield
    assert set(children()) <= set(before)  # one that an earlier test started may end meanwhile


def children() -> list[int]:
    """Return the child processes, where the system tells."""
    return children_of(os.getpid()) if Path("/proc/self/task").exists() else []


def step_after(data: st.DataObject, step: Step) -> Pipeline:
    """A pipeline that ends with a step."""
    return step(data.draw, data.draw(sources()))


def named(part: Any) -> str:
    return part.__name__


@pytest.mark.parametrize("step", [*dict.fromkeys(ALL_STEPS)], ids=named)
@FEW
@given(data=st.data(), way=st.sampled_from(WAYS), count=st.integers(0, 12))
def test_every_step_can_be_left_early(step: Step, data: st.DataObject, way: Any, count: int) -> None:
    pipe = step_after(data, step)
    with nothing_is_left():
        elements = way(pipe.build(), count)
    if pipe.ordered:
        assert pipe.comparable(elements) == pipe.elements()[:count]


@pytest.mark.parametrize("source", [*dict.fromkeys(SOURCES)], ids=named)
@FEW
@given(data=st.data(), way=st.sampled_from(WAYS), count=st.integers(0, 12))
def test_every_source_can_be_left_early(source: Any, data: st.DataObject, way: Any, count: int) -> None:
    pipe = source(data.draw)
    with nothing_is_left():
        elements = way(pipe.build(), count)
    assert pipe.comparable(elements) == pipe.elements()[:count]


def cancelled_after(ds: ad.Dataset[Any], turns: int) -> None:
    """Read on a loop of its own, and be cancelled after so many turns of it, wherever that finds the task."""

    async def read() -> None:
        async with ds.iterate() as elements:
            while True:
                try:
                    await anext(elements)
                except StopAsyncIteration:
                    return
                except Exception:
                    continue

    async def body() -> None:
        task = asyncio.create_task(read())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        if left := asyncio.all_tasks() - {asyncio.current_task()}:
            _, left = await asyncio.wait(left, timeout=1)
        assert not left, f"tasks left behind: {left}"

    asyncio.run(body())


@given(pipe=pipelines(), placement=PLACEMENTS, turns=st.integers(0, 60))
def test_being_cancelled_anywhere_leaves_nothing(pipe: Pipeline, placement: Any, turns: int) -> None:
    with nothing_is_left():
        cancelled_after(pipe.build().with_options(ad.Options(placement=placement)), turns)


@given(pipe=pipelines(), placement=PLACEMENTS, turns=st.integers(1, 60))
def test_after_being_cancelled_it_can_be_read_again(pipe: Pipeline, placement: Any, turns: int) -> None:
    """Also what has files of its own, or keeps what it read."""
    ds = pipe.build().with_options(ad.Options(placement=placement))
    cancelled_after(ds, turns)
    assert pipe.comparable(read_async(ds)) == pipe.elements(1)


@given(pipe=pipelines(), placement=PLACEMENTS, count=st.integers(0, 12))
def test_a_loop_that_ends_with_an_open_iterator_leaves_nothing(pipe: Pipeline, placement: Any, count: int) -> None:
    """Nobody closes the iterator: its loop is closed, and it is forgotten."""

    async def body() -> None:
        elements = aiter(pipe.build().with_options(ad.Options(placement=placement)))
        for _ in range(count):
            try:
                await anext(elements)
            except StopAsyncIteration:
                return
            except Exception:
                continue

    with nothing_is_left():
        asyncio.run(body())
