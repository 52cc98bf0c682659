"""Rows of NumPy's files, on bytes alone."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np
import pytest

from asyncdata.errors import DataLossError
from asyncdata.formats.npy_rows import NpyParser

ARRAYS = {
    "numbers": np.arange(10, dtype=np.int16),
    "rows": np.arange(24.0).reshape(4, 3, 2),
    "columns": np.asfortranarray(np.arange(20.0).reshape(10, 2)),
    "nothing in a row": np.zeros((4, 0)),
    "no rows": np.zeros((0, 3)),
    "strings": np.array(["a", "bcd"]),
    "times": np.arange(5).astype("M8[ms]"),
    "fields": np.array([(1, 2.5), (3, 4.5)], [("a", "<i4"), ("b", "<f8")]),
    "other order": np.arange(5, dtype=">i8"),
}


def saved(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def zipped(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def read(content: bytes, step: int | None = None, **how: Any) -> list[Any]:
    parser, found = NpyParser("f", **how), []
    for at in range(0, len(content), step or max(1, len(content))):
        parser.feed(content[at : at + step] if step else content)
        while len(rows := parser.parse(3)):
            found += [*rows]
    parser.finish()
    while len(rows := parser.parse(3)):
        found += [*rows]
    return found


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("step", [None, 1, 7, 64, 131])
def test_rows_wherever_the_bytes_are_cut(name: str, step: int | None) -> None:
    array = ARRAYS[name]
    found = read(saved(array), step)
    assert len(found) == len(array)
    for row, one in zip(found, array, strict=True):
        assert np.array_equal(row, one)
        assert row.dtype == one.dtype


def test_files_cut_short_give_whole_rows_and_one_error() -> None:
    for name in ("numbers", "rows", "columns"):
        array, content = ARRAYS[name], saved(ARRAYS[name])
        for end in range(len(content)):
            *rows, error = read(content[:end], 50)
            assert isinstance(error, DataLossError)
            assert name == "columns" or len(rows) == max(0, end - 128) // (array.nbytes // len(array))
            assert np.array_equal(rows, array[: len(rows)]) or not rows


def test_archives() -> None:
    arrays = {"x": np.arange(5), "y": np.arange(10.0).reshape(5, 2)}
    content = zipped(**arrays)
    rows = read(content, 9)
    assert [row["x"] for row in rows] == [*range(5)]
    assert np.array_equal([row["y"] for row in rows], arrays["y"])
    for end in range(1, len(content)):
        (error,) = read(content[:end])
        assert isinstance(error, DataLossError)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "at byte 0 more of a header was expected"),
        (b"nothing of NumPy's", "at byte 0 b'.x93NUMPY' was expected"),
        (saved(np.array(3)), "one value of int64"),
        (saved(np.array([{}, 1])), "it holds pickled objects"),
        (zipped(x=np.array([{}])), "x.npy at byte 0: it holds pickled objects"),
        (zipped(x=np.arange(3), y=np.arange(4)), "differ in their numbers of rows"),
        (zipped(x=np.array(3)), "differ in their numbers of rows"),
        (saved(np.arange(3)) + b"more", "it continues at byte 152, where its array ends"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b"x" * 200, "its header has 4294967295 bytes"),
        (b"\x93NUMPY\x01\x00\x40\x00" + b"(" * 63 + b"\n", "its header is damaged"),
    ],
)
def test_what_cannot_be_read(content: bytes, message: str) -> None:
    for step in (None, 1):
        error = read(content, step)[-1]
        assert isinstance(error, DataLossError)
        with pytest.raises(DataLossError, match=message):
            raise error


def test_archives_that_expand_beyond_the_limit() -> None:
    content = zipped(x=np.zeros(100_000))
    (error,) = read(content, most=10_000)
    assert "max_file_bytes=10000" in str(error)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", "text")
    (error,) = read(file.getvalue())
    assert "a.txt at byte 0: it does not begin as a .npy file does" in str(error)
