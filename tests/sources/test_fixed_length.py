"""Records of a fixed length: in order, by number, and in files that have no such records."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.testing import check_resumes, leaves_nothing
from tests.marks import first_by_default
from tests.reference import Failed
from tests.running import WAYS, results


def packed(data: bytes, compression: str | None) -> bytes:
    if compression is None:
        return data
    return gzip.compress(data, 1) if compression == "GZIP" else zlib.compress(data, 1)


def record(number: int, size: int) -> bytes:
    return (b"%d" % number).ljust(size, b"\0")[:size]


def written(
    path: Path, count: int, size: int, header: int = 0, footer: int = 0, compression: Any = None
) -> list[bytes]:
    records = [record(number, size) for number in range(count)]
    path.write_bytes(packed(b"h" * header + b"".join(records) + b"f" * footer, compression))
    return records


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "records.bin"


@pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])
@given(
    count=st.integers(0, 30),
    size=st.sampled_from([1, 2, 7, 1000]),
    header=st.sampled_from([0, 1, 50]),
    footer=st.sampled_from([0, 1, 50]),
    buffer=st.sampled_from([1, 3, 100, None]),
)
def test_records_between_header_and_footer(
    tmp_path_factory: pytest.TempPathFactory,
    compression: str | None,
    count: int,
    size: int,
    header: int,
    footer: int,
    buffer: int | None,
) -> None:
    path = tmp_path_factory.getbasetemp() / "some.bin"
    records = written(path, count, size, header, footer, compression)
    ds = ad.FixedLengthRecordDataset(path, size, header, footer, buffer, compression)
    assert results(ds) == records
    if compression is None:
        assert len(ds) == count


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_all_ways_to_read_leave_nothing(path: Path, way: Any) -> None:
    records = written(path, 500, 4)
    with leaves_nothing():
        assert way(ad.FixedLengthRecordDataset(path, 4)) == records
        assert way(ad.FixedLengthRecordDataset(path, 4), 3) == records[:3]


def test_any_record_can_be_had(tmp_path: Path) -> None:
    names = [tmp_path / f"{number}.bin" for number in range(3)]
    records = [record for number, name in enumerate(names) for record in written(name, 10 * number, 3, 2, 1)]
    ds = ad.FixedLengthRecordDataset(names, 3, 2, 1)
    assert (len(ds), ds[0], ds[-1], ds[15]) == (30, records[0], records[-1], records[15])
    assert sorted(ds.shuffle(seed=1)) == sorted(records)
    assert list(ds.shard(3, 1)) == records[1::3]
    with pytest.raises(IndexError):
        ds.at(30)
    check_resumes(lambda: ad.FixedLengthRecordDataset(names, 3, 2, 1).shuffle(seed=1).batch(4))


def test_a_skip_reads_nothing_that_it_leaves_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # a sparse file, of which nobody could read all
    ds = ad.FixedLengthRecordDataset([path], 1 << 10)
    assert len(ds) == 1 << 30
    assert ds[-1] == bytes(1 << 10)
    assert len(next(iter(ds.shuffle(seed=1).map(bytes)))) == 1 << 10


@pytest.mark.parametrize("compression", first_by_default([None, "GZIP"]))
def test_goes_on_at_any_record(path: Path, compression: str | None) -> None:
    written(path, 300, 11, 5, 3, compression)
    build = lambda size=None: ad.FixedLengthRecordDataset(path, 11, 5, 3, size, compression)  # noqa: E731
    for size in (1, 100, None):
        check_resumes(lambda size=size: build(size))
    check_resumes(lambda: build().shuffle(20, seed=1).batch(3), places=10)


def test_a_file_of_another_layout_is_one_error_and_the_next_file_follows(tmp_path: Path) -> None:
    names = [tmp_path / name for name in ("good", "odd", "missing", "short", "last")]
    first, last = written(names[0], 3, 4), written(names[4], 2, 4)
    names[1].write_bytes(b"12345")
    names[3].write_bytes(b"123")
    expected = [*first, Failed("DataLossError"), Failed("FileNotFoundError"), Failed("DataLossError"), *last]
    ds = ad.FixedLengthRecordDataset(names, 4)
    assert results(ds) == expected
    assert len(ds) == len(expected)
    for place in range(len(expected)):  # what goes wrong with a file is not left out
        failures = [one for one in expected[:place] if isinstance(one, Failed)]
        assert results(ds.skip(place)) == [*failures, *expected[place:]]
    assert sorted(map(repr, results(ds.shuffle(seed=1)))) == sorted(map(repr, expected))
    check_resumes(lambda: ad.FixedLengthRecordDataset(names, 4))
    with pytest.raises(ad.DataLossError, match="odd: 5 bytes are not a multiple of the record length, 4 bytes"):
        ds.at(3)
    with pytest.raises(FileNotFoundError):
        ds.at(4)


def test_a_folder_in_place_of_a_file_is_one_error(tmp_path: Path) -> None:
    names = [tmp_path / name for name in ("first", "folder", "last")]
    first, last = written(names[0], 3, 4), written(names[2], 2, 4)
    names[1].mkdir()
    expected = [*first, Failed("IsADirectoryError"), *last]
    ds = ad.FixedLengthRecordDataset(names, 4)
    assert results(ds) == expected
    assert len(ds) == len(expected)
    assert results(ds.skip(4)) == expected[3:]
    assert sorted(map(repr, results(ds.shuffle(seed=1)))) == sorted(map(repr, expected))
    assert [ds.at(4), ds.at(5)] == last


def test_a_compressed_file_of_another_layout_gives_its_whole_records_and_one_error(path: Path) -> None:
    path.write_bytes(packed(b"hhaabbccd", "GZIP"))
    ds = ad.FixedLengthRecordDataset(path, 2, 2, compression_type="GZIP")
    assert results(ds) == [b"aa", b"bb", b"cc", Failed("DataLossError")]
    assert ds.cardinality() == ad.UNKNOWN_CARDINALITY
    path.write_bytes(packed(b"h", "GZIP"))
    assert results(ds) == [Failed("DataLossError")]


def test_a_file_that_changes_while_a_dataset_uses_it_is_an_error_that_says_so(path: Path) -> None:
    written(path, 4, 8)
    ds = ad.FixedLengthRecordDataset([path], 8)
    assert len(ds) == 4
    os.truncate(path, 24)
    with pytest.raises(ad.DataLossError, match="it had 32 bytes when the dataset first looked, now it has 24"):
        ds.at(1)
    assert results(ds) == [Failed("DataLossError")]


def test_several_files_at_once(tmp_path: Path) -> None:
    names = [tmp_path / f"{number}.bin" for number in range(4)]
    records = [record for number, name in enumerate(names) for record in written(name, 10 + number, 3)]
    ds = ad.FixedLengthRecordDataset(names, 3, num_parallel_reads=2)
    assert sorted(ds) == sorted(records)
    assert ds.cardinality() == ad.UNKNOWN_CARDINALITY
    check_resumes(lambda: ad.FixedLengthRecordDataset(names, 3, num_parallel_reads=2))


def test_wrong_arguments_are_errors_where_they_are_given(path: Path) -> None:
    for how in ({"record_bytes": 0}, {"record_bytes": -4}, {"record_bytes": 1, "header_bytes": -1}):
        with pytest.raises(ad.PlanError, match="must be at least"):
            ad.FixedLengthRecordDataset(path, **how)
    with pytest.raises(ad.PlanError, match="must be an integer"):
        ad.FixedLengthRecordDataset(path, "4")  # type: ignore[arg-type]


@pytest.mark.parametrize("files", [1, 3])
def test_records_that_are_skipped_are_not_read(tmp_path: Path, files: int) -> None:
    paths = [tmp_path / f"{number}.bin" for number in range(files)]
    for number, path in enumerate(paths):
        path.write_bytes(b"head" + b"".join(b"%d-%02d" % (number, record) for record in range(20)))
    ds = ad.FixedLengthRecordDataset(paths if files > 1 else paths[0], record_bytes=4, header_bytes=4)
    everything = list(ds)
    for count in (0, 1, 19, 20, len(everything) - 1, len(everything), 1000):
        with ds.iterate() as records:
            records.skip(count)
            assert "skip" not in (records.state_dict()["position"] or ())
            assert list(records) == everything[count:]


def test_a_damaged_file_that_is_named_twice_is_the_same_error_twice(tmp_path: Path) -> None:
    path = tmp_path / "damaged"
    path.write_bytes(b"12345678901")
    ds = ad.FixedLengthRecordDataset([str(path), str(path)], 4).shuffle(seed=0)
    first, second = results(ds)
    assert first.reason == second.reason == "DataLossError"
