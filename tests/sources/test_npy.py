"""NumPy's files as users read them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.elements.column_store import ColumnStore
from asyncdata.testing import check_resumes
from tests.reference import Failed
from tests.remote.web import web
from tests.running import WAYS, results


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", np.arange(60.0).reshape(20, 3))
    return tmp_path / "a.npy"


@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_rows(path: Path, way: Any, index: bool) -> None:
    found = way(ad.NpyDataset([path, path], index=index))
    assert np.array_equal(found, np.concatenate([np.load(path)] * 2))


def test_batches_are_made_of_columns(path: Path) -> None:
    with mock.patch.object(ColumnStore, "elements", side_effect=AssertionError):
        batch = next(iter(ad.NpyDataset([path] * 3).batch(40)))
    assert np.array_equal(batch[20:], np.load(path))
    batch[0] = 9


@pytest.mark.parametrize("index", [False, True])
def test_goes_on_at_any_row(path: Path, tmp_path: Path, index: bool) -> None:
    np.savez(tmp_path / "b.npz", x=np.arange(7), y=np.ones((7, 2)))
    np.save(tmp_path / "c.npy", np.asfortranarray(np.arange(12).reshape(6, 2)))
    for files in ([path], [path, path], [tmp_path / "b.npz"], [tmp_path / "c.npy"]):
        check_resumes(lambda files=files: ad.NpyDataset(files, index=index))
    check_resumes(
        lambda: ad.NpyDataset([path, path], buffer_size=50, index=index).shuffle(9, seed=1).batch(4), places=9
    )
    if not index:
        check_resumes(lambda: ad.NpyDataset([path] * 3, num_parallel_reads=2), places=12)


def test_any_row_and_shuffled_without_a_buffer(path: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "b.npz", x=np.arange(7), y=np.ones((7, 2)))
    ds = ad.NpyDataset([path, path], index=True)
    assert (len(ds), ds[27].tolist(), ds[-1].tolist()) == (40, [21, 22, 23], [57, 58, 59])
    found = list(ds.shuffle(seed=3))
    assert sorted(row[0] for row in found) == sorted([*range(0, 60, 3)] * 2)
    assert [row[0] for row in found] != sorted(row[0] for row in found)
    check_resumes(lambda: ad.NpyDataset([path, path], index=True).shuffle(seed=3))
    both = ad.NpyDataset(tmp_path / "b.npz", index=True)
    assert (len(both), both[3]["x"]) == (7, 3)
    first, again = both[3], both[3]
    first["y"][0] = 5
    assert again["y"].tolist() == [1, 1]
    assert both[3]["y"].tolist() == [1, 1]


def test_damaged_files_are_the_same_with_an_index(path: Path, tmp_path: Path) -> None:
    other, content = tmp_path / "b.npy", path.read_bytes()
    for damaged in (content[:300], content + b"x", b"", b"nothing of NumPy's", content[:40]):
        other.write_bytes(damaged)
        plain, indexed = (results(ad.NpyDataset([other, path], index=index)) for index in (False, True))
        assert [str(one) for one in plain] == [str(one) for one in indexed]
        ds = ad.NpyDataset([other, path], index=True)
        assert len(ds) == len(plain)
        at = next(place for place, one in enumerate(plain) if isinstance(one, Failed))
        with pytest.raises(ad.DataLossError):
            ds[at]
    assert results(ad.NpyDataset([tmp_path / "none", path], index=True))[0] == Failed("FileNotFoundError")
    assert len(ad.NpyDataset([tmp_path / "none", path], index=True)) == 21


@pytest.mark.parametrize("begin", [b"", b"PK\x03\x04"])
def test_large_files_that_are_none_are_not_read_whole(begin: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(begin)
    os.truncate(path, 1 << 40)  # more than any memory
    ds = ad.NpyDataset(path, index=True, max_file_bytes=1000)
    assert results(ds) == results(ad.NpyDataset(path, max_file_bytes=1000)) == [Failed("DataLossError")]
    with pytest.raises(ad.DataLossError, match="max_file_bytes=1000" if begin else "at byte 0 .* was expected"):
        ds[0]


def test_objects_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(ad.DataLossError, match=r"a\.npy: it holds pickled objects"):
        list(ad.NpyDataset(tmp_path / "a.npy"))


def test_rows_of_a_web_server(path: Path) -> None:
    with web() as server:
        url = server.put("a.npy", path.read_bytes())
        assert np.array_equal(list(ad.NpyDataset(url)), np.load(path))
        check_resumes(lambda: ad.NpyDataset(url), places=6)
        with pytest.raises(ad.PlanError, match="needs cache_dir="):
            ad.NpyDataset(url, index=True)


def test_a_file_that_has_changed_since_its_header_was_read(path: Path) -> None:
    ds = ad.NpyDataset(path, index=True)
    assert len(ds) == 20
    np.save(path, np.arange(30.0).reshape(10, 3))
    with pytest.raises(ad.DataLossError, match="has changed"):
        ds[3]
