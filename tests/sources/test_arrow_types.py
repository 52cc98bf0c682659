"""The values of Arrow's types: the type of a column decides them, and a batch is what stacking its rows gives."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.elements.structure import stack
from asyncdata.testing import check_resumes
from tests.reference import Failed
from tests.running import WAYS, results

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

pytestmark = pytest.mark.formats


def form(value: Any) -> str:
    """Everything that can be seen of a value: types, dtypes and shapes too."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}[{', '.join(map(form, value))}]" if value.ndim else f"0-d {value!r}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {form(part)}' for name, part in value.items())}}}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__}({', '.join(map(form, value))})"
    return f"{value.dtype} {value}" if isinstance(value, np.generic) else repr(value)


def objects(*items: Any) -> Any:
    found = np.empty(len(items), object)
    for place, item in enumerate(items):
        found[place] = item
    return found


def numbers(dtype: str, *values: Any) -> list[Any]:
    return [None if value is None else np.array(value, dtype)[()] for value in values]


def stored(kind: Any, *values: Any) -> Any:
    """An array of times, by the numbers that are stored."""
    return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


def extension(kind: Any, storage: Any) -> Any:
    return pa.ExtensionArray.from_storage(kind, storage)


def listed(kind: Any) -> tuple[Any, list[Any]]:
    """Lists of numbers of some type of list."""
    rows = [[1, 2], [3], None, [], [4, None]]
    return pa.array(rows, kind), [
        *(np.array(r, "i4") for r in ([1, 2], [3])),
        None,
        np.array([], "i4"),
        objects(*numbers("i4", 4, None)),
    ]


PAIRS = pa.map_(pa.string(), pa.int64())
DAY = 86_400_000

