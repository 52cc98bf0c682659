"""Large arrays and tensors that a function holds are shared by all workers; files and shared memory are mapped."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import threading
import weakref
from collections.abc import Callable
from functools import partial
from mmap import ACCESS_READ, mmap
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.executors.process.held_data import LARGE, HeldData, HeldDataPickler, merged
from asyncdata.executors.process.pool import PoolHandle

BIG = np.arange(LARGE, dtype=np.int32).reshape(1024, -1)


def sent(value: Any) -> tuple[Any, HeldData]:
    """Return a value as a worker gets it, and how it went."""
    held = HeldDataPickler().pickled(value)
    return pickle.loads(held.head, buffers=[bytearray(span.bytes) for span in held.spans]), held


FORMS: dict[str, Callable[[], np.ndarray[Any, Any]]] = {
    "whole": lambda: BIG,
    "Fortran": lambda: np.asfortranarray(BIG),
    "reversed": lambda: BIG[::-1, ::-1],
    "transposed": lambda: BIG.T,
    "every second": lambda: BIG[:, ::2],
    "a column": lambda: BIG[:, 3],
    "a small view": lambda: BIG[5, 2:9],
    "an element": lambda: BIG[1, 2, ...],
    "empty": lambda: BIG[:0],
    "big-endian": lambda: BIG.astype(">i4"),
    "structured": lambda: np.zeros(LARGE // 4, [("a", "<i4"), ("b", ">f8", 2)]),
    "a field": lambda: np.zeros(LARGE // 4, [("a", "<i4"), ("b", ">f8", 2)])["b"],
    "times": lambda: BIG.reshape(-1).view("M8[s]"),
    "text": lambda: np.full(LARGE // 8, "text"),
    "repeated": lambda: np.broadcast_to(np.float32(3), (1024, 1024)),
    "read-only": lambda: read_only(BIG.copy()),
    "objects": lambda: np.full(LARGE // 8, "an object", object),
}


def read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("form", FORMS)
def test_arrays_of_all_forms_arrive_as_they_are(form: str) -> None:
    array = FORMS[form]()
    found, _ = sent(array)
    assert type(found) is np.ndarray
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    np.testing.assert_array_equal(found, array)


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "partial": lambda array: partial(print, array),
    "containers": lambda array: {"deep": [(array,)]},
    "closure": lambda array: lambda: array,
    "default": lambda array: lambda given=array: given,
    "method": lambda array: Held(array).method,
    "object": lambda array: Held(array),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_arrays_are_found_wherever_a_function_holds_them(holder: str) -> None:
    _, held = sent(HOLDERS[holder](BIG))
    assert sum(span.size for span in held.spans) == BIG.nbytes
    assert len(held.head) < 10_000


class Held:
    """An object with an array."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def method(self) -> None:
        """Do nothing."""

    __call__ = method


def test_an_array_held_twice_is_one() -> None:
    (first, second), held = sent((BIG, BIG))
    assert first is second
    assert len(held.spans) == 1


def test_many_views_of_one_array_are_sent_once() -> None:
    views = [BIG[row] for row in range(1024)]
    found, held = sent([*views, BIG])
    assert [(one.address, one.size) for one in merged(held.spans)] == [(BIG.__array_interface__["data"][0], BIG.nbytes)]
    assert all(np.array_equal(one, view) for one, view in zip(found, views, strict=False))


def test_what_is_small_or_of_another_kind_stays_in_the_pickle() -> None:
    class Named(np.ndarray[Any, Any]):
        """A subclass."""

    found, held = sent((np.arange(10), BIG.view(Named)))
    assert not held.spans
    np.testing.assert_array_equal(found[1], BIG)
    assert held.copied == ["Named of 4.2 MB, which is pickled in its own way"]


def test_masked_arrays_share_their_data() -> None:
    array = np.ma.masked_equal(BIG, 7)
    found, held = sent(array)
    assert (found == array).all()
    assert found.mask.sum() == 1
    assert sum(span.size for span in held.spans) == BIG.nbytes + BIG.size


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.npy"
    np.save(path, BIG)
    return path


