"""Batches of CSV files by column: names, types, order, and what is refused when it is called."""

from __future__ import annotations

import gzip
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.experimental import make_csv_dataset
from asyncdata.testing import check_resumes, leaves_nothing
from tests.reference import Failed
from tests.running import results

ONCE: dict[str, Any] = {"num_epochs": 1, "shuffle": False}
THREE = "a,b\n1,2\n3,4\n5,6\n"


@pytest.fixture
def files(tmp_path: Path) -> Any:
    """Write files; return the pattern that matches them."""

    def write(*texts: str) -> str:
        for number, text in enumerate(texts):
            (tmp_path / f"{number}.csv").write_text(text, newline="")
        return str(tmp_path / "*.csv")

    return write


def lists(batch: Any) -> Any:
    """A batch with lists for arrays."""
    if isinstance(batch, tuple):
        return tuple(map(lists, batch))
    return {name: lists(column) for name, column in batch.items()} if isinstance(batch, dict) else batch.tolist()


def batches(*args: Any, **how: Any) -> list[Any]:
    with leaves_nothing():
        return [one if isinstance(one, Failed) else lists(one) for one in results(make_csv_dataset(*args, **how))]


def test_the_size_of_a_batch_is_known_only_where_all_have_it(files: Any) -> None:
    pattern = files(THREE)
    numbers = {name: ad.TensorSpec((None,), "int32") for name in "ab"}
    assert make_csv_dataset(pattern, 2, **ONCE).element_spec == numbers
    assert make_csv_dataset(pattern, 2, num_epochs=3).plan.signature == numbers
    endless = make_csv_dataset(pattern, 2, label_name="b").plan.signature
    assert endless == ({"a": ad.TensorSpec((2,), "int32")}, ad.TensorSpec((2,), "int32"))
    strings = make_csv_dataset(pattern, 2, column_defaults=["", 0.5]).plan.signature
    assert strings == {"a": ad.TensorSpec((2,), object), "b": ad.TensorSpec((2,), "float64")}


def test_a_set_that_begins_with_a_caret_is_of_all_other_characters(files: Any, tmp_path: Path) -> None:
    files(THREE, "a,b\n7,8\n")
    assert batches(str(tmp_path / "[^0].csv"), 2, **ONCE) == [{"a": [7], "b": [8]}]


def test_types_are_the_first_that_fit_and_what_is_missing_is_zero_or_empty(files: Any) -> None:
    pattern = files("a,b,c,d,e,f\n1,99999999999,1.5,1e300,x,\n2,3,4,-5,6,\n,,,,,\n")
    (batch,) = make_csv_dataset(pattern, 4, **ONCE)
    told = {name: (column.dtype.name, column.tolist()) for name, column in batch.items()}
    assert told == {
        "a": ("int32", [1, 2, 0]),
        "b": ("int64", [99999999999, 3, 0]),
        "c": ("float32", [1.5, 4.0, 0.0]),
        "d": ("float64", [1e300, -5.0, 0.0]),
        "e": ("object", [b"x", b"6", b""]),
        "f": ("object", [b"", b"", b""]),
    }


@pytest.mark.parametrize(
    ("column", "dtype"),
    [
        (["1", "2147483647"], "int32"),
        (["1", "-2147483649"], "int64"),
        (["1", str(1 << 63)], "float32"),
        (["1", "1.5"], "float32"),
        (["1", "-1e300"], "float64"),
        (["1", "nan"], "object"),
        (["1", "1_0"], "object"),
        (["", "NA", "3"], "int32"),
        (["", "NA"], "object"),
    ],
)
def test_inference(files: Any, column: list[str], dtype: str) -> None:
    pattern = files("a,b\n" + "".join(f"{field},x\n" for field in column))
    (batch,) = make_csv_dataset(pattern, 9, na_value="NA", **ONCE)
    assert batch["a"].dtype.name == dtype


def test_only_the_first_records_tell_types_and_a_later_one_fails_alone(files: Any) -> None:
    pattern = files("a,b\n1,2\nx,y\n3,4\n")
    how = {"num_rows_for_inference": 1, **ONCE}
    assert batches(pattern, 2, **how) == [Failed("DataLossError"), {"a": [1, 3], "b": [2, 4]}]
    assert batches(pattern, 2, ignore_errors=True, **how) == [{"a": [1, 3], "b": [2, 4]}]
    assert batches(pattern, 3, num_epochs=1, shuffle=False, num_rows_for_inference=None) == [
        {"a": [b"1", b"x", b"3"], "b": [b"2", b"y", b"4"]}
    ]


def test_files_come_in_the_order_of_their_names_or_in_turn(files: Any) -> None:
    pattern = files(THREE, "a,b\n7,8\n9,10\n")
    assert [batch["a"] for batch in batches(pattern, 2, **ONCE)] == [[1, 3], [5, 7], [9]]
    assert [batch["a"] for batch in batches(pattern, 2, num_parallel_reads=2, **ONCE)] == [[1, 7], [3, 9], [5]]
    sloppy = batches(pattern, 5, num_parallel_reads=2, sloppy=True, **ONCE)
    assert [sorted(batch["a"]) for batch in sloppy] == [[1, 3, 5, 7, 9]]