CASES: dict[str, Callable[[], tuple[Any, list[Any]]]] = {
    "bool": lambda: (pa.array([True, None, False]), [np.True_, None, np.False_]),
    "uint64": lambda: (pa.array([2**64 - 1, None], pa.uint64()), numbers("u8", 2**64 - 1, None)),
    "int64": lambda: (pa.array([2**62 + 1, None, 3]), numbers("i8", 2**62 + 1, None, 3)),
    "float16": lambda: (pa.array([np.float16(1.5), None], pa.float16()), numbers("f2", 1.5, None)),
    "float32": lambda: (pa.array([0.1, None], pa.float32()), numbers("f4", 0.1, None)),
    "date32": lambda: (stored(pa.date32(), 1, None, 2**22), numbers("M8[D]", 1, None, 2**22)),
    "date64": lambda: (stored(pa.date64(), DAY, None), numbers("M8[ms]", DAY, None)),
    "time32[s]": lambda: (stored(pa.time32("s"), 5, None), numbers("m8[s]", 5, None)),
    "time32[ms]": lambda: (stored(pa.time32("ms"), 5, None), numbers("m8[ms]", 5, None)),
    "time64[us]": lambda: (stored(pa.time64("us"), 5, None), numbers("m8[us]", 5, None)),
    "time64[ns]": lambda: (stored(pa.time64("ns"), 1001, None), numbers("m8[ns]", 1001, None)),
    "timestamp[ns]": lambda: (stored(pa.timestamp("ns"), 1001, None), numbers("M8[ns]", 1001, None)),
    "timestamp[us]": lambda: (stored(pa.timestamp("us"), 2**61, None), numbers("M8[us]", 2**61, None)),
    "timestamp[us, tz]": lambda: (
        stored(pa.timestamp("us", "Europe/Berlin"), 5, None, 2**61),
        numbers("M8[us]", 5, None, 2**61),
    ),
    "timestamp[ns, tz]": lambda: (stored(pa.timestamp("ns", "UTC"), 1001, None), numbers("M8[ns]", 1001, None)),
    "duration": lambda: (stored(pa.duration("ns"), 1001, None), numbers("m8[ns]", 1001, None)),
    "decimal128": lambda: (pa.array([Decimal("1.10"), None]), [Decimal("1.10"), None]),
    "decimal256": lambda: (pa.array([Decimal("1.10"), None], pa.decimal256(50, 2)), [Decimal("1.10"), None]),
    "string": lambda: (pa.array(["a\0", None, ""]), ["a\0", None, ""]),
    "large_string": lambda: (pa.array(["a\0", None], pa.large_string()), ["a\0", None]),
    "string_view": lambda: (pa.array(["a" * 20, None], pa.string_view()), ["a" * 20, None]),
    "binary": lambda: (pa.array([b"a\0", None]), [b"a\0", None]),
    "large_binary": lambda: (pa.array([b"a\0", None], pa.large_binary()), [b"a\0", None]),
    "binary_view": lambda: (pa.array([b"a" * 20, None], pa.binary_view()), [b"a" * 20, None]),
    "fixed_size_binary": lambda: (pa.array([b"a\0", None], pa.binary(2)), [b"a\0", None]),
    "null": lambda: (pa.nulls(2), [None, None]),
    "interval": lambda: (
        pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
        [dict(zip(("months", "days", "nanoseconds"), (np.int32(1), np.int32(2), np.int64(3)))), None],
    ),
    "uuid": lambda: (extension(pa.uuid(), pa.array([b"u" * 16, None], pa.binary(16))), [b"u" * 16, None]),
    "bool8": lambda: (extension(pa.bool8(), pa.array([0, 2, None], pa.int8())), [np.False_, np.True_, None]),
    "json": lambda: (extension(pa.json_(), pa.array(["1", None])), ["1", None]),
    "opaque": lambda: (extension(pa.opaque(pa.int64(), "a", "b"), pa.array([1, None])), numbers("i8", 1, None)),
    "tensor": lambda: (
        extension(pa.fixed_shape_tensor(pa.int32(), [1, 2]), pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2))),
        [np.array([[1, 2]], "i4"), None, np.array([[3, 4]], "i4")],
    ),
    "dictionary": lambda: (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
    "dictionary of numbers": lambda: (pa.array([7, None, 7]).dictionary_encode(), numbers("i8", 7, None, 7)),
    "dictionary with a missing value": lambda: (
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array([7, None])),
        numbers("i8", 7, None, 7),
    ),
    "dictionary of views": lambda: (
        pa.DictionaryArray.from_arrays(pa.array([0, None]), pa.array(["a"], pa.string_view())),
        ["a", None],
    ),
    "dictionary of lists": lambda: (
        pa.DictionaryArray.from_arrays(pa.array([0, None, 0]), pa.array([[1, 2]])),
        [np.array([1, 2]), None, np.array([1, 2])],
    ),
    "run-end encoded": lambda: (
        pa.RunEndEncodedArray.from_arrays(
            pa.array([2, 3], pa.int32()), pa.array([7, None]), pa.run_end_encoded(pa.int32(), pa.int64())
        ),
        numbers("i8", 7, 7, None),
    ),
    "struct": lambda: (
        pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
        [{"a": np.int64(1), "b": "x"}, None, {"a": None, "b": "y"}],
    ),
    "struct without fields": lambda: (pa.array([{}, None], pa.struct([])), [{}, None]),
    "map": lambda: (pa.array([[("k", 1)], [], None], PAIRS), [objects(("k", np.int64(1))), objects(), None]),
    "list": lambda: listed(pa.list_(pa.int32())),
    "large_list": lambda: listed(pa.large_list(pa.int32())),
    "list_view": lambda: listed(pa.list_view(pa.int32())),
    "large_list_view": lambda: listed(pa.large_list_view(pa.int32())),
    "lists of one length": lambda: (pa.array([[1, 2], [3, 4]]), [np.array([1, 2]), np.array([3, 4])]),
    "fixed_size_list": lambda: (
        pa.array([[1, 2], None, [3, None]], pa.list_(pa.int32(), 2)),
        [np.array([1, 2], "i4"), None, objects(np.int32(3), None)],
    ),
    "fixed_size_list of strings": lambda: (pa.array([["a", None]], pa.list_(pa.string(), 2)), [objects("a", None)]),
    "fixed_size_list of fixed_size_list": lambda: (
        pa.array([[[1, 2]], [None], [[3, None]]], pa.list_(pa.list_(pa.int32(), 2), 1)),
        [np.array([[1, 2]], "i4"), objects(None), objects(np.int32(3), None).reshape(1, 2)],
    ),
    "list of strings": lambda: (
        pa.array([["a", "b\0"], ["c", None], []]),
        [objects("a", "b\0"), objects("c", None), objects()],
    ),
    "list of booleans": lambda: (pa.array([[True], []]), [np.array([True]), np.array([], bool)]),
    "list of times with a zone": lambda: (
        pa.ListArray.from_arrays(pa.array([0, 1, 1], pa.int32()), stored(pa.timestamp("ns", "UTC"), 1001)),
        [np.array([1001], "M8[ns]"), np.array([], "M8[ns]")],
    ),
    "list of lists": lambda: (
        pa.array([[[1, 2], [3, 4]], [[5], None], []]),
        [objects(np.array([1, 2]), np.array([3, 4])), objects(np.array([5]), None), objects()],
    ),
    "list of fixed_size_list": lambda: (
        pa.array([[[1, 2], [3, 4]], [[5, 6]], [], [None]], pa.list_(pa.list_(pa.int32(), 2))),
        [np.array([[1, 2], [3, 4]], "i4"), np.array([[5, 6]], "i4"), np.empty((0, 2), "i4"), objects(None)],
    ),
    "list of structs": lambda: (
        pa.array([[{"a": 1}], [None], None]),
        [objects({"a": np.int64(1)}), objects(None), None],
    ),
    "list of dictionaries": lambda: (
        pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), pa.array(["a", "a"]).dictionary_encode()),
        [objects("a", "a"), objects()],
    ),
    "list of bool8": lambda: (
        pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), extension(pa.bool8(), pa.array([0, 2], pa.int8()))),
        [np.array([False, True]), np.array([], bool)],
    ),
    "union": lambda: (
        pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]),
        [np.int64(1), "b"],
    ),
    "dense union": lambda: (
        pa.UnionArray.from_dense(
            pa.array([1, 0], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["a"])]
        ),
        ["a", np.int64(1)],
    ),
}