def test_a_memmap_is_opened_again(file: Path) -> None:
    whole = np.load(file, mmap_mode="r")
    (found, part, plain), held = sent((whole, whole[3:5, ::2], np.asarray(whole)))
    assert not held.spans
    assert len(held.head) < 10_000
    assert held.mapped == [f"the file {file} (4.2 MB)"]
    assert type(found) is np.memmap
    assert type(plain) is np.ndarray
    for one, original in ((found, BIG), (part, BIG[3:5, ::2]), (plain, BIG)):
        np.testing.assert_array_equal(one, original)
        assert not one.flags.writeable


def test_a_memmap_shows_what_is_written_to_it(file: Path) -> None:
    written = np.memmap(file, np.uint8, "r+")
    found, _ = sent(written)
    written[-1] = 77
    assert found[-1] == 77


@pytest.mark.parametrize("change", ["removed", "replaced", "own changes"])
def test_a_memmap_is_copied_if_its_file_is_not_what_it_shows(file: Path, change: str) -> None:
    array = np.load(file, mmap_mode="c" if change == "own changes" else "r")
    if change == "removed":
        file.unlink()
    elif change == "replaced":
        np.save(file.with_suffix(".new.npy"), BIG + 1)
        file.with_suffix(".new.npy").replace(file)
    else:
        array[0, 0] = 5
    found, held = sent(array)
    np.testing.assert_array_equal(found, array)
    assert held.copied if change == "own changes" else held.mapped == ["shared memory (4.2 MB)"]


