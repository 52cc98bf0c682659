"""CSV files as a source."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.experimental import CsvDataset
from asyncdata.formats.csv import Column, CsvLayout, CsvParser
from asyncdata.testing import check_resumes, leaves_nothing
from tests.reference import Failed
from tests.running import WAYS, results


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table.csv"


def parsed(data: bytes, layout: CsvLayout, sizes: list[int], limit: int) -> list[Any]:
    parser, found, at = CsvParser(layout), list[Any](), 0
    for size in [*sizes, len(data)]:
        parser.feed(data[at : at + size])
        at += size
        while rows := parser.parse(limit):
            found += rows
    parser.finish()
    while rows := parser.parse(limit):
        found += rows
    return found


@given(
    rows=st.lists(st.lists(st.text('ab,"\n\r é', max_size=4), min_size=2, max_size=2), max_size=20),
    sizes=st.lists(st.integers(0, 30), max_size=8),
    limit=st.integers(1, 5),
)
def test_what_pythons_writer_writes_is_read_however_it_comes(
    rows: list[list[str]], sizes: list[int], limit: int
) -> None:
    file = io.StringIO(newline="")
    csv.writer(file).writerows(rows)
    layout = CsvLayout([Column(0, None, b"", False), Column(1, None, b"", False)], 2)
    expected = [tuple(field.encode() for field in row) for row in rows]
    assert parsed(file.getvalue().encode(), layout, sizes, limit) == expected


@given(data=st.lists(st.sampled_from([b'"', b",", b"\n", b"\r\n", b"1", b"x"]), max_size=20).map(b"".join))
def test_what_is_found_does_not_depend_on_how_bytes_come(data: bytes) -> None:
    layout = CsvLayout([Column(0, np.dtype("int32")), Column(1, None)], 2)
    whole = parsed(data, layout, [], 100)
    for size in (1, 2, 3):
        assert repr(parsed(data, layout, [size] * len(data), 100)) == repr(whole)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_kinds_defaults_and_errors_in_their_places(path: Path, way: Any) -> None:
    path.write_bytes(b'id,x,name\n1,0.5,a\n2,,b\nx,1,c\n3,1\n,1,d\n4,NA,"e""\n"\n5,1,f"\n6,2,g\n')
    with leaves_nothing():
        found = way(CsvDataset(path, [np.int64, [np.float64(9)], "string"], header=True, na_value="NA"))
    lost = Failed("DataLossError")
    assert found == [(1, 0.5, b"a"), (2, 9.0, b"b"), lost, lost, lost, (4, 9.0, b'e"\n'), lost, (6, 2.0, b"g")]
    assert [type(part) for part in found[0]] == [np.int64, np.float64, bytes]


def test_what_stands_for_missing_may_look_like_a_number_of_pythons(path: Path) -> None:
    path.write_text("1\n_1\n1_0\n")
    assert results(CsvDataset(path, [[7]], na_value="_1")) == [(1,), (7,), Failed("DataLossError")]


def test_an_error_says_which_file_record_and_field(path: Path) -> None:
    path.write_text("1\nx\n")
    with pytest.raises(ad.DataLossError, match="field 0 is no int32: b'x'") as caught:
        list(CsvDataset(path, ["int32"]))
    assert caught.value.__notes__ == [f"in CsvDataset({path}), element 1"]


def test_columns_are_chosen(path: Path) -> None:
    path.write_text("1;2;3\n4;5;6\n")
    assert list(CsvDataset(path, ["int32"] * 2, field_delim=";", select_cols=[0, 2])) == [(1, 3), (4, 6)]
    assert list(CsvDataset(path, ["int32"] * 2, field_delim=";", exclude_cols=[0])) == [(2, 3), (5, 6)]
    assert results(CsvDataset(path, ["int32"], field_delim=";")) == [Failed("DataLossError")] * 2


@pytest.mark.parametrize("compression", [None, "GZIP"])
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("size", [7, None])
def test_goes_on_at_any_record(path: Path, compression: str | None, header: bool, size: int | None) -> None:
    names = ["line" if n % 7 else "two\nlines" for n in range(200)]
    rows = [f'{n},"{name}"' if n % 11 else "bad" for n, name in enumerate(names)]
    data = "\r\n".join([*(["id,name"] if header else []), *rows]).encode()
    path.write_bytes(gzip.compress(data) if compression else data)

    def build() -> ad.Dataset:
        return CsvDataset(path, ["int32", "string"], compression, size, header)

    assert len(results(build())) == 200
    check_resumes(build)
    check_resumes(lambda: build().shuffle(9, seed=1), places=10)


def test_goes_on_within_a_window_and_behind_it(path: Path) -> None:
    path.write_text("id\n" + "\n".join(map(str, range(40_000))))
    check_resumes(lambda: CsvDataset(path, ["int32"], header=True), places=12)


def test_each_file_has_a_header_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    names = [tmp_path / f"{number}.csv" for number in range(3)]
    for number in (0, 2):
        names[number].write_text(f"id\n{number}\n")
    assert results(CsvDataset(names, ["int32"], header=True)) == [(0,), Failed("FileNotFoundError"), (2,)]


def test_batches_have_the_dtypes_of_the_columns(path: Path) -> None:
    path.write_text("1,2.5,a\n2,3.5,b\n")
    (batch,) = CsvDataset(path, ["int32", "float32", "string"]).batch(2)
    assert [part.dtype for part in batch] == [np.int32, np.float32, object]
    assert CsvDataset(path, ["int32", "string"]).element_spec == (
        ad.TensorSpec((), "int32"),
        ad.TensorSpec((), object),
    )


def test_a_quote_that_is_never_closed_costs_no_more_time_than_the_file_is_long(path: Path) -> None:
    path.write_bytes(b'1,"' + b"x\n" * 3_000_000)
    assert results(CsvDataset(path, ["int32", "string"])) == [Failed("DataLossError")]


@pytest.mark.parametrize(
    ("defaults", "how", "words"),
    [
        ([], {}, "needs a member"),
        (["uint8"], {}, "for each column a dtype"),
        ([[1, 2]], {}, "a list of one value"),
        ([[None]], {}, "a number or a string|a list of one"),
        (["int32"], {"select_cols": [0], "exclude_cols": [1]}, "not both"),
        (["int32"], {"select_cols": [0, 1]}, "has 2 columns, record_defaults 1"),
        (["int32", "int32"], {"select_cols": [1, 0]}, "in rising order"),
        (["int32"], {"field_delim": ",,"}, "must be one character"),
        (["int32"], {"field_delim": '"'}, "must be one character"),
        (["int32"], {"compression_type": "ZIP"}, "compression_type must be"),
    ],
)
def test_wrong_arguments_are_errors_where_they_are_given(defaults: Any, how: Any, words: str, path: Path) -> None:
    with pytest.raises(ad.PlanError, match=words):
        CsvDataset(path, defaults, **how)
