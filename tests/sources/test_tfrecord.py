"""TFRecord files read from disk: large records, which have a way of their own, among small ones."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.formats.tfrecord import FRAMING, LARGE
from tests.running import results

SIZES = (0, 10, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE)


@pytest.fixture
def shard(tmp_path: Path) -> str:
    return str(tmp_path / "shard.tfrecord")


def records_of(sizes: list[int]) -> list[bytes]:
    random = np.random.default_rng(len(sizes))
    return [random.bytes(size) for size in sizes]


def written(path: str, sizes: list[int]) -> list[bytes]:
    records = records_of(sizes)
    with ad.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    return records


def read(path: str, buffer_size: int = 100_000) -> list[Any]:
    return results(ad.TFRecordDataset(path, buffer_size=buffer_size))


def refuse_after(monkeypatch: pytest.MonkeyPatch, reads: int, code: int) -> None:
    """Let reads from the page cache fail after so many."""
    real, count = os.preadv, 0

    def preadv(fd: int, buffers: Any, offset: int, flags: int = 0) -> int:
        nonlocal count
        count += 1
        if count > reads:
            raise OSError(code, "no")
        return real(fd, buffers, offset, flags)

    monkeypatch.setattr(os, "preadv", preadv)


@given(sizes=st.lists(st.sampled_from(SIZES), max_size=12), buffer_size=st.sampled_from([1000, 70_000, 1 << 20]))
def test_records_of_all_sizes(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], buffer_size: int) -> None:
    path = str(tmp_path_factory.getbasetemp() / "sizes.tfrecord")
    records = written(path, sizes)
    assert read(path, buffer_size) == records


def test_most_large_records_are_read_at_once(shard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    records, sizes, real = written(shard, [LARGE] * 20), [], os.pread

    def pread(fd: int, size: int, offset: int) -> bytes:
        sizes.append(size)
        return real(fd, size, offset)

    monkeypatch.setattr(os, "pread", pread)
    assert read(shard) == records
    assert sizes == [LARGE] * 19


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="reads the page cache by preadv")
@pytest.mark.parametrize("code", [errno.EAGAIN, errno.EOPNOTSUPP])
@pytest.mark.parametrize("reads", range(12))
def test_what_is_not_cached_is_waited_for(shard: str, reads: int, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    records = written(shard, [LARGE, LARGE, 10, 2 * LARGE, LARGE, LARGE, 5])
    refuse_after(monkeypatch, reads, code)
    assert read(shard) == records


def test_large_read_that_fails_is_tried_in_a_block(shard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    records = written(shard, [LARGE] * 6)

    def broken(*_: Any) -> bytes:
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(os, "pread", broken)
    assert read(shard) == records


@pytest.mark.parametrize("hit", range(5))
@pytest.mark.parametrize("place", [0, 9, 12, FRAMING + LARGE - 1], ids=["length", "its crc", "data", "its crc"])
def test_damage(shard: str, hit: int, place: int) -> None:
    records = written(shard, [LARGE] * 5)
    at = hit * (LARGE + FRAMING)
    with open(shard, "r+b") as file:
        file.seek(at + place)
        byte = file.read(1)[0]
        file.seek(at + place)
        file.write(bytes([byte ^ 1]))
    found = list(reading(shard))
    error = found.pop(hit)
    assert isinstance(error, ad.DataLossError)
    assert f"shard.tfrecord: the record at byte {at} " in str(error)
    assert found == records[:hit] + ([] if place < 12 else records[hit + 1 :])


@pytest.mark.parametrize("lost", [1, 4, 5, LARGE, LARGE + 5, LARGE + FRAMING - 1])
def test_cut_short(shard: str, lost: int) -> None:
    records = written(shard, [LARGE] * 4)
    os.truncate(shard, 4 * (LARGE + FRAMING) - lost)
    *found, error = reading(shard)
    assert found == records[:3]
    assert f"the record at byte {3 * (LARGE + FRAMING)} is cut short" in str(error)


def reading(path: str) -> list[Any]:
    """Everything in a file, errors as they are."""
    found: list[Any] = []
    with ad.TFRecordDataset(path, buffer_size=100_000).iterate() as records:
        while True:
            try:
                found.append(next(records))
            except StopIteration:
                return found
            except ad.DataLossError as error:
                found.append(error)