def test_it_is_shuffled_and_without_end_unless_told_otherwise(files: Any) -> None:
    pattern = files(THREE, "a,b\n7,8\n9,10\n")
    ds = make_csv_dataset(pattern, 5, shuffle_seed=3)
    assert ds.cardinality() == ad.INFINITE_CARDINALITY
    orders = [tuple(batch["a"].tolist()) for batch in islice(ds, 20)]
    assert {tuple(sorted(order)) for order in orders} == {(1, 3, 5, 7, 9)}
    assert len(set(orders)) > 5
    assert [tuple(batch["a"].tolist()) for batch in islice(make_csv_dataset(pattern, 5, shuffle_seed=3), 20)] == orders
    assert [len(batch["a"]) for batch in islice(make_csv_dataset(pattern, 3), 9)] == [3] * 9
    assert [batch["a"] for batch in batches(pattern, 4, num_epochs=2, shuffle=False)] == [
        *([1, 3, 5, 7], [9, 1, 3, 5], [7, 9])
    ]


def test_a_label_is_apart(files: Any) -> None:
    assert batches(files(THREE), 2, label_name="b", **ONCE) == [({"a": [1, 3]}, [2, 4]), ({"a": [5]}, [6])]


def test_columns_can_be_chosen_and_named(files: Any) -> None:
    pattern = files("a,b,c\n1,2,3\n")
    for chosen in (["c", "a"], [0, 2], ["a", 2]):
        assert batches(pattern, 1, select_columns=chosen, **ONCE) == [{"a": [1], "c": [3]}]
    told = {"select_columns": ["c", "a"], "column_defaults": [str, np.float32]}
    assert batches(pattern, 1, **told, **ONCE) == [{"a": [b"1"], "c": [3.0]}]
    assert batches(pattern, 1, column_names=["x", "y", "z"], **ONCE) == [{"x": [1], "y": [2], "z": [3]}]
    pattern = files("1,2\n")
    assert batches(pattern, 1, column_names=["x", "y"], header=False, **ONCE) == [{"x": [1], "y": [2]}]


def test_headers_may_be_quoted_compressed_and_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(gzip.compress('"a\n,";\xe9\r\n1;2\r\n'.encode("latin-1")))
    how: dict[str, Any] = {"compression_type": "GZIP", "encoding": "latin-1", "field_delim": ";"}
    assert batches(tmp_path / "a.csv", 1, **how, **ONCE) == [{"a\n,": [1], "\xe9": [2]}]


def test_goes_on_from_any_batch(files: Any) -> None:
    pattern = files(*["a,b\n" + "".join(f"{row},{file}\n" for row in range(20)) for file in range(3)])
    check_resumes(lambda: make_csv_dataset(pattern, 4, num_epochs=2, shuffle_seed=1, shuffle_buffer_size=10), places=8)
    check_resumes(lambda: make_csv_dataset(pattern, 4, num_epochs=1, shuffle_seed=1, num_parallel_reads=2), places=8)


@pytest.mark.parametrize(
    ("texts", "how", "message"),
    [
        (["a,a\n1,2\n"], {}, r"the names of columns must be unique, got \['a', 'a'\]"),
        ([""], {}, r"0\.csv: it has no header: it is empty"),
        ([THREE, ""], {}, r"1\.csv: it has no header: it is empty"),
        ([THREE, "a,c\n"], {}, r"1\.csv has the columns \[b'a', b'c'\], and .*0\.csv \[b'a', b'b'\]"),
        (["a,b\n1,2,3\n"], {}, r"0\.csv: a record of 2 fields was expected, this one has 3"),
        ([THREE], {"header": False}, "needs column_names"),
        ([THREE], {"label_name": "c"}, r"label_name must be one of the columns \['a', 'b'\], got 'c'"),
        ([THREE], {"select_columns": ["a"], "label_name": "b"}, r"label_name must be one of the columns \['a'\]"),
        ([THREE], {"select_columns": ["c"]}, "select_columns must be names or numbers"),
        ([THREE], {"select_columns": [2]}, "select_columns must be names or numbers"),
        ([THREE], {"select_columns": ["a", 0]}, "select_columns must be names or numbers"),
        ([THREE], {"select_columns": []}, "select_columns must be names or numbers"),
        ([THREE], {"column_defaults": [int]}, "column_defaults has 1 values for 2 columns"),
        ([THREE], {"compression_type": "ZIP"}, "compression_type must be"),
        ([THREE], {"batch_size": 0}, r"batch\(batch_size=\) must be at least 1"),
        ([THREE], {"num_parallel_reads": 0}, "cycle_length"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_called(
    files: Any, texts: list[str], how: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_csv_dataset(files(*texts), **{"batch_size": 2, **how})


def test_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        make_csv_dataset(str(tmp_path / "*.csv"), 2)
