"""The tools for tests find what they are there to find."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_transform, leaves_nothing, virtual_time


def test_check_transform_accepts_what_keeps_its_meaning() -> None:
    check_transform(lambda ds: ds.batch(3), lambda items: [np.array(items[i : i + 3]) for i in (0, 3)], [range(5)])


@pytest.mark.parametrize(
    "meaning",
    [
        lambda items: items[:-1],
        lambda items: [*items, 0],
        lambda items: items[::-1],
        lambda items: [float(x) for x in items],
        lambda items: [np.int64(x) for x in items],
        lambda items: [(x,) for x in items],
    ],
)
def test_check_transform_refuses_another_meaning(meaning: object) -> None:
    with pytest.raises(AssertionError, match="its meaning is"):
        check_transform(lambda ds: ds.map(lambda x: x), meaning, [range(3)])  # type: ignore[arg-type]


def test_check_transform_tells_arrays_apart() -> None:
    with pytest.raises(AssertionError, match="its meaning is"):
        check_transform(lambda ds: ds.batch(2), lambda items: [np.array(items, np.int32)], [range(2)])


def test_check_transform_names_the_case() -> None:
    with pytest.raises(AssertionError, match=r"\[1, 2\].*placement='thread'.*read_plain"):
        check_transform(lambda ds: ds.skip(1), lambda items: items, [(), (1, 2)])


def test_check_transform_sees_what_is_left() -> None:
    gate = threading.Event()

    def leak(ds: ad.Dataset) -> ad.Dataset:
        threading.Thread(target=gate.wait, name="left-alone", daemon=True).start()
        return ds

    def leaking(x: int) -> int:
        leak(ad.Dataset.range(0))
        return x

    with pytest.raises(AssertionError, match="left-alone"):
        check_transform(lambda ds: ds.map(leaking), lambda items: items, [(1,)])
    gate.set()


def test_leaves_nothing_sees_a_descriptor(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="descriptors left behind"), leaves_nothing():
        descriptor = os.open(tmp_path, os.O_RDONLY)
    os.close(descriptor)


def test_leaves_nothing_lets_what_was_there_be() -> None:
    gate = threading.Event()
    thread = threading.Thread(target=gate.wait)
    thread.start()
    with leaves_nothing():
        pass
    gate.set()
    thread.join()


def test_virtual_time_keeps_the_order_of_timers() -> None:
    """A day of timers, and what is due at the same time comes in the order in which it was asked for."""
    seen: list[tuple[float, int]] = []

    async def wait(hours: int, name: int) -> None:
        await asyncio.sleep(hours * 3600)
        seen.append((asyncio.get_running_loop().time() / 3600, name))

    async def body() -> None:
        await asyncio.gather(*[wait(hours, name) for name, hours in enumerate([30, 1, 24, 1, 0])])

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        runner.run(body())
    assert seen == [(0, 4), (1, 1), (1, 3), (24, 2), (30, 0)]


def test_virtual_time_waits_for_threads() -> None:
    """A loop without timers waits for real: for a thread that has something for it."""

    async def body() -> int:
        return await asyncio.to_thread(lambda: 7)

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        assert runner.run(body()) == 7
