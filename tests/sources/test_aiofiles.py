"""Files that a user's own coroutines read with aiofiles are read whole, resumed exactly, and closed."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiofiles
import pytest

import asyncdata as ad
from tests.running import WAYS

LINES = [f"line {number}" for number in range(20)]


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "lines").write_text("\n".join(LINES) + "\n")
    return str(tmp_path / "lines")


def lines_of(path: str) -> Callable[[], AsyncIterator[str]]:
    async def lines() -> AsyncIterator[str]:
        async with aiofiles.open(path) as file:
            async for line in file:
                yield line.rstrip("\n")

    return lines


def is_open(path: str) -> bool:
    gc.collect()
    return any(os.path.realpath(f"/proc/self/fd/{fd}") == path for fd in os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("way", WAYS)
def test_a_coroutine_reads_many_files(tmp_path: Path, way: Callable[..., list[Any]]) -> None:
    for number in range(12):
        (tmp_path / f"{number}").write_bytes(bytes([number]) * (number + 1))

    async def content(path: str) -> bytes:
        async with aiofiles.open(path, "rb") as file:
            return await file.read()

    names = ad.Dataset.from_list([str(tmp_path / f"{number}") for number in range(12)])
    expected = [bytes([number]) * (number + 1) for number in range(12)]
    assert [bytes(data) for data in way(names.map(content, num_parallel_calls=4))] == expected


@pytest.mark.parametrize("way", WAYS)
def test_lines_are_read_again_in_each_epoch(path: str, way: Callable[..., list[Any]]) -> None:
    assert way(ad.Dataset.from_async_iterable(lines_of(path)).repeat(2)) == LINES * 2


def test_a_state_after_any_line_leads_to_the_next_one(path: str) -> None:
    ds = ad.Dataset.from_async_iterable(lines_of(path)).batch(3).unbatch()
    with ds.iterate() as elements:
        for delivered, _ in enumerate(elements, 1):
            rest = list(ds.iterate(state=elements.state_dict()))
            assert [str(line) for line in rest] == LINES[delivered:]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the system does not say so")
@pytest.mark.parametrize("placement", ["thread", "current"])
def test_the_file_is_closed_where_the_loop_is_left_early(path: str, placement: Any) -> None:
    ds = ad.Dataset.from_async_iterable(lines_of(path)).with_options(ad.Options(placement=placement))
    with ds.iterate() as elements:
        assert next(elements) == LINES[0]
    assert not is_open(os.path.realpath(path))


async def test_an_open_file_is_a_source_by_itself(path: str) -> None:
    async with aiofiles.open(path) as file:
        found = [line.rstrip("\n") async for line in ad.Dataset.from_async_iterable(file)]
    assert found == LINES


async def test_a_file_that_is_missing_fails_in_its_place(path: str, tmp_path: Path) -> None:
    async def length(name: str) -> int:
        async with aiofiles.open(name) as file:
            return len(await file.read())

    def lengths(*names: str) -> ad.Dataset[Any]:
        return ad.Dataset.from_list(list(names)).map(length, num_parallel_calls=3)

    none, size = str(tmp_path / "none"), os.path.getsize(path)
    assert [int(count) async for count in lengths(path, none, path).ignore_errors()] == [size, size]
    with pytest.raises(FileNotFoundError, match="none"):
        # The last one fails: a call that is cancelled while aiofiles opens its file in a thread never gets to close it.
        _ = [count async for count in lengths(path, path, none)]
