"""Reading by fsspec: from its memory, and from a real FTP server."""

from __future__ import annotations

import json
import random
import uuid

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.errors import DataLossError, PlanError, ResumeError

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def root() -> str:
    """A folder of fsspec's memory with three files of lines."""
    system, name = fsspec.filesystem("memory"), f"/{uuid.uuid4().hex}"
    rng = random.Random(2)
    for number in range(3):
        system.pipe(f"{name}/{number}.txt", b"".join(b"%d %d\n" % (number, rng.randrange(10**9)) for _ in range(2000)))
    return f"memory:/{name}"


def test_files_are_listed_and_read(root: str) -> None:
    names = ad.Dataset.list_files(f"{root}/*.txt", shuffle=False)
    assert list(names) == [f"{root}/{number}.txt" for number in range(3)]
    lines = list(ad.TextLineDataset(names))
    assert len(lines) == 6000
    contents = list(names.map(ad.read_file, num_parallel_calls=2))
    assert [line for content in contents for line in content.splitlines()] == lines


@pytest.mark.formats
def test_arrays_of_zarr(root: str) -> None:
    zarr = pytest.importorskip("zarr")
    store = zarr.storage.FsspecStore.from_url(f"{root}/a.zarr")
    zarr.create_array(store=store, shape=(50, 2), dtype="int16", chunks=(7, 1))[:] = np.arange(100).reshape(50, 2)
    ds = ad.ZarrDataset(f"{root}/a.zarr")
    assert np.array_equal(list(ds), np.arange(100).reshape(50, 2))
    assert len({int(row[0]) for row in ds.shuffle(seed=0)}) == 50


@pytest.mark.parametrize("count", [0, 1999, 2000, 4321])
def test_goes_on_where_it_was(root: str, count: int) -> None:
    def build() -> ad.Dataset[bytes]:
        return ad.TextLineDataset(ad.Dataset.list_files(f"{root}/*.txt", shuffle=False))

    with build().iterate() as lines:
        found = [next(lines) for _ in range(count)]
        state = json.loads(json.dumps(lines.state_dict()))
    assert found + list(build().iterate(state=state)) == list(build())


def test_a_replaced_file_is_noticed_when_a_run_goes_on(root: str) -> None:
    ds = ad.TextLineDataset(f"{root}/1.txt")
    with ds.iterate() as lines:
        next(lines)
        state = lines.state_dict()
    system = fsspec.filesystem("memory")
    system.pipe(f"{root.removeprefix('memory:/')}/1.txt", b"another\n" * 100)
    with pytest.raises(ResumeError):
        list(ds.iterate(state=state))


def test_a_replaced_file_is_noticed_while_it_is_read(root: str) -> None:
    system, name = fsspec.filesystem("memory"), f"{root.removeprefix('memory:/')}/long.txt"
    system.pipe(name, (b"a" * 999 + b"\n") * 4000)
    found: list[bytes] = []
    with pytest.raises(DataLossError, match=r"long\.txt: the file was replaced while it was read"):
        for line in ad.TextLineDataset(f"{root}/long.txt"):
            if not found:
                system.pipe(name, (b"b" * 999 + b"\n") * 4000)
            found.append(line)
    assert set(found) == {b"a" * 999}


def test_what_is_not_there(root: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing.*|element 0"):
        list(ad.TextLineDataset(f"{root}/missing"))
    with pytest.raises(PlanError, match="no store for nosuch://"):
        ad.TextLineDataset("nosuch://x/y")
