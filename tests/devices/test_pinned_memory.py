"""Pinned memory: where batches are made that a device reads, and what is copied there first."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.devices import copy_thread
from asyncdata.devices.simulated import Accelerator, SimulatedDevice
from asyncdata.devices.staging import Staging
from asyncdata.memory import memcpy
from asyncdata.memory.buffer_pool import POOL

ROWS = np.arange(64 << 10, dtype=np.float32)


@pytest.fixture(autouse=True)
def plain_pool() -> Iterator[None]:
    yield
    POOL.allocate_by(lambda size: np.empty(size, np.uint8))


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes were copied to a slot, each time."""
    sizes: list[int] = []
    slot = Staging.slot

    def noted(self: Any, memory: Any, need: int) -> Any:
        sizes.append(need)
        return slot(self, memory, need)

    monkeypatch.setattr(Staging, "slot", noted)
    return sizes


def large(x: int) -> Any:
    return ROWS + x


def rows_of(ds: ad.Dataset) -> list[float]:
    return [float(batch.numpy()[0, 0]) for batch in ds]


def test_large_batches_of_this_process_are_made_in_pinned_memory(staged: list[int]) -> None:
    accelerator = Accelerator()
    ds = ad.Dataset.range(80).map(large).batch(8).prefetch_to_device(accelerator)
    for _ in range(2):
        assert rows_of(ds) == [float(x) for x in range(0, 80, 8)]
    assert (staged, accelerator.races) == ([], [])


def test_slots_of_other_processes_are_registered_once(staged: list[int]) -> None:
    accelerator = Accelerator()
    ds = ad.Dataset.range(64).map(large).batch(2).prefetch_to_device(accelerator)
    ds = ds.with_options(ad.Options(placement="process"))
    assert rows_of(ds) == [float(x) for x in range(0, 64, 2)]
    assert (staged, accelerator.races) == ([], [])
    assert accelerator.registered < 32
    del ds
    gc.collect()


def test_what_may_not_be_registered_is_copied(staged: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator = Accelerator()
    monkeypatch.setattr(accelerator.pinned_memory, "register", lambda address, size: False)
    ds = ad.Dataset.range(6).map(large, num_parallel_calls=1, executor="process").prefetch_to_device(accelerator)
    assert [float(row.numpy()[0]) for row in ds] == [float(x) for x in range(6)]
    assert len(staged) == 6


def test_a_slot_is_let_go_of_when_nobody_looks_into_it() -> None:
    accelerator = Accelerator()
    ds = ad.Dataset.range(6).map(large, num_parallel_calls=1, executor="process").prefetch_to_device(accelerator)
    with ds.iterate() as rows:
        next(rows)
        registered = [*accelerator.pinned_memory.known]
        assert registered
    accelerator.pinned_memory.unregister(registered[0])
    assert registered[0] not in accelerator.pinned


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", ["fresh", "ring"])
def test_memory_stays_as_it_is(mode: Any, count: int) -> None:
    accelerator = Accelerator()
    taken: set[tuple[int, int]] = set()
    ds = ad.Dataset.range(count).map(lambda x: {"x": np.full(1000, x), "name": f"{x}"})
    for place, batch in enumerate(ds.prefetch_to_device(accelerator, mode=mode)):
        accelerator.kernel(batch["x"])
        if place > count // 3:
            taken.add((accelerator.bytes, len(accelerator.pinned)))
    assert len(taken) <= 2
    assert accelerator.bytes <= 6 * 8192


def test_an_array_that_is_read_only_or_a_part_of_another_is_read_where_it_lies() -> None:
    accelerator = Accelerator()
    POOL.allocate_by(accelerator.pinned_memory.allocate_or_not)
    whole = POOL.empty((1000, 1000), np.dtype(np.float32))
    whole[:] = 1
    whole.flags.writeable = False
    direct = accelerator.pinned_memory.direct(whole[10:20])
    assert direct is not None
    assert direct.ctypes.data == whole[10:20].ctypes.data
    assert accelerator.pinned_memory.direct(whole[:, 10]) is None, "no one piece"
    assert accelerator.pinned_memory.direct(np.ones(3)) is None, "memory of somebody else"


@pytest.mark.parametrize("mode", ["fresh", "ring"])
def test_small_arrays_are_sent_as_one(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    send = SimulatedDevice.send

    def noted(self: Any, leaves: Any, into: Any) -> Any:
        counts.append(len(leaves))
        return send(self, leaves, into)

    def sample(x: int) -> Any:
        small = {f"{place}": np.full(place, x, dtype) for place, dtype in enumerate((np.int8, np.float64, np.bool_))}
        return {"first": np.full(20_000, x), **small, "number": np.int16(x), "last": np.full(30_000, x)}

    monkeypatch.setattr(SimulatedDevice, "send", noted)
    accelerator = Accelerator()
    ds = ad.Dataset.range(20).map(sample)
    found = [
        {key: array.numpy() for key, array in element.items()}
        for element in ds.prefetch_to_device(accelerator, mode=mode)
    ]
    assert (counts, accelerator.races) == ([3] * 20, [])
    for x, element in enumerate(found):
        want = sample(x)
        assert {key: (value.dtype, value.tolist()) for key, value in element.items()} == {
            key: (value.dtype, value.tolist()) for key, value in want.items()
        }


@pytest.mark.parametrize("helpers", [0, 1, 4])
def test_large_arrays_are_copied_to_pinned_memory_by_threads_that_end(
    helpers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_thread, "helper_count", lambda cores: helpers)
    monkeypatch.setattr(memcpy.COPIER, "wary", 0)  # other tests' copies may have been held up
    started: list[str] = []
    start = copy_thread.CopyThread.start_helper

    def start_helper(thread: copy_thread.CopyThread, run: Any, name: str) -> None:
        started.append(name)
        start(thread, run, name)

    monkeypatch.setattr(copy_thread.CopyThread, "start_helper", start_helper)
    arrays = [np.arange(1 << 20) + number for number in range(6)]
    accelerator = Accelerator()
    before = set(threading.enumerate())
    with ad.Dataset.from_list(arrays).prefetch_to_device(accelerator).iterate() as batches:
        found = [*batches]
    assert (len(started) > 0) == (helpers > 0)
    for array, copy in zip(arrays, found, strict=True):
        np.testing.assert_array_equal(copy.numpy(), array)
    assert accelerator.races == []
    assert not any(thread.name.startswith("asyncdata-device") for thread in set(threading.enumerate()) - before)
