"""Parquet files as users read them."""

from __future__ import annotations

import datetime
import math
import random
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.elements.column_store import ColumnStore
from asyncdata.sources.parquet_random_access import ParquetFiles
from asyncdata.testing import check_resumes
from tests.reference import Failed
from tests.remote.web import web
from tests.running import WAYS, results, taken

pytestmark = pytest.mark.formats

ROWS = 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {
        "id": np.arange(ROWS),
        "half": np.arange(ROWS) / 2,
        "name": [f"#{number}" for number in range(ROWS)],
        "even": [number % 2 == 0 for number in range(ROWS)],
        "parts": [[number] * (number % 3) for number in range(ROWS)],
        "missing": [None if number % 7 == 3 else number for number in range(ROWS)],
        "point": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2.0 * ROWS, dtype=np.float32)), 2),
        "who": [{"name": f"n{number}", "age": number} for number in range(ROWS)],
        "time": pa.array(np.arange(ROWS), pa.timestamp("ms")),
        "kind": pa.array(["u", "v"] * (ROWS // 2)).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=13, write_page_checksum=True)
    return tmp_path / "a.parquet"


def expected(number: int) -> dict[str, Any]:
    return {"id": number, "name": f"#{number}"}


@pytest.mark.parametrize("way", WAYS)
def test_rows(path: Path, way: Any) -> None:
    found = way(ad.ParquetDataset([path, path], ["id", "name"]))
    assert found == [expected(number) for number in range(ROWS)] * 2


def test_all_kinds_of_values(path: Path) -> None:
    row = list(ad.ParquetDataset(path))[5]
    assert row["parts"].tolist() == [5, 5]
    assert row["point"].tolist() == [10, 11]
    assert row["who"] == {"name": "n5", "age": 5}
    assert (row["half"], row["even"], row["missing"], row["kind"]) == (2.5, False, 5, "v")
    assert row["time"] == np.datetime64(5, "ms")
    assert list(ad.ParquetDataset(path))[3]["missing"] is None


def test_batches_are_made_of_columns(path: Path) -> None:
    with mock.patch.object(ColumnStore, "elements", side_effect=AssertionError):
        batch = next(iter(ad.ParquetDataset(path, ["id", "point", "who"]).batch(20)))
    assert batch["id"].tolist() == list(range(20))
    assert batch["point"].shape == (20, 2)
    assert batch["point"].dtype == np.float32
    assert batch["who"]["age"].tolist() == list(range(20))
    batch["id"][0] = 9


@pytest.mark.parametrize("filters", [[("id", ">", 10)], "expression", [[("id", "<", 3)], [("name", "==", "#9")]]])
def test_filters(path: Path, filters: Any) -> None:
    filters = pytest.importorskip("pyarrow.compute").field("id") > 10 if filters == "expression" else filters
    ds = ad.ParquetDataset(path, ["name"], filters)
    kept = [0, 1, 2, 9] if isinstance(filters, list) and len(filters) == 2 else range(11, ROWS)
    assert [row["name"] for row in ds] == [f"#{number}" for number in kept]
    check_resumes(lambda: ad.ParquetDataset(path, ["name"], filters))
    assert ds.fingerprint() != ad.ParquetDataset(path, ["name"]).fingerprint()


def test_row_groups_whose_statistics_exclude_a_match_are_not_read(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    noise = np.random.default_rng(0).integers(0, 256, (1000, 1000), np.uint8)
    columns = {"id": np.arange(1000), "noise": pa.FixedSizeListArray.from_arrays(noise.ravel(), 1000)}
    pq.write_table(pa.table(columns), path := tmp_path / "a.parquet", row_group_size=100)

    def read(filters: Any) -> tuple[list[int], int]:
        with ad.ParquetDataset(path, ["noise", "id"], filters).iterate() as rows:
            return [int(row["id"]) for row in rows], sum(step.read_bytes for step in rows.stats().steps)

    found, some = read([("id", "in", [150, 777, 790]), ("id", ">=", 777)])
    assert found == [777, 790]
    assert read([("id", "<", 0)])[0] == []
    assert some < read([("id", "!=", 5)])[1] / 5
    check_resumes(lambda: ad.ParquetDataset([path, path], filters=[("id", "in", [3, 444, 445, 999])]))


@pytest.mark.parametrize("seed", range(3))
def test_filters_give_the_rows_that_match_whatever_statistics_leave_out(tmp_path: Path, seed: int) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rng = random.Random(seed)
    values = {
        "whole": lambda: rng.choice([None, rng.randrange(9)]),
        "real": lambda: rng.choice([None, math.nan, 0.0, -0.0, rng.random()]),
        "text": lambda: rng.choice([None, "", "a" * 200, "b", "\xff"]),
        "day": lambda: rng.choice([None, datetime.date(2020, 1, rng.randrange(1, 9))]),
        "flag": lambda: rng.choice([None, True, False]),
    }
    table = pa.table({name: [value() for _ in range(60)] for name, value in values.items()})
    pq.write_table(table.append_column("id", pa.array(range(60))), path := tmp_path / "a.parquet", row_group_size=3)

    def term() -> tuple[str, str, Any]:
        name = rng.choice([*values])
        comparison = rng.choice(["=", "==", "!=", "<", ">", "<=", ">=", "in", "not in"])
        known = [value for _ in range(99) if (value := values[name]()) is not None]
        if comparison.endswith("in"):
            return name, comparison, known[: rng.randrange(1, 4)]
        return name, "==" if name == "flag" else comparison, known[0]

    for _ in range(60):
        filters = [[term() for _ in range(rng.randrange(1, 4))] for _ in range(rng.randrange(1, 3))]
        whole = pq.read_table(path).filter(pq.filters_to_expression(filters))["id"].to_pylist()
        assert [row["id"] for row in ad.ParquetDataset(path, ["id"], filters)] == whole, filters


def test_goes_on_at_any_row(path: Path) -> None:
    check_resumes(lambda: ad.ParquetDataset(path, ["id"]))
    check_resumes(lambda: ad.ParquetDataset([path, path], ["id"]).shuffle(9, seed=1).batch(4), places=12)
    check_resumes(lambda: ad.ParquetDataset([path] * 3, ["id"], num_parallel_reads=2), places=12)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as caught:
        list(ad.ParquetDataset(tmp_path))
    assert caught.value.__notes__[0] == f"give the files in it: Dataset.list_files('{tmp_path}/*')"


def test_truncated_files_and_foreign_ones_are_one_error(path: Path, tmp_path: Path) -> None:
    content, other = path.read_bytes(), tmp_path / "b.parquet"
    for end in range(0, len(content), 97):
        other.write_bytes(content[:end])
        assert results(ad.ParquetDataset([other, path], ["id"])) == [
            Failed("DataLossError"),
            *({"id": number} for number in range(ROWS)),
        ]
    other.write_bytes(b"x" * 500)
    with pytest.raises(
        ad.DataLossError, match=r"b\.parquet: it cannot be read as a Parquet file: at byte 496 b'PAR1' was"
    ):
        list(ad.ParquetDataset(other))
    other.write_bytes(b"x" * 500 + b"\xff\xff\xff\x7fPAR1")
    with pytest.raises(ad.DataLossError, match="more than it has"):
        list(ad.ParquetDataset(other))
    assert results(ad.ParquetDataset(tmp_path / "none")) == [Failed("FileNotFoundError")]


def test_a_corrupt_row_group_is_one_error_and_the_next_follows(path: Path) -> None:
    content = bytearray(path.read_bytes())
    metadata = pytest.importorskip("pyarrow.parquet").read_metadata(path)
    chunk = metadata.row_group(1).column(0)
    end = chunk.data_page_offset + chunk.total_compressed_size - (chunk.data_page_offset - chunk.dictionary_page_offset)
    content[end - 3] ^= 0xFF
    path.write_bytes(content)
    rest = [{"id": number} for number in [*range(13), *range(26, ROWS)]]
    found = results(ad.ParquetDataset(path, ["id"]))
    assert found == [*rest[:13], Failed("DataLossError"), *rest[13:]]
    check_resumes(lambda: ad.ParquetDataset(path, ["id"]))
    with pytest.raises(ad.DataLossError, match=r"a\.parquet: row group 1 cannot be read"):
        list(ad.ParquetDataset(path, ["id"]))


@pytest.mark.parametrize("nested", [False, True])
def test_a_text_that_is_not_utf_8_is_an_error_of_its_row_group(tmp_path: Path, nested: bool) -> None:
    """Parquet does not check texts, and pyarrow fails only where it makes objects of them."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    column = pa.array([b"a", b"b", b"\xff", b"c", b"d", b"e"]).view(pa.string())
    if nested:
        column = pa.StructArray.from_arrays([column], ["text"])
    pq.write_table(pa.table({"a": column}), path := tmp_path / "a.parquet", row_group_size=2)
    good = [{"a": {"text": text} if nested else text} for text in "abde"]
    lost = Failed("DataLossError")
    assert results(ad.ParquetDataset(path)) == [*good[:2], lost, *good[2:]]
    assert results(ad.ParquetDataset(path, index=True)) == [*good[:2], lost, lost, *good[2:]]
    assert [len(one["a"]) for one in ad.ParquetDataset(path).ignore_errors().batch(9)] == ([1] if nested else [4])
    check_resumes(lambda: ad.ParquetDataset(path).ignore_errors())
    with pytest.raises(ad.DataLossError, match=r"a\.parquet: row group 1 cannot be read: Invalid UTF8 sequence at"):
        list(ad.ParquetDataset(path))


def test_metadata_of_columns_that_cannot_be_is_an_error_before_any_of_a_single_column_is_looked_at(path: Path) -> None:
    content = path.read_bytes()
    footer = int.from_bytes(content[-8:-4], "little") + 8
    (other := path.with_name("b.parquet")).write_bytes(content[:4] + content[-footer:])  # no room for columns
    for index in (False, True):
        with (
            mock.patch("asyncdata.sources.parquet.spans", side_effect=AssertionError) as spans,
            mock.patch("asyncdata.sources.parquet_random_access.spans", spans),
        ):
            assert results(ad.ParquetDataset(other, index=index)) == [Failed("DataLossError")]
        found = results(ad.ParquetDataset([other, path], index=index))
        assert [found[0], *(row["id"] for row in found[1:])] == [Failed("DataLossError"), *range(ROWS)]
    with pytest.raises(ad.DataLossError, match=r"b\.parquet: it cannot be read as a Parquet file: "):
        list(ad.ParquetDataset(other))


def patched(path: Path, old: bytes, new: bytes) -> Path:
    """Change the metadata at the end of a file."""
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    assert content[footer:].count(old) == 1, content[footer:].count(old)
    path.write_bytes(content[:footer] + content[footer:].replace(old, new))
    return path


def test_a_row_group_that_has_fewer_rows_than_it_says_is_an_error(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"a": [*range(60)]}), path := tmp_path / "a.parquet", row_group_size=20)
    metadata = pq.read_metadata(path)
    sizes = [metadata.row_group(group).total_byte_size for group in range(3)]
    assert len(set(sizes)) == 1
    content = bytearray(path.read_bytes())
    place = content.rindex(bytes([0x16, 40]))  # the field of the number of rows, 20 as a zigzag number, in the last one
    content[place + 1] = 42
    path.write_bytes(content)
    assert pq.read_metadata(path).row_group(2).num_rows == 21
    found = results(ad.ParquetDataset(path))
    assert found == [*({"a": number} for number in range(40)), Failed("DataLossError")]
    with pytest.raises(ad.DataLossError, match="row group 2 cannot be read: it has 20 rows, but its metadata says 21"):
        list(ad.ParquetDataset(path))
    assert results(ad.ParquetDataset(path, index=True))[40:] == [Failed("DataLossError")] * 21


def test_a_row_group_that_says_that_it_has_billions_of_rows(tmp_path: Path) -> None:
    """By number each is an error in its place; they are not made before they are asked for."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"a": [*range(20)]}), path := tmp_path / "a.parquet")
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    place = content.rindex(bytes([0x16, 40])) + 1  # the number of rows, 20 as a zigzag number
    rows = 1 << 33
    number = bytes([0x80, 0x80, 0x80, 0x80, 0x40])
    metadata = content[footer:place] + number + content[place + 1 : -8]
    path.write_bytes(content[:footer] + metadata + len(metadata).to_bytes(4, "little") + b"PAR1")
    assert pq.read_metadata(path).row_group(0).num_rows == rows
    ds = ad.ParquetDataset(path, index=True)
    assert len(ds) == rows
    assert taken(ds.iterate(), 3) == [Failed("DataLossError")] * 3
    assert results(ad.ParquetDataset(path)) == [Failed("DataLossError")]


@pytest.mark.parametrize("rows", [19, 1, 0, -1])
def test_a_row_group_that_has_more_rows_than_it_says_is_an_error(tmp_path: Path, rows: int) -> None:
    """pyarrow leaves out the others. Of a group without a row the file is at fault: there is no row to fail."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"a": [*range(60)], "b": [[number] for number in range(60)], "c": [{"d": number} for number in range(60)]}
    pq.write_table(pa.table(columns), path := tmp_path / "a.parquet", row_group_size=20)
    content = bytearray(path.read_bytes())
    content[content.rindex(bytes([0x16, 40])) + 1] = 2 * rows if rows >= 0 else 1  # as a zigzag number
    path.write_bytes(content)
    assert pq.read_metadata(path).row_group(2).num_rows == rows
    sound = 40 if rows > 0 else 0
    for chosen in (None, ["a"], ["c"], ["b", "c"]):
        found = results(ad.ParquetDataset(path, chosen))
        assert found[sound:] == [Failed("DataLossError")]
        assert len(found) == sound + 1
        found = results(ad.ParquetDataset(path, chosen, index=True))
        assert found[sound:] == [Failed("DataLossError")] * max(1, rows)


@pytest.mark.parametrize("old", [b"parquet-mr version 1.2.8", b"parquet-mr"])
def test_files_of_old_writers_whose_columns_are_larger_than_they_say(old: bytes, tmp_path: Path) -> None:
    """Before parquet-mr 1.2.9 the header of a dictionary was left out of the size, so readers read on behind it."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(
        pa.table({"a": ["x", "y"] * 10, "b": [*range(20)]}), path := tmp_path / "a.parquet", row_group_size=5
    )
    writer = pq.read_metadata(path).created_by.encode()
    patched(path, writer, old.ljust(len(writer)))
    expected = [{"a": "xy"[number % 2], "b": number} for number in range(20)]
    for columns in (["a", "b"], ["b"], ["a"]):
        rows = [{name: row[name] for name in columns} for row in expected]
        assert list(ad.ParquetDataset(path, columns)) == rows
        assert list(ad.ParquetDataset(path, columns, index=True)) == rows


def test_a_column_that_is_not_there(path: Path) -> None:
    with pytest.raises(ad.PlanError, match="there is no column 'age', the columns are"):
        list(ad.ParquetDataset(path, ["id", "age"]))
    with pytest.raises(ad.PlanError, match="must be a list of names"):
        ad.ParquetDataset(path, "id")  # type: ignore[arg-type]


def test_only_what_is_needed_is_requested(path: Path) -> None:
    with web() as server:
        url = server.put("a.parquet", path.read_bytes())
        assert list(ad.ParquetDataset([url], ["id", "name"])) == [expected(number) for number in range(ROWS)]
        check_resumes(lambda: ad.ParquetDataset([url], ["id"]), places=6)


def test_any_row(path: Path) -> None:
    ds = ad.ParquetDataset([path, path], ["id", "name"], index=True)
    assert (len(ds), ds[27], ds[-1]) == (2 * ROWS, expected(27), expected(ROWS - 1))
    assert list(ds) == [expected(number) for number in range(ROWS)] * 2
    assert sorted(row["id"] for row in ds.shuffle(seed=1)) == sorted([*range(ROWS)] * 2)
    check_resumes(lambda: ad.ParquetDataset([path, path], ["id"], index=True).shuffle(seed=1), places=20)
    check_resumes(lambda: ad.ParquetDataset([path, path], ["id"], index=True), places=20)
    points = ad.ParquetDataset(path, ["point", "parts"], index=True)
    row = points[5]
    row["point"][0], row["parts"][0] = -1, -1
    assert (points[5]["point"].tolist(), points[5]["parts"].tolist()) == ([10, 11], [5, 5])
    with pytest.raises(ad.PlanError, match="cannot be combined with filters="):
        ad.ParquetDataset(path, filters=[("id", ">", 3)], index=True)


def test_rows_that_are_asked_for_together_are_taken_from_their_row_group_at_once(path: Path) -> None:
    whole = list(ad.ParquetDataset(path))
    numbers = [*range(ROWS), *range(5, ROWS, 3)][::-1]
    with mock.patch.object(ParquetFiles, "group", autospec=True, side_effect=ParquetFiles.group) as asked:
        rows = ParquetFiles(None).read([(str(path), number) for number in numbers])
    assert asked.call_count == 4  # row groups of 13 rows
    assert repr(rows) == repr([whole[number] for number in numbers])
    changed = rows[numbers.index(5)]
    changed["parts"][0], changed["point"][0], changed["who"]["age"] = -1, -1, -1
    assert repr(rows[-6]) == repr(whole[5])  # the same row, asked for twice


def test_damage_is_the_same_with_an_index(path: Path, tmp_path: Path) -> None:
    content = bytearray(path.read_bytes())
    metadata = pytest.importorskip("pyarrow.parquet").read_metadata(path)
    chunk = metadata.row_group(1).column(0)
    end = chunk.data_page_offset + chunk.total_compressed_size - (chunk.data_page_offset - chunk.dictionary_page_offset)
    content[end - 3] ^= 0xFF
    path.write_bytes(content)
    (tmp_path / "b.parquet").write_bytes(b"something else")
    ds = ad.ParquetDataset([path, tmp_path / "b.parquet", tmp_path / "none"], ["id"], index=True)
    found = results(ds)
    assert len(ds) == len(found) == ROWS + 2
    assert found[13:26] == [Failed("DataLossError")] * 13
    assert [results(ds.skip(place).take(1)) for place in range(ROWS + 1)] == [[one] for one in found[:-1]]
    for place in (13, 25, ROWS):
        with pytest.raises(ad.DataLossError):
            ds[place]
    with pytest.raises(FileNotFoundError):
        ds[ROWS + 1]


def read(tmp_path: Path, content: dict[str, Any], **arguments: Any) -> list[Any]:
    """Write a table, and read it both as Parquet and as Arrow; return the rows, which must be the same."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table(content)
    pq.write_table(table, tmp_path / "b.parquet", version="2.6")
    with pa.ipc.new_file(str(tmp_path / "b.arrow"), table.schema) as writer:
        writer.write_table(table)
    rows = list(ad.ParquetDataset(tmp_path / "b.parquet", **arguments))
    assert repr(rows) == repr(list(ad.ArrowDataset(tmp_path / "b.arrow", **arguments)))
    return rows


def test_missing_values_in_lists_are_none_and_round_no_number(tmp_path: Path) -> None:
    large = 2**62 + 1
    rows = read(tmp_path, {"a": [[large, None], [large], None, []]})
    assert [None if row["a"] is None else row["a"].tolist() for row in rows] == [[large, None], [large], None, []]
    assert [row["a"].dtype for row in rows if row["a"] is not None] == [object, np.int64, np.int64]


@pytest.mark.parametrize("kind", ["int64", "float32", "bool_", "date32", "timestamp", "duration"])
def test_values_beside_missing_ones_have_the_same_type_as_others(tmp_path: Path, kind: str) -> None:
    """Times are not converted by pyarrow, which needs pandas for nanoseconds, and has no years after 9999."""
    pa = pytest.importorskip("pyarrow")
    arrow_type = getattr(pa, kind)("ns") if kind in ("timestamp", "duration") else getattr(pa, kind)()
    values = pa.array([1, 0, 2**22], pa.int32()).cast(pa.int64() if "ns" in str(arrow_type) else pa.int32())
    full = values.cast(arrow_type)
    missing = pa.concat_arrays([full, pa.nulls(1, arrow_type)])
    expected = [row["a"] for row in read(tmp_path, {"a": full})]
    found = [row["a"] for row in read(tmp_path, {"a": missing})]
    assert [(type(value), value) for value in found] == [(type(value), value) for value in [*expected, None]]
    inside = [row["a"] for row in read(tmp_path, {"a": [{"b": 1, "c": [1]}, None]})]
    assert inside[1] is None
    assert (type(inside[0]["b"]), inside[0]["c"].dtype) == (np.int64, np.int64)


def test_names_of_columns_with_dots(tmp_path: Path) -> None:
    columns = {"a": [{"b": 1}], "a.b": [2], "a.b.c": [[3]], "c": [4]}
    for names in (["a"], ["a.b"], ["a.b.c"], ["c", "a.b"], ["c", "c"]):
        (row,) = read(tmp_path, columns, columns=names)
        assert {name: value.tolist() if name == "a.b.c" else value for name, value in row.items()} == {
            name: columns[name][0] for name in names
        }
        assert ad.ParquetDataset(tmp_path / "b.parquet", names, index=True)[0] == row


def test_two_columns_of_one_name_are_an_error(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["q", "q"]), tmp_path / "b.parquet")
    for columns in (None, ["q"]):
        with pytest.raises(ad.DataLossError, match="it has two columns 'q'"):
            list(ad.ParquetDataset(tmp_path / "b.parquet", columns))


@pytest.mark.parametrize("filters", [[], [("id", "~", 1)], ("id", ">", 1), "id > 1", [("id",)]])
def test_what_is_no_filter_is_refused_at_once(path: Path, filters: Any) -> None:
    with pytest.raises(ad.PlanError, match=r"ParquetDataset\(filters=\) must be an expression"):
        ad.ParquetDataset(path, filters=filters)


def test_a_filter_that_does_not_fit_a_column_is_an_error_and_the_next_file_follows(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.parquet"
    pytest.importorskip("pyarrow.parquet").write_table(pytest.importorskip("pyarrow").table({"id": ["a"]}), other)
    assert results(ad.ParquetDataset([other, path], ["id"], [("id", ">", 38)])) == [Failed("PlanError"), {"id": 39}]


def test_the_spec_of_lists_of_lists_of_several_lengths(tmp_path: Path) -> None:
    read(tmp_path, {"a": [[[1], [2, 3]], [[4]]]})
    spec = {"a": ad.TensorSpec((2,), object)}
    assert ad.ParquetDataset(tmp_path / "b.parquet").element_spec == spec
    assert ad.ArrowDataset(tmp_path / "b.arrow").element_spec == spec


def test_what_pyarrow_cannot_convert_is_an_error_in_its_place(path: Path) -> None:
    with mock.patch("asyncdata.formats.parquet_groups.columns_of", side_effect=NotImplementedError("no kernel")):
        assert results(ad.ParquetDataset(path)) == [Failed("DataLossError")] * 4
        assert results(ad.ParquetDataset(path, index=True)) == [Failed("DataLossError")] * ROWS


def test_a_row_group_whose_lists_of_lists_are_all_missing(tmp_path: Path) -> None:
    pa, pq = (
        pytest.importorskip("pyarrow", "18", reason="before it there are no UUIDs"),
        pytest.importorskip("pyarrow.parquet"),
    )
    names = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"u" * 16], pa.binary(16)))
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), names)
    table = pa.table({"a": pa.ListArray.from_arrays(pa.array([0, None, 1], pa.int32()), lists)})
    pq.write_table(table, path := tmp_path / "a.parquet", row_group_size=1)
    found = [row["a"] for row in ad.ParquetDataset(path)]
    assert (found[0][0][0], found[1]) == (b"u" * 16, None)


def test_rows_have_the_columns_and_types_of_their_file(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = [{"x": [1, 2]}, {"x": [2.7, 0.4]}, {"x": pa.array([3], pa.int32())}, {"x": [4], "y": [5]}]
    files = [str(tmp_path / f"{number}.parquet") for number in range(4)]
    for file, values in zip(files, columns, strict=True):
        pq.write_table(pa.table(values), file)
    rows = list(ad.ParquetDataset(files))
    assert rows == [{"x": 1}, {"x": 2}, {"x": 2.7}, {"x": 0.4}, {"x": 3}, {"x": 4, "y": 5}]
    assert [row["x"].dtype for row in rows] == ["int64", "int64", "float64", "float64", "int32", "int64"]
    (batch,) = ad.ParquetDataset(files[:3]).batch(5)
    assert batch["x"].tolist() == [1, 2, 2.7, 0.4, 3]
    with pytest.raises(ad.StructureError, match="has keys"):
        list(ad.ParquetDataset(files).batch(6))
