"""Records that are longer than `max_record_bytes`: an error in their place, bounded memory, and readers that end."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.formats import compression as compression_module
from asyncdata.formats.compression import decompressor, zstd_module
from asyncdata.formats.fixed_length import FixedParser
from asyncdata.formats.lines import LineParser
from asyncdata.formats.tfrecord import LARGE, frame
from asyncdata.testing import check_resumes
from tests.marks import first_by_default
from tests.running import WAYS, read_plain

PACK = {None: lambda data: data, "GZIP": gzip.compress, "ZLIB": zlib.compress}
SPARSE = 64 << 30


def results(ds: ad.Dataset[Any]) -> list[Any]:
    """All elements of a dataset, the messages of errors in their places."""
    found: list[Any] = []
    with ds.iterate() as elements:
        while True:
            try:
                found.append(next(elements))
            except StopIteration:
                return found
            except ad.DataLossError as error:
                found.append(str(error))


def csv(path: Any, compression: str | None, buffer: int | None, most: int) -> ad.Dataset[Any]:
    return ad.experimental.CsvDataset(
        path, [np.int32, "none"], compression_type=compression, buffer_size=buffer, max_record_bytes=most
    )


def lines(path: Any, compression: str | None, buffer: int | None, most: int) -> ad.Dataset[Any]:
    return ad.TextLineDataset(path, compression, buffer, max_record_bytes=most)


def records(path: Any, compression: str | None, buffer: int | None, most: int) -> ad.Dataset[Any]:
    return ad.TFRecordDataset(path, compression, buffer, max_record_bytes=most)


def values(path: Any, compression: str | None, buffer: int | None, most: int) -> ad.Dataset[Any]:
    return ad.JsonLinesDataset(path, compression, buffer, max_record_bytes=most)


LONG = b"7," + b"x" * 18
CASES: dict[str, tuple[Any, bytes, int, int]] = {  # reader, content, the offset of the long one, its length
    "lines": (lines, b"one\n\n\r\n" + LONG + b"\nmore\n", 7, 20),
    "last line": (lines, b"one\n" + LONG, 4, 20),
    "returns count": (lines, b"one\n" + b"\r" * 20 + b"\nmore\n", 4, 20),
    "json": (values, b"1\n\n[2]\n" + b"3" * 20 + b"\n4\n", 7, 20),
    "last of json": (values, b"1\n" + b"3" * 20, 2, 20),
    "records": (records, frame(b"one") + frame(b"") + frame(LONG) + frame(b"more"), 35, 20),
    "records of one length": (records, frame(b"one") * 40 + frame(LONG) * 40, 760, 20),
    "last record": (records, frame(b"one") + frame(LONG), 19, 20),
    "csv": (csv, b"1,a\r\n2,b\n" + LONG + b"\n3,c\n", 9, 20),
    "last of csv": (csv, b"1,a\n" + LONG, 4, 20),
    "quoted csv": (csv, b'1,a\n2,"b\n"\n7,"' + b"x\n" * 8 + b'"\n3,c\n', 11, 20),
    "quote that is not closed": (csv, b'1,a\n7,"' + b"x" * 30, 4, 20),
}


@pytest.mark.parametrize("buffer", first_by_default([7, None, 1, 30], 2))
@pytest.mark.parametrize("compression", PACK)
@pytest.mark.parametrize("case", CASES)
def test_a_long_record_is_an_error_in_its_place(
    case: str, compression: str | None, buffer: int | None, tmp_path: Path
) -> None:
    read, content, offset, length = CASES[case]
    path = tmp_path / "file"
    path.write_bytes(PACK[compression](content))
    whole = results(read([path, path], compression, buffer, 1 << 20))
    *before, error = results(read(path, compression, buffer, length - 1))
    assert before == whole[: len(before)]
    word = "uncompressed byte" if compression else "byte"
    assert f"{path}: the {'line' if read in (lines, values) else 'record'} at {word} {offset} is longer than" in error
    assert f"max_record_bytes={length - 1}" in error
    assert len(results(read([path, path], compression, buffer, length - 1))) == 2 * (len(before) + 1)
    if case != "quote that is not closed":
        assert results(read([path, path], compression, buffer, length)) == whole


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", ["lines", "records", "csv", "quoted csv"])
def test_a_long_record_in_every_way_and_from_every_state(case: str, way: Any, tmp_path: Path) -> None:
    read, content, _, length = CASES[case]
    path = tmp_path / "file"
    path.write_bytes(content)
    ds = read([path, path], None, None, length - 1)
    assert way(ds) == read_plain(ds)
    check_resumes(lambda: read([path, path], None, None, length - 1))


@pytest.mark.parametrize("case", ["lines", "records", "csv"])
def test_a_state_goes_on_with_another_limit(case: str, tmp_path: Path) -> None:
    read, content, _, length = CASES[case]
    path = tmp_path / "file"
    path.write_bytes(content)
    with read([path], None, None, length - 1).iterate() as elements:
        found = [next(elements), next(elements)]
        state = elements.state_dict()
    raised = read([path], None, None, length)
    with raised.iterate(state=state) as elements:
        assert [*found, *elements] == list(raised)
    assert raised.fingerprint() == read([path], None, None, length - 1).fingerprint()


@pytest.mark.parametrize("most", [9, 10])
def test_records_by_number(most: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(frame(b"one") + frame(b"x" * 10) + frame(b"two"))
    ds = ad.TFRecordDataset(path, index=True, max_record_bytes=most)
    ordered = results(ad.TFRecordDataset(path, max_record_bytes=most))
    assert len(ds) == len(ordered) == (2 if most == 9 else 3)
    assert results(ds) == ordered
    assert sorted(map(str, results(ds.shuffle()))) == sorted(map(str, ordered))
    if most == 9:
        with pytest.raises(ad.DataLossError, match=r"the record at byte 19 is longer than max_record_bytes=9"):
            _ = ds[1]


@pytest.mark.parametrize("most", [LARGE, LARGE + 1])
def test_large_records_that_are_read_each_by_itself(most: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(frame(b"x" * LARGE) * 40 + frame(b"y" * (LARGE + 1)) + frame(b"z"))
    found = results(ad.TFRecordDataset(path, max_record_bytes=most))
    assert len(found) == (41 if most == LARGE else 42)
    assert found[:40] == [b"x" * LARGE] * 40


def test_make_csv_dataset(tmp_path: Path) -> None:
    path = tmp_path / "file.csv"
    path.write_bytes(b"id,name\n1,one\n2," + b"x" * 30 + b"\n")

    def made(most: int) -> ad.Dataset[Any]:
        return ad.experimental.make_csv_dataset(
            path, 1, column_defaults=[0, ""], num_epochs=1, shuffle=False, max_record_bytes=most
        )

    first, error = results(made(20))
    assert first["id"].tolist() == [1]
    assert "the record at byte 14 is longer than max_record_bytes=20" in error
    assert len(results(made(32))) == 2
    with pytest.raises(ad.DataLossError, match="max_record_bytes=5"):
        made(5)  # the header


@pytest.mark.parametrize(
    "make",
    [
        lambda most: ad.TextLineDataset("file", max_record_bytes=most),
        lambda most: ad.JsonLinesDataset("file", max_record_bytes=most),
        lambda most: ad.TFRecordDataset("file", max_record_bytes=most),
        lambda most: ad.experimental.CsvDataset("file", [int], max_record_bytes=most),
        lambda most: ad.experimental.make_csv_dataset("file", 1, max_record_bytes=most),
        lambda most: ad.Dataset.range(1).cache("file", max_record_bytes=most),
        lambda most: ad.Dataset.range(1).snapshot("folder", max_record_bytes=most),
        lambda most: ad.Dataset.load("folder", max_record_bytes=most),
    ],
)
@pytest.mark.parametrize("most", [0, -1, 1.5, "9"])
def test_a_limit_is_a_positive_integer(
    make: Callable[[Any], Any], most: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_bytes(b"")
    with pytest.raises((ad.PlanError, TypeError), match="max_record_bytes"):
        make(most)


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_load(compression: str | None, tmp_path: Path) -> None:
    path = str(tmp_path / "saved")
    ad.Dataset.from_list([b"one", b"x" * 100, b"two"]).save(path, compression=compression)
    first, error, *more = results(ad.Dataset.load(path, max_record_bytes=50))
    assert (first, more) == (b"one", [])
    assert "is longer than max_record_bytes=50" in error
    assert list(ad.Dataset.load(path, max_record_bytes=200)) == [b"one", b"x" * 100, b"two"]


@pytest.mark.parametrize("keep", ["cache", "snapshot"])
def test_files_of_kept_elements(keep: str, tmp_path: Path) -> None:
    elements = [b"one", b"x" * 5000, b"two"]

    def kept(most: int) -> ad.Dataset[Any]:
        return getattr(ad.Dataset.from_list(elements), keep)(str(tmp_path / "kept"), max_record_bytes=most)

    assert list(kept(1 << 20)) == elements
    first, error, *_ = results(kept(2000))
    assert first == b"one"
    assert "is longer than max_record_bytes=2000" in error
    with pytest.raises(ad.DataLossError):
        _ = kept(2000)[1]
    assert list(kept(1 << 20)) == elements


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB", "BZ2", pytest.param("ZSTD", marks=pytest.mark.formats)])
@pytest.mark.parametrize("piece", [1, 100, 4096])
def test_decompression_in_pieces(compression: str, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression_module, "PIECE_BYTES", piece)
    pack = {**PACK, "BZ2": bz2.compress, "ZSTD": lambda data: zstd_module().compress(data)}[compression]
    data = np.random.default_rng(1).bytes(500) + bytes(4096)
    two = pack(data) + bytes(3) + pack(b"") + pack(data)
    for packed, wanted in ((pack(data), data), (two, data + data)):
        for block in (1, 50, len(packed)):
            expand, found = decompressor(compression), []
            for start in range(0, len(packed), block):
                found.append(expand.feed(packed[start : start + block]))
                while expand.waiting:
                    found.append(expand.feed(b""))
            expand.finish()
            assert max(map(len, found)) <= piece
            assert b"".join(map(bytes, found)) == wanted


@pytest.mark.slow
def test_memory_is_bounded(tmp_path: Path) -> None:
    """In a process that may take 256 MB more than it has."""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.faults.oversized", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["lines", "csv", "quoted", "records", "indexed", "header", "bomb", "loaded"]


UNBOUNDED: dict[str, tuple[Any, Any]] = {
    "lines": (LineParser, lambda path: ad.TextLineDataset(path, max_record_bytes=SPARSE)),
    "fixed": (FixedParser, lambda path: ad.FixedLengthRecordDataset(path, 1, header_bytes=SPARSE - 1)),
}


def begun(parser: Any, monkeypatch: pytest.MonkeyPatch, begin: Callable[[], None]) -> None:
    """Have a function called when something is read."""
    feed = parser.feed
    monkeypatch.setattr(parser, "feed", lambda self, data: (begin(), feed(self, data))[1])


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(SPARSE)
    return path


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("case", UNBOUNDED)
def test_a_thread_that_reads_a_file_without_records_ends(
    case: str, sparse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parser, make = UNBOUNDED[case]
    reading, ended = threading.Event(), list[BaseException]()
    begun(parser, monkeypatch, reading.set)
    elements = make(sparse).iterate()

    def read() -> None:
        try:
            next(elements)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    assert reading.wait(120)
    elements.close()
    thread.join(120)
    assert [type(error) for error in ended] == [ad.ClosedError]


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("case", UNBOUNDED)
def test_a_loop_that_reads_a_file_without_records_goes_on(
    case: str, sparse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parser, make = UNBOUNDED[case]

    async def left() -> None:
        reading = asyncio.Event()
        begun(parser, monkeypatch, reading.set)
        async with make(sparse).with_options(ad.Options(placement="current")).iterate() as elements:
            task = asyncio.ensure_future(anext(elements))
            await reading.wait()
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()

    asyncio.run(left())
