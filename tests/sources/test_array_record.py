"""ArrayRecord files as users read them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.errors import DataLossError, PlanError
from asyncdata.sources.array_record import ArrayRecords
from asyncdata.testing import check_resumes
from tests.reference import Failed
from tests.running import WAYS, results

pytestmark = pytest.mark.formats

RECORDS = [b"%05d" % number * (number % 7) for number in range(40)]


def written(path: Path, records: list[bytes] = RECORDS, options: str = "group_size:2") -> Path:
    writer = pytest.importorskip("array_record.python.array_record_module").ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path / "a.array_record")


@pytest.mark.parametrize("way", WAYS)
def test_records(path: Path, way: Any) -> None:
    assert way(ad.ArrayRecordDataset([path, path], num_parallel_reads=2)) == RECORDS * 2


def test_any_order(path: Path, tmp_path: Path) -> None:
    files = [path, written(tmp_path / "b.array_record", []), written(tmp_path / "c.array_record", [b"x", b"y"])]
    ds = ad.ArrayRecordDataset(files)
    assert (len(ds), ds[39], ds[40], ds[-1]) == (42, RECORDS[39], b"x", b"y")
    assert sorted(ds.shuffle(seed=1)) == sorted([*RECORDS, b"x", b"y"])
    assert list(ad.ArrayRecordDataset(files[1])) == []
    check_resumes(lambda: ad.ArrayRecordDataset(files))
    check_resumes(lambda: ad.ArrayRecordDataset(files).shuffle(seed=1).batch(4), places=8)


def test_names_from_a_listing(path: Path) -> None:
    files = ad.Dataset.list_files(str(path), shuffle=False)
    assert list(ad.ArrayRecordDataset(files)) == RECORDS
    with pytest.raises(PlanError, match=r"or list_files\(shuffle=False\)"):
        ad.ArrayRecordDataset(ad.Dataset.list_files(str(path)))


def test_one_reader_travels_to_other_processes(path: Path) -> None:
    records = pickle.loads(pickle.dumps(ArrayRecords([str(path)])))
    assert (len(records), records[3], records.__getitems__([5, 2])) == (40, RECORDS[3], [RECORDS[5], RECORDS[2]])
    ds = ad.ArrayRecordDataset(path)
    assert list(ds.with_options(ad.Options(placement="process"))) == RECORDS


def test_files_that_are_none_fail_in_their_places(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "b.array_record"
    other.write_bytes(b"something else" * 1000)
    files = [path, other, tmp_path / "none", path]
    expected = [*RECORDS, Failed("DataLossError"), Failed("FileNotFoundError"), *RECORDS]
    assert results(ad.ArrayRecordDataset(files)) == expected
    assert results(ad.ArrayRecordDataset(files).with_options(ad.Options(placement="process"))) == expected
    check_resumes(lambda: ad.ArrayRecordDataset(files).shuffle(seed=1), places=12)
    with pytest.raises(DataLossError, match=r"b\.array_record: .*, or not an ArrayRecord file: .*should be"):
        list(ad.ArrayRecordDataset(other))
    with pytest.raises(FileNotFoundError, match="none"):
        ad.ArrayRecordDataset(files)[41]


def test_a_corrupt_group_fails_in_its_place(tmp_path: Path) -> None:
    path = written(tmp_path / "a.array_record", options="group_size:2,uncompressed")
    content = bytearray(path.read_bytes())
    content[content.index(RECORDS[5]) + 2] ^= 0xFF
    path.write_bytes(content)
    expected = [*RECORDS[:4], Failed("DataLossError"), Failed("DataLossError"), *RECORDS[6:]]
    assert results(ad.ArrayRecordDataset(path)) == expected
    with pytest.raises(DataLossError, match=r"a\.array_record: record 5 cannot be read: Corrupted") as caught:
        ad.ArrayRecordDataset(path)[5]
    assert "ArrayRecordDataset" in caught.value.__notes__[0]


def test_a_file_that_was_replaced(path: Path) -> None:
    ds = pickle.loads(pickle.dumps(ArrayRecords([str(path)])))
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(DataLossError, match="bytes when the dataset was made, now"):
        ds[0]


def test_mistakes(path: Path) -> None:
    with pytest.raises(PlanError, match="must be a path, several in a list"):
        ad.ArrayRecordDataset(3)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="reads local files"):
        ad.ArrayRecordDataset("http://example.org/a")
    with pytest.raises(PlanError, match="num_parallel_reads"):
        ad.ArrayRecordDataset(path, 0)
