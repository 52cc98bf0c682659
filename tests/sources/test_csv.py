"""CSV files: how records are taken apart, whatever blocks they come in, and what is wrong with one."""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.experimental import CsvDataset
from asyncdata.formats.csv import WINDOW, Column, CsvParser, Dialect, Splitter, Table
from asyncdata.testing import check_resumes, leaves_nothing
from tests.marks import first_by_default
from tests.reference import Failed
from tests.running import WAYS, results

FAILED = Failed("DataLossError")
I32 = np.int32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table.csv"


def parsed(data: bytes, width: int, cuts: list[int] | None = None, limit: int = 1000, **how: Any) -> list[Any]:
    """The records of a file that comes in these pieces, as tuples of strings; "failed" for one that is wrong."""
    columns = tuple([Column(place, np.dtype(object), b"") for place in range(width)])
    table = Table(columns, frozenset({b""}), lambda count: count == width, str(width))
    parser, found = CsvParser("a.csv", Dialect(**how), table), list[Any]()
    for start, stop in pairwise(sorted({0, *[min(cut, len(data)) for cut in cuts or ()], len(data)})):
        parser.feed(data[start:stop])
        while some := parser.parse(limit):
            found += some
    parser.finish()
    while some := parser.parse(limit):
        found += some
    return ["failed" if isinstance(one, Exception) else one for one in found]


fields = st.text(st.sampled_from('ab,"\r\n \0é'), max_size=6)
tables = st.integers(2, 4).flatmap(
    lambda width: st.lists(st.lists(fields, min_size=width, max_size=width), max_size=12)
)


@given(
    table=tables,
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    cuts=st.lists(st.integers(0, 100), max_size=5),
    limit=st.integers(1, 5),
)
def test_what_pythons_csv_writes_is_read_as_it_was(
    table: list[list[str]], end: str, cuts: list[int], limit: int
) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator=end, quoting=csv.QUOTE_ALL).writerows(table)
    width = len(table[0]) if table else 2
    found = parsed(text.getvalue().encode(), width, cuts, limit)
    assert found == [tuple([field.encode() for field in row]) for row in table]


ODD = [b"a", b"", b'""', b'"x,y"', b'"q""q"', b'"\r\n"', b'"\n"', b"'", b'a"', b'"b"c', b'"', b"\x1f", b" "]
records = st.lists(st.tuples(*[st.sampled_from(ODD[:8]) | st.sampled_from(ODD)] * 2), max_size=8)
ends = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(records=records, ends=st.lists(ends, min_size=8, max_size=8), cuts=st.lists(st.integers(0, 60), max_size=3))
def test_records_found_all_at_once_are_those_found_one_by_one(
    records: list[tuple[bytes, bytes]], ends: list[bytes], cuts: list[int]
) -> None:
    data = b"".join([b",".join(record) + end for record, end in zip(records, ends, strict=False)])
    for quotes in (True, False):
        with patch.object(Splitter, "grid", lambda *_: None):
            one_by_one = [parsed(text, 2, quotes=quotes) for text in (data, data[:-1])]
        assert [parsed(text, 2, cuts, quotes=quotes) for text in (data, data[:-1])] == one_by_one


pieces = st.lists(st.sampled_from([b"\n", b"\r\n", b"\r", b",", b'"', b'""', b"a", b"bc", b",", b"\n"]), max_size=30)