def case(name: str) -> tuple[Any, list[Any]]:
    """An array, four times over, and its values; this version of pyarrow may not have the type."""
    try:
        array, values = CASES[name]()
    except AttributeError as error:
        pytest.skip(str(error))
    return pa.chunked_array([array] * 4), values * 4


def placed(array: Any, values: list[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """The same values in a column, in structs, and in structs some of which are missing."""
    whole = pa.concat_arrays(array.chunks)
    gaps = [place % 3 == 1 for place in range(len(values))]
    structs: list[Any] = [{"f": value} for value in values]
    yield whole, values
    yield pa.StructArray.from_arrays([whole], ["f"]), structs
    missing = [None if gap else struct for gap, struct in zip(gaps, structs, strict=True)]
    yield pa.StructArray.from_arrays([whole], ["f"], mask=pa.array(gaps)), missing


def write(folder: Path, array: Any, size: int) -> list[tuple[type[Any], Path]]:
    """Files with a column, in row groups of a size, and the classes that read them."""
    table = pa.table({"c": array, "id": range(len(array))})
    with pa.ipc.new_stream(folder / "a.arrow", table.schema) as writer:
        for batch in table.to_batches(max_chunksize=size):
            writer.write_batch(batch)
    found: list[tuple[type[Any], Path]] = [(ad.ArrowDataset, folder / "a.arrow")]
    try:
        pq.write_table(table, folder / "a.parquet", row_group_size=size)
        if pq.read_schema(folder / "a.parquet").field("c").type == table.schema.field("c").type:
            pq.read_table(folder / "a.parquet")
            found.append((ad.ParquetDataset, folder / "a.parquet"))
    except (pa.ArrowException, NotImplementedError):
        pass  # Parquet does not have the type
    return found


def stacked(rows: list[Any], size: int) -> list[str]:
    """What a batch is of so many rows in turn, as `form` shows it."""
    found: list[str] = []
    for start in range(0, len(rows), size):
        try:
            found.append(form(stack(rows[start : start + size])))
        except ad.StructureError as error:
            found.append(str(error))
    return found


def batches(ds: ad.Dataset, size: int) -> list[str]:
    found: list[str] = []
    with ds.batch(size).iterate() as elements:
        while True:
            try:
                found.append(form(next(elements)))
            except StopIteration:
                return found
            except ad.StructureError as error:
                found.append(str(error))


@pytest.mark.parametrize("name", CASES)
def test_rows_and_batches_of_each_type(tmp_path: Path, name: str) -> None:
    for array, values in placed(*case(name)):
        rows = [{"c": value, "id": np.int64(number)} for number, value in enumerate(values)]
        for size in (2, 100):
            for read, path in write(tmp_path, array, size):
                ds = read(path)
                assert [form(row) for row in ds] == [form(row) for row in rows], (read, size)
                for count in (1, 3, 100):
                    assert batches(ds, count) == stacked(rows, count), (read, size, count)


READINGS: dict[str, Callable[[list[Path]], ad.Dataset]] = {
    "one after another": ad.ParquetDataset,
    "one at a time": lambda paths: ad.ParquetDataset(paths, num_parallel_reads=1),
    "three at a time": lambda paths: ad.ParquetDataset(paths, num_parallel_reads=3),
    "interleave": lambda paths: ad.Dataset.from_list([str(path) for path in paths]).interleave(
        ad.ParquetDataset, cycle_length=2, block_length=3
    ),
    "index": lambda paths: ad.ParquetDataset(paths, index=True),
    "shuffle all": lambda paths: ad.ParquetDataset(paths, index=True).shuffle(seed=3, reshuffle_each_iteration=False),
    "shuffle with a buffer": lambda paths: ad.ParquetDataset(paths).shuffle(5, seed=3, reshuffle_each_iteration=False),
    "cache": lambda paths: ad.ParquetDataset(paths).cache(),
    "map": lambda paths: ad.ParquetDataset(paths).map(lambda row: row),
    "parallel map": lambda paths: ad.ParquetDataset(paths).map(lambda row: row, num_parallel_calls=2),
    "zip": lambda paths: ad.Dataset.zip((ad.ParquetDataset(paths), ad.ParquetDataset(paths))),
    "mixture": lambda paths: ad.Dataset.sample_from_datasets(
        [ad.ParquetDataset(paths[:2]), ad.ParquetDataset(paths[2:])], seed=3
    ),
    "filter": lambda paths: ad.ParquetDataset(paths).filter(lambda row: row["id"] % 3 != 1),
    "skip": lambda paths: ad.ParquetDataset(paths).skip(2),
    "unbatch": lambda paths: ad.ParquetDataset(paths).batch(1).unbatch(),
}

MIXED: dict[str, Callable[[int], list[Any]]] = {
    "lists of one length in some row groups": lambda part: [
        [part, i] if part % 2 else [i] * (1 + i % 3) for i in range(7)
    ],
    "a missing number in some row groups": lambda part: [None if part % 2 and i == 4 else i * 2**40 for i in range(7)],
    "a missing time in some row groups": lambda part: [
        None if part % 2 and i == 4 else datetime.datetime(2020, 1, 1 + i) for i in range(7)
    ],
    "a missing item in some row groups": lambda part: [[i, None if part % 2 and i == 4 else 1] for i in range(7)],
    "a missing struct in some row groups": lambda part: [None if part % 2 and i == 4 else {"a": i} for i in range(7)],
    "strings": lambda part: [[f"{part}", "x\0"] for _ in range(7)],
    "maps": lambda part: [{"k": i} for i in range(7)],
}


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("kind", MIXED)
def test_a_batch_is_what_stacking_its_rows_gives_however_they_are_read(tmp_path: Path, kind: str, reading: str) -> None:
    paths = [tmp_path / f"{part}.parquet" for part in range(4)]
    for part, path in enumerate(paths):
        values = MIXED[kind](part)
        items = pa.array([[*one.items()] for one in values], PAIRS) if kind == "maps" else pa.array(values)
        pq.write_table(pa.table({"c": items, "id": range(7)}), path, row_group_size=3)
    ds = READINGS[reading](paths)
    rows = list(ds)
    for count in (2, 4, 9):
        assert batches(ds, count) == stacked(rows, count)


def test_batches_of_lists_do_not_depend_on_timing(tmp_path: Path) -> None:
    paths = [tmp_path / f"{part}.parquet" for part in range(6)]
    for path in paths:
        pq.write_table(pa.table({"s": [[i, i] for i in range(7)]}), path, row_group_size=3)
    for reads in (None, 1, 3, 3, 3):
        found = list(ad.ParquetDataset(paths, num_parallel_reads=reads).batch(4))
        assert [(batch["s"].dtype, batch["s"].shape) for batch in found] == [("int64", (4, 2))] * 10 + [
            ("int64", (2, 2))
        ]


def test_missing_values_in_some_row_groups_lose_no_row(tmp_path: Path) -> None:
    columns = {
        "input_ids": [[i, i + 1] for i in range(1000)],
        "score": [None if i % 97 == 5 else i / 2 for i in range(1000)],
    }
    pq.write_table(pa.table(columns), path := tmp_path / "a.parquet", row_group_size=64)
    for size in (32, 48):
        found = list(ad.ParquetDataset(path).batch(size))
        assert [row.tolist() for batch in found for row in batch["input_ids"]] == columns["input_ids"]
        assert [score for batch in found for score in batch["score"].tolist()] == columns["score"]
        assert all(batch["score"].dtype == (object if None in batch["score"].tolist() else "f8") for batch in found)


OLD_TIMES = [-14_831_769_600_000_000, 5, None, 253_402_214_400_000_000, -62_135_596_800_000_000]


def test_old_times_of_all_years(tmp_path: Path) -> None:
    """INT96: the years 1500, 9999 and 1 are not among those of 64 bits of nanoseconds."""
    times = pa.array(OLD_TIMES, pa.timestamp("us"))
    columns = {"a": times, "b": pa.ListArray.from_arrays(pa.array(range(6), pa.int32()), times)}
    pq.write_table(pa.table(columns), path := tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    rows = list(ad.ParquetDataset(path))
    assert [form(row["a"]) for row in rows] == [form(value) for value in numbers("M8[us]", *OLD_TIMES)]
    assert form(rows[0]["a"]) == "datetime64[us] 1500-01-01T00:00:00.000000"
    assert form(rows[0]["b"]) == "datetime64[us](1,)[datetime64[us] 1500-01-01T00:00:00.000000]"
    wanted = datetime.datetime(1500, 1, 1)
    for comparison, value in (("==", wanted), ("<=", wanted), ("in", [wanted])):
        found = list(ad.ParquetDataset(path, ["a"], [("a", comparison, value)]))
        assert form(found[0]["a"]) == form(rows[0]["a"])
        assert len(found) == 1 + (comparison == "<=")


@pytest.mark.parametrize("columns", [["a"], ["b"], ["c"], ["d"], None])
def test_an_old_time_below_a_microsecond_is_an_error_of_its_row_alone(
    tmp_path: Path, columns: list[str] | None
) -> None:
    times, ends = pa.array([1001, 5000, None, 7000, -1], pa.timestamp("ns")), pa.array(range(6), pa.int32())
    table = {
        "a": times,
        "b": pa.ListArray.from_arrays(ends, times),
        "c": pa.StructArray.from_arrays([times], ["f"]),
        "d": pa.MapArray.from_arrays(ends, pa.array("vwxyz"[i] for i in range(5)), times),
        "id": range(5),
    }
    pq.write_table(
        pa.table(table), path := tmp_path / "a.parquet", row_group_size=3, use_deprecated_int96_timestamps=True
    )
    chosen = None if columns is None else [*columns, "id"]
    found = results(ad.ParquetDataset(path, chosen))
    assert [row["id"] if isinstance(row, dict) else row for row in found] == [
        Failed("DataLossError"),
        1,
        2,
        3,
        Failed("DataLossError"),
    ]
    assert form(results(ad.ParquetDataset(path, chosen, index=True))) == form(found)
    some = results(ad.ParquetDataset(path, chosen, [("id", ">", 1)]))
    assert form(some) == form(found[2:])
    assert len(results(ad.ParquetDataset(path, ["id"]))) == 5
    check_resumes(lambda: ad.ParquetDataset(path, chosen).ignore_errors())
    with pytest.raises(
        ad.DataLossError, match=r"a\.parquet: a time in the column .* of row 0 of row group 0 has a part below"
    ):
        list(ad.ParquetDataset(path, chosen))


def test_times_do_not_need_pandas() -> None:
    names = ["time64[ns]", "timestamp[ns]", "timestamp[ns, tz]", "duration", "date32", "date64"]
    code = """
import sys

class WithoutPandas:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ImportError(name)

sys.meta_path.insert(0, WithoutPandas())
import pyarrow, asyncdata
from tests.sources.test_arrow_types import CASES, form
from asyncdata.formats.arrow_columns import columns_of
for name in sys.argv[1:]:
    array, _ = CASES[name]()
    lists = pyarrow.ListArray.from_arrays(pyarrow.array([0, len(array)], pyarrow.int32()), array)
    values, items = (columns_of(pyarrow.table({"c": one}))["c"] for one in (array, lists))
    print(form([*values]), form(items[0]), sep="\\n")
"""
    found = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=True)
    expected = [CASES[name]()[1] for name in names]
    assert found.stdout.splitlines() == [text for values in expected for text in (form(values), form(stack(values)))]


@pytest.mark.parametrize("way", WAYS)
def test_batches_are_the_same_in_each_placement(tmp_path: Path, way: Any) -> None:
    values = [None if i % 5 == 4 else i / 2 for i in range(20)]
    lists = [[i, i] if i < 10 else [i] for i in range(20)]
    pq.write_table(pa.table({"c": values, "d": lists}), path := tmp_path / "a.parquet", row_group_size=3)
    ds = ad.ParquetDataset(path, ["c"])
    assert [form(batch) for batch in way(ds.batch(4))] == stacked(list(ds), 4)
    mixed = ad.ParquetDataset(path).batch(4)
    assert [isinstance(batch, Failed) for batch in way(mixed)] == [False, False, True, False, False]


def test_stored_elements_are_the_same(tmp_path: Path) -> None:
    paths = [tmp_path / f"{part}.parquet" for part in range(2)]
    for part, path in enumerate(paths):
        columns = {f"c{number}": pa.array(make(part)) for number, make in enumerate([*MIXED.values()][:-1])}
        pq.write_table(pa.table(columns), path, row_group_size=3)
    ds = ad.ParquetDataset(paths)
    rows = [form(row) for row in ds]
    ds.save(str(tmp_path / "saved"))
    assert [form(row) for row in ad.Dataset.load(str(tmp_path / "saved"))] == rows
    for _ in range(2):
        assert [form(row) for row in ds.cache(str(tmp_path / "cached"))] == rows
    assert batches(ad.Dataset.load(str(tmp_path / "saved")), 4) == stacked(list(ds), 4)


def test_two_fields_of_one_name_are_an_error(tmp_path: Path) -> None:
    struct = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["q", "q"])
    for read, path in write(tmp_path, struct, 1):
        with pytest.raises(ad.DataLossError, match="a struct has two fields 'q'"):
            list(read(path))


ZONED = pa.timestamp("us", "Europe/Berlin")


@pytest.mark.parametrize(
    "kind", [ZONED, pa.timestamp("ns", "UTC"), pa.time32("ms"), pa.time64("ns"), pa.duration("ns")]
)
@pytest.mark.parametrize("inside", [False, True])
def test_times_are_written_as_they_were_read(tmp_path: Path, kind: Any, inside: bool) -> None:
    times = stored(kind, 1001, None, 5)
    array = pa.ListArray.from_arrays(pa.array([0, 1, 1], pa.int32()), times) if inside else times
    pq.write_table(pa.table({"c": array}), path := tmp_path / "a.parquet")
    rows = [form(row) for row in ad.ParquetDataset(path)]
    written = ad.ParquetDataset(path).write_parquet(tmp_path / "written")
    assert [form(row) for row in ad.ParquetDataset(written)] == rows
    if not inside:  # the zone is in the schema alone
        written = ad.ParquetDataset(path).write_parquet(tmp_path / "same", schema=pa.schema({"c": kind}))
        assert pq.read_table(written[0]).equals(pa.table({"c": array}))


def test_a_batch_whose_views_of_views_of_tensors_are_all_empty(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", "16", reason="before it there are no views of lists")
    storage = pa.FixedSizeListArray.from_arrays(pa.array(range(6), pa.int8()), 6)
    tensors = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int8(), [2, 3]), storage)
    none = pa.array([0], pa.int32())
    views = pa.ListViewArray.from_arrays(none, none, pa.ListViewArray.from_arrays(none, none, tensors))
    table = pa.table({"a": views})
    with pa.ipc.new_stream(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    assert [form(row["a"]) for row in ad.ArrowDataset(tmp_path / "a.arrow")] == ["object(0,)[]"]
