"""read_file in a map: what lies in the page cache is read at once, and nothing else is different."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.storage.local import LARGEST_QUICK, LocalStore


@pytest.fixture(params=["cached", "disk"])
def cache(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the bytes are: in the page cache, or not."""
    if request.param == "disk":

        def refuse(*_: Any) -> int:
            raise OSError(errno.EAGAIN, "no")

        monkeypatch.setattr(os, "preadv", refuse, raising=False)
    return request.param


@pytest.mark.parametrize("calls", [None, 3, ad.AUTOTUNE])
def test_each_file_is_read(tmp_path: Path, calls: int | None, cache: str) -> None:
    sizes = [5, 0, 100_000, LARGEST_QUICK + 1, 1]
    for number, size in enumerate(sizes):
        (tmp_path / str(number)).write_bytes(os.urandom(size))
    paths = [str(tmp_path / name) for name in ("0", "1", "2", "missing", "3", "4")]
    ds = ad.Dataset.from_tensor_slices(paths).map(ad.read_file, num_parallel_calls=calls)
    found: list[Any] = []
    with ds.iterate() as contents:
        while len(found) < 6:
            try:
                found.append(next(contents))
            except FileNotFoundError as error:
                found.append(error.__notes__[0])
        state = contents.state_dict()
    assert found[:3] + found[4:] == [(tmp_path / str(number)).read_bytes() for number in range(5)]
    assert "element 3" in found[3]
    assert list(ds.iterate(state=state)) == []
    with ds.iterate() as contents:
        assert [next(contents), next(contents)] == found[:2]
        state = contents.state_dict()
    assert list(ds.ignore_errors().iterate(state=state, strict=False)) == [found[2], *found[4:]]


async def test_files_that_take_long_to_open_are_left_to_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    monkeypatch.setattr("asyncdata.storage.local.SLOW", 0.0)
    monkeypatch.setattr("asyncdata.storage.local.AFTER_SLOW", 2)
    monkeypatch.setattr("asyncdata.storage.registry.LOCAL.quick", quick := type(LocalStore().quick)())
    left = []
    for _ in range(5):
        assert await ad.read_file(path) == b"content"
        left.append(quick.others)
    assert left == [0, 2, 1, 0, 2]  # once that may have been another program's turn


@pytest.mark.parametrize("calls", [None, 3])
def test_a_name_that_is_none_is_an_error_in_its_place(tmp_path: Path, calls: int | None) -> None:
    (tmp_path / "a").write_bytes(b"content")
    names = [str(tmp_path / "a"), "with\0zero", str(tmp_path / "a")]
    ds = ad.Dataset.from_tensor_slices(names).map(ad.read_file, num_parallel_calls=calls)
    with pytest.raises(ValueError, match="null byte"):
        list(ds)
    assert list(ds.ignore_errors()) == [b"content"] * 2


def test_files_at_hand_come_together_and_no_more_than_are_wanted(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number:02}").write_bytes(b"%d" % number)
    names = [str(tmp_path / f"{number:02}") for number in range(20)]
    ds = ad.Dataset.from_tensor_slices(names).map(ad.read_file)
    for count in range(21):
        with ds.take(count).iterate() as contents:
            found = list(contents)
        assert found == [b"%d" % number for number in range(count)]
        with ds.iterate() as contents:
            found = [next(contents) for _ in range(count)]
            state = contents.state_dict()
        assert found + list(ds.iterate(state=state)) == [b"%d" % number for number in range(20)]