@given(data=pieces.map(b"".join), cuts=st.lists(st.integers(0, 60), max_size=5), limit=st.integers(1, 5))
def test_records_do_not_depend_on_how_bytes_come_or_records_are_taken(data: bytes, cuts: list[int], limit: int) -> None:
    for quotes in (True, False):
        assert parsed(data, 2, cuts, limit, quotes=quotes) == parsed(data, 2, quotes=quotes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("a,b", [(b"a", b"b")]),
        ("a,b\nc,d\n", [(b"a", b"b"), (b"c", b"d")]),
        ('"a,\n""b""",c\r\nd,e', [(b'a,\n"b"', b"c"), (b"d", b"e")]),
        ("a,b\n\nc,d", [(b"a", b"b"), FAILED, (b"c", b"d")]),
        ("a\nb,c,d\ne,f", [FAILED, FAILED, (b"e", b"f")]),
        (',b\n"",c\nd,e', [FAILED, FAILED, (b"d", b"e")]),
        ('a"b,c\n"d"e","\nf,g"\n"h","i"', [FAILED, FAILED, (b"h", b"i")]),
        ('a,b\nc,"d\ne,f\n', [(b"a", b"b"), FAILED]),
    ],
)
@pytest.mark.parametrize("compression", [None, "GZIP"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_record_that_is_wrong_fails_in_its_place(
    path: Path, text: str, expected: list[Any], compression: str | None, way: Any
) -> None:
    path.write_bytes(gzip.compress(text.encode()) if compression else text.encode())
    with leaves_nothing():
        assert way(CsvDataset(path, [str, str], compression)) == expected


@pytest.mark.slow
def test_batches_of_columns_hold_what_batches_of_records_hold(path: Path) -> None:
    path.write_text("".join([f'{n},"{n}, {"x" * (n % 9)}",{n / 8}\n' for n in range(9000)] + ["1,2,x\n", "7,8,9\n"]))

    def records() -> ad.Dataset[Any]:
        return CsvDataset([path, path], [I32, str, np.float32])

    plain = ad.Dataset.from_list(list(records().ignore_errors()))
    for batches, expected in [
        (records().ignore_errors().batch(700), plain.batch(700)),
        (records().take(8000).skip(3).repeat(2).batch(999), plain.take(8000).skip(3).repeat(2).batch(999)),
        (records().take(9000).prefetch(9).shard(3, 1).batch(64), plain.take(9000).shard(3, 1).batch(64)),
    ]:
        for got, wanted in zip(batches, expected, strict=True):
            assert [(part.dtype, part.tolist()) for part in got] == [(part.dtype, part.tolist()) for part in wanted]
            assert all(part.flags.owndata for part in got)
    check_resumes(lambda: records().batch(2500))


def test_values_have_the_types_and_defaults_that_were_told(path: Path) -> None:
    path.write_text("1,2,3,4,x\n,,,,\n -1 ,+2,1e3,-inf,NA\n")
    ds = CsvDataset(path, [[7], np.array(8, np.int32), 1.5, np.float32(2.5), "none"], na_value="NA")
    found = list(ds)
    assert found == [(1, 2, 3, 4, b"x"), (7, 8, 1.5, 2.5, b"none"), (-1, 2, 1e3, -np.inf, b"none")]
    types = [np.int64, np.int32, np.float64, np.float32]
    assert {tuple(map(type, one)) for one in found} == {(*types, bytes)}
    assert ds.element_spec == tuple([ad.TensorSpec((), dtype) for dtype in (*types, object)])
    assert [part.dtype.name for part in next(iter(ds.batch(3)))] == ["int64", "int32", "float64", "float32", "object"]


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64, int, float, np.dtype("int32")])
@pytest.mark.parametrize("field", ["", "NA", "x", "1_0", "--1", "0x1", "1 2", "99999999999999999999x"])
def test_a_required_field_that_is_missing_or_has_not_its_type_fails_and_no_other(
    path: Path, dtype: Any, field: str
) -> None:
    path.write_text(f"1\n{field}\n3\n")
    assert results(CsvDataset(path, [dtype], na_value="NA")) == [(1,), FAILED, (3,)]


def test_numbers_that_do_not_fit_fail(path: Path) -> None:
    path.write_text(f"{2**31 - 1}\n{2**31}\n{-(2**31)}\n{2**63}\n")
    assert results(CsvDataset(path, [np.int32])) == [(2**31 - 1,), FAILED, (-(2**31),), FAILED]
    assert results(CsvDataset(path, [int])) == [(2**31 - 1,), (2**31,), (-(2**31),), FAILED]


def test_columns_can_be_chosen(path: Path) -> None:
    path.write_text("1,2,3\n4,5\n6,7,8,9\n")
    assert results(CsvDataset(path, [I32, I32], select_cols=[0, 2])) == [(1, 3), FAILED, (6, 8)]
    assert results(CsvDataset(path, [I32], select_cols=[1])) == [(2,), (5,), (7,)]
    assert results(CsvDataset(path, [I32, I32], exclude_cols=[1])) == [(1, 3), FAILED, FAILED]
    assert results(CsvDataset(path, [I32, I32], exclude_cols=[2, 3])) == [(1, 2), (4, 5), (6, 7)]


def test_the_header_of_each_file_is_left_out(tmp_path: Path) -> None:
    names = [str(tmp_path / f"{number}.csv") for number in range(4)]
    for name, text in zip(names, ['"a\n",b,c\n1,2\n', "a,b", "", "a,b\n3,4"], strict=True):
        Path(name).write_text(text)
    assert results(CsvDataset(names, [I32, I32], header=True)) == [(1, 2), FAILED, (3, 4)]
    Path(names[2]).write_text('a"b\n5,6')
    assert results(CsvDataset(names, [I32, I32], header=True)) == [(1, 2), FAILED, (5, 6), (3, 4)]
    assert results(CsvDataset(ad.Dataset.from_iterable(names[3:]), [I32, I32], header=True)) == [(3, 4)]


