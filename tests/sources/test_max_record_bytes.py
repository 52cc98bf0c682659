"""A line, a record or a field without an end is an error in its place: `max_record_bytes`."""

from __future__ import annotations

import base64
import gzip
import random
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.formats.tfrecord import frame, masked_crc

LIMIT = 100_000
BLOCK = 1 << 14
LONG = base64.b64encode(random.Random(1).randbytes(3 * LIMIT))
"""What no compression makes much shorter."""

READERS: dict[str, tuple[Callable[..., ad.Dataset[Any]], bytes, bytes, bytes]] = {
    "lines": (ad.TextLineDataset, b"ab\n", LONG + b"\n", b"more\n"),
    "records": (ad.TFRecordDataset, frame(b"ab"), frame(LONG), frame(b"more")),
    "csv": (
        lambda path, **more: ad.experimental.CsvDataset(path, [""], **more),
        b"ab\n",
        b'"' + LONG + b'"\n',
        b"more\n",
    ),
}
"""Readers, and in each one's format an element, one that is too long, and another."""


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest) -> Any:
    return READERS[request.param]


def taken(ds: ad.Dataset[Any]) -> list[Any]:
    """Return all elements, errors in their places."""
    iterator, found = iter(ds), list[Any]()
    while True:
        try:
            found.append(next(iterator))
        except StopIteration:
            return found
        except ad.DataLossError as error:
            found.append(error)


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_what_is_too_long_is_an_error_in_its_place(tmp_path: Path, reader: Any, compression: str | None) -> None:
    make, short, long, more = reader
    paths = [tmp_path / "one", tmp_path / "two"]
    for path in paths:
        text = short + long + more
        path.write_bytes(gzip.compress(text) if compression else text)
    read = {"compression_type": compression, "buffer_size": BLOCK}
    (first,) = make(paths[0], **read).take(1)
    found = taken(make(paths, **read, max_record_bytes=LIMIT))
    assert [found[0], found[2]] == [first, first]
    for path, error in zip(paths, found[1::2], strict=True):
        assert f"{path}: " in str(error)
        assert f"byte {len(short)} " in str(error)
        assert f"max_record_bytes={LIMIT}" in str(error)
    assert len(taken(make(paths, **read, max_record_bytes=5 * LIMIT))) == 6
    assert not any(isinstance(one, Exception) for one in taken(make(paths, **read)))


def test_the_limit_is_no_part_of_a_state_or_a_fingerprint(tmp_path: Path, reader: Any) -> None:
    make, short, _, more = reader
    path = tmp_path / "one"
    path.write_bytes(short + more)
    one, other = make(path), make(path, max_record_bytes=LIMIT)
    assert one.fingerprint() == other.fingerprint()
    begun = iter(one)
    next(begun)
    resumed = iter(other)
    resumed.load_state_dict(begun.state_dict())
    assert len(list(resumed)) == 1


def test_a_record_of_any_length_reserves_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "hostile"
    length = struct.pack("<Q", 1 << 36)
    path.write_bytes(frame(b"ab") + length + struct.pack("<I", masked_crc(length)))
    with path.open("r+b") as file:
        file.truncate(1 << 37)  # a sparse file: all of the record is there
    first, error = taken(ad.TFRecordDataset(path))
    assert first == b"ab"
    assert "max_record_bytes" in str(error)


def test_a_stream_that_expands_without_a_newline_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", 1) as file:
        for _ in range(40):
            file.write(bytes(1 << 20))
    (error,) = taken(ad.TextLineDataset(path, "GZIP", max_record_bytes=1 << 20))
    assert "uncompressed byte 0 has more than max_record_bytes=1048576" in str(error)


def test_elements_that_are_kept_may_have_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncdata.sources.parsed.MAX_RECORD_BYTES", 10)
    ds = ad.Dataset.range(3).map(lambda x: np.full(10_000, x))
    ds.save(tmp_path / "saved")
    for kept in (ds.cache(tmp_path / "cache"), ds.cache(tmp_path / "cache"), ad.Dataset.load(tmp_path / "saved")):
        assert [int(one[-1]) for one in kept] == [0, 1, 2]


@pytest.mark.parametrize("value", [0, -1, 1.5, None])
def test_a_limit_that_is_none_is_refused(tmp_path: Path, reader: Any, value: Any) -> None:
    with pytest.raises(ad.PlanError, match="max_record_bytes"):
        reader[0](tmp_path / "one", max_record_bytes=value)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a sparse file, and reads from the page cache at once")
def test_reading_ends_with_the_pipeline(tmp_path: Path) -> None:
    """Though no element ever comes."""
    path = tmp_path / "endless"
    with path.open("wb") as file:
        file.truncate(1 << 36)
    before, begun = set(threading.enumerate()), threading.Event()

    def read() -> None:
        with pytest.raises(ad.ClosedError):
            next(lines)

    def paths() -> Iterator[str]:
        begun.set()
        yield str(path)

    lines = iter(ad.TextLineDataset(ad.Dataset.from_generator(paths), max_record_bytes=1 << 40))
    reader = threading.Thread(target=read)
    reader.start()
    begun.wait()
    lines.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(20)
        assert not thread.is_alive()