def test_memory_that_is_shared_already_is_mapped(file: Path) -> None:
    memory = SharedMemory(create=True, size=BIG.nbytes)
    try:
        array: Any = np.ndarray(BIG.shape, BIG.dtype, memory.buf)
        array[:] = BIG
        found, held = sent(array)
        assert not held.spans
        found[0, 0] = 5
        assert array[0, 0] == 5
        del array, found, held
    finally:
        memory.close()
        memory.unlink()
    with file.open("rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as mapping:
        array = np.frombuffer(mapping, np.int32, offset=128)
        found, held = sent(array)
        assert not held.spans
        np.testing.assert_array_equal(found, array)
        del array, held


@pytest.mark.torch
def test_tensors_of_all_forms_arrive_as_they_are() -> None:
    torch = pytest.importorskip("torch")
    big = torch.arange(LARGE, dtype=torch.float32).reshape(1024, -1)
    dense = [big, big.T, big[:, ::2], big[5], big.requires_grad_(), torch.nn.Parameter(big.detach())]
    dense += [big.detach().to(getattr(torch, name)) for name in ("bfloat16", "uint16", "float8_e5m2", "complex64")]
    sparse = torch.sparse_coo_tensor(torch.arange(LARGE)[None], torch.ones(LARGE), (LARGE,), check_invariants=True)
    found, held = sent((*dense, sparse))
    for one, original in zip(found, dense, strict=False):
        assert (type(one), one.dtype, one.stride()) == (type(original), original.dtype, original.stride())
        assert one.requires_grad == original.requires_grad
        assert torch.equal(one.detach().to(torch.complex64), original.detach().to(torch.complex64))
    assert torch.equal(found[-1].to_dense(), sparse.to_dense())
    assert len(held.head) < 20_000
    assert found[0].untyped_storage().data_ptr() == found[1].untyped_storage().data_ptr()
    assert len(merged(held.spans)) <= 8


@pytest.mark.torch
def test_small_tensors_arrive_as_they_are_without_the_format_of_files() -> None:
    torch = pytest.importorskip("torch")
    base = torch.arange(12.0)
    described = torch.ones(2)
    described.unit = "m"
    plain = [base, base[2:5], base.reshape(3, 4).T, torch.tensor(3), torch.empty(0, 4), base > 3, base[:0]]
    plain += [base.to(getattr(torch, name)) for name in ("bfloat16", "uint16", "float8_e5m2", "complex64")]
    others = [
        base.clone().requires_grad_(),
        torch.nn.Parameter(base),
        torch.ones(2, dtype=torch.complex64).conj(),
        described,
    ]
    found, held = sent([*plain, *others])
    assert len(sent(plain)[1].head) < 3000  # the format of torch.save takes 300 bytes and 100 us for each
    assert not held.spans
    for one, original in zip(found, [*plain, *others], strict=True):
        assert (type(one), one.dtype, one.stride()) == (type(original), original.dtype, original.stride())
        assert (one.shape, one.requires_grad) == (original.shape, original.requires_grad)
        assert torch.equal(one.detach().to(torch.complex64), original.detach().to(torch.complex64))
    assert found[-1].unit == "m"
    found[0][3] = 100
    assert (found[1][1], found[2][3, 0], base[3]) == (100, 100, 3)  # views of one tensor stay so
    assert found[3].resize_(7).shape == (7,)


@pytest.mark.torch
def test_tensors_in_shared_memory_are_mapped() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(LARGE).share_memory_()
    (found, array), held = sent((tensor[7:], tensor.numpy()))
    assert not held.spans
    found[0] = 5
    assert tensor[7] == array[7] == 5


# in workers


def private_bytes() -> int:
    """Return how much memory this process alone has."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private"))


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="the system does not say so")
def test_workers_have_no_copies(tmp_path: Path, warm: PoolHandle, caplog: pytest.LogCaptureFixture) -> None:
    size = 64 << 20
    array, file = np.ones(size, np.uint8), np.memmap(tmp_path / "file", np.uint8, "w+", shape=(size,))

    def used(_: int) -> tuple[int, int]:
        before = private_bytes()
        return int(array.sum() + file.sum()), private_bytes() - before

    def alone(_: int) -> int:
        return private_bytes()

    before = max(ad.Dataset.range(8).map(alone, num_parallel_calls=2, executor="process"))
    ds = ad.Dataset.range(8).map(used, num_parallel_calls=2, executor="process")
    with caplog.at_level(logging.INFO, "asyncdata"):
        found = list(ds)
        assert [total for total, _ in ds] == [size] * 8
    assert {total for total, _ in found} == {size}
    assert max(ad.Dataset.range(8).map(alone, num_parallel_calls=2, executor="process")) - before < size // 4
    (record,) = caplog.records
    shared, mapped = record.getMessage().split("; ")
    assert "67.1 MB in shared memory, once for all workers" in shared
    assert "mmap_mode='r'" in shared
    assert "mapped by each worker: the file" in mapped
    array[0] = 2
    assert next(iter(ds))[0] == size + 1


def large_maps(_: int) -> int:
    """Return how many segments of shared memory of 37 MB this process has mapped, as no other test has."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    segments = [line.split()[0].split("-") for line in lines if "memfd:asyncdata" in line]
    return sum(37 << 20 <= int(end, 16) - int(start, 16) < 38 << 20 for start, end in segments)


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="the system does not say so")
def test_the_copy_is_freed_with_the_dataset_in_workers_too(warm: PoolHandle) -> None:
    array = np.ones(37 << 20, np.uint8)
    numbers = ad.Dataset.range(8)
    ds = numbers.map(lambda number: (int(array[number]), large_maps(number)), num_parallel_calls=2, executor="process")
    assert list(ds) == list(ds) == [(1, 1)] * 8
    data, freed = max(warm.pool.data, key=lambda one: one.serial), threading.Event()
    weakref.finalize(data, freed.set)
    del ds, data
    gc.collect()
    assert freed.wait(60)  # the engine's thread ends its task after the last element
    assert list(numbers.map(large_maps, num_parallel_calls=2, executor="process")) == [0] * 8


def test_a_write_in_a_worker_is_an_error(warm: PoolHandle) -> None:
    array = np.zeros(LARGE, np.uint8)

    def write(number: int) -> int:
        array[0] = number
        return number

    with pytest.raises(ValueError, match="read-only") as caught:
        list(ad.Dataset.range(3).map(write, num_parallel_calls=2, executor="process"))
    assert any("with other worker processes if the function holds it" in note for note in caught.value.__notes__)


def test_a_pipeline_in_a_process_maps_files_and_shares_what_its_functions_hold(file: Path) -> None:
    array, whole = BIG.copy(), np.load(file, mmap_mode="r")

    def look(number: int) -> tuple[int, int, str]:
        return int(array[number, 5]), int(whole[number, 5]), type(whole).__name__

    ds = ad.Dataset.range(4).map(look, num_parallel_calls=2, executor="process")
    ds = ds.with_options(ad.Options(placement="process"))
    assert list(ds) == [(int(BIG[number, 5]), int(BIG[number, 5]), "memmap") for number in range(4)]