def test_other_delimiters_and_no_quotes(path: Path) -> None:
    path.write_text('1;"2\n"3";4\n')
    assert results(CsvDataset(path, [str, str], field_delim=";", use_quote_delim=False)) == [
        (b"1", b'"2'),
        (b'"3"', b"4"),
    ]
    path.write_text('a|"b|c"\n')
    assert results(CsvDataset(path, [str, str], field_delim="|")) == [(b"a", b"b|c")]
    path.write_text('a^"b^c"\n')
    assert results(CsvDataset(path, [str, str], field_delim="^")) == [(b"a", b"b^c")]


def many(count: int) -> bytes:
    """Records of many lengths, some of them quoted over two lines, some wrong."""
    rows = [b'%d,"%s\n"' % (n, b"x" * (n % 70)) if n % 3 else b"%d,%d" % (n, n) for n in range(count)]
    return b"a,b\n" + b"\r\n".join([b"%s,1" % row if n % 11 == 7 else row for n, row in enumerate(rows)])


@pytest.mark.parametrize("compression", first_by_default(["GZIP", None]))
@pytest.mark.parametrize("size", first_by_default([50, None, 1]))
def test_goes_on_at_any_record(path: Path, compression: str | None, size: int | None) -> None:
    data = many(80)  # one of each length, and more
    path.write_bytes(gzip.compress(data) if compression else data)
    check_resumes(lambda: CsvDataset(path, [I32, ""], compression, size, header=True))
    check_resumes(lambda: CsvDataset(path, [I32, ""], compression, size, header=True).shuffle(20, seed=1), places=8)


@pytest.mark.slow
def test_goes_on_at_a_byte_offset_close_to_the_record(path: Path) -> None:
    path.write_bytes(many(20_000))
    check_resumes(lambda: CsvDataset(path, [I32, ""], header=True), places=8)
    with CsvDataset(path, [I32, ""], header=True).ignore_errors().iterate() as records:
        for _ in range(18_000):
            next(records)
        position = records.state_dict()["position"]
    assert position[3] > 6 * WINDOW  # what comes before it is not read again


def test_a_quoted_field_that_is_never_closed_is_read_in_time_that_grows_with_its_length(path: Path) -> None:
    path.write_bytes(b'1,2\n3,"' + b"x,\n" * (4 << 20))
    assert results(CsvDataset(path, [I32, ""], buffer_size=1 << 16)) == [(1, b"2"), FAILED]


def test_an_error_names_file_field_and_element(path: Path) -> None:
    path.write_text("1\nx\n")
    with CsvDataset(path, [I32]).iterate() as records:
        next(records)
        with pytest.raises(
            ad.DataLossError, match=r"table\.csv: field 0 of the record: .* valid int32: b'x'"
        ) as caught:
            next(records)
    assert caught.value.__notes__ == [f"in CsvDataset({path}), element 1"]
    with pytest.raises(FileNotFoundError):
        list(CsvDataset(path.with_name("none"), [I32]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"record_defaults": []}, "record_defaults must have"),
        ({"record_defaults": "int32"}, "record_defaults must have"),
        ({"record_defaults": [[1, 2]]}, "a default of record_defaults must be one"),
        ({"record_defaults": [None]}, "a default of record_defaults must be one"),
        ({"record_defaults": [bool]}, "a column must be int32, int64"),
        ({"record_defaults": [dict]}, "a column must be int32, int64"),
        ({"record_defaults": [np.float16]}, "a column must be int32, int64"),
        ({"field_delim": ";;"}, "field_delim must be one ASCII character"),
        ({"field_delim": '"'}, "field_delim must be one ASCII character"),
        ({"field_delim": b","}, "field_delim must be one ASCII character"),
        ({"select_cols": [1, 0]}, "select_cols must be"),
        ({"select_cols": [0]}, "select_cols has 1 columns, and record_defaults 2"),
        ({"select_cols": [0, 1], "exclude_cols": [2]}, "either select_cols or exclude_cols"),
        ({"exclude_cols": [-1]}, "exclude_cols must be"),
        ({"compression_type": "ZIP"}, "compression_type must be"),
        ({"buffer_size": -2}, "buffer_size"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_errors_where_they_are_given(path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ad.PlanError, match=message):
        CsvDataset(path, **{"record_defaults": [int, int], **arguments})


def test_an_error_keeps_nobody_alive(tmp_path: Path) -> None:
    """Its traceback leads to the loop that it was raised in, and that to the iterator."""
    path = tmp_path / "a.csv"
    path.write_text("1,2\n3\n5,6\n")

    async def read_two() -> None:
        elements = aiter(ad.experimental.CsvDataset(str(path), [0, 0]))
        await anext(elements)
        with pytest.raises(ad.DataLossError):
            await anext(elements)

    with leaves_nothing():
        asyncio.run(read_two())
