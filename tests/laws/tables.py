"""Random tables in files of several writers, and the datasets that read them, each with what its elements are."""

from __future__ import annotations

import contextlib
import datetime
import functools
import hashlib
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import compress, pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import assume, reject
from hypothesis import strategies as st

import asyncdata as ad
from tests import reference
from tests.laws import pipelines as steps
from tests.laws.files import scratch
from tests.laws.pipelines import Pipeline, Step
from tests.laws.table_types import form, stacked, value_of
from tests.reference import Failed
from tests.sources.test_arrow import big_endian

__all__ = (
    "LEAVES",
    "TableFile",
    "TablePipeline",
    "column_type",
    "dataset_of",
    "intervals",
    "read_by_pyarrow",
    "readings",
    "table_files",
    "table_sources",
)

pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")


# ---------------------------------------------------------------------------------------------------------------------
# Columns

Make = Callable[[random.Random, int], Any]
"""Makes an array of so many values of a type, some of them missing."""


def leaf(kind: Callable[[], Any], value: Callable[[random.Random], Any], missing: bool = True) -> Callable[[], Make]:
    """Return a maker of values that pyarrow takes from Python."""

    def make(rng: random.Random, count: int) -> Any:
        share = rng.choice([0, 0, 3]) if missing else 0
        return pa.array([None if share and rng.randrange(share) == 0 else value(rng) for _ in range(count)], kind())

    return lambda: make


def times(kind: Callable[[], Any], most: int, step: int = 1) -> Callable[[], Make]:
    """Return a maker of times, which are stored as integers between `-most` and `most`; times of day from 0 on."""

    def make(rng: random.Random, count: int) -> Any:
        size = pa.int32() if kind().bit_width == 32 else pa.int64()
        least = 0 if pa.types.is_time(kind()) else -most // step
        return leaf(lambda: size, lambda rng: rng.randrange(least, most // step) * step)()(rng, count).view(kind())

    return lambda: make


def word(rng: random.Random) -> str:
    return rng.choice(["", "a", "\xe9\0", "long " * 9, f"{rng.randrange(99)}"])


def integer(bits: int, signed: bool = True) -> Callable[[random.Random], int]:
    return lambda rng: rng.choice([0, 1, rng.getrandbits(bits - 1), (1 << (bits - signed)) - 1])


def real(rng: random.Random) -> float:
    return rng.choice([0.0, -0.0, float("nan"), float("inf"), rng.randrange(100) / 10, rng.random() * 100])


DAY = 86_400_000

LEAVES: dict[str, Callable[[], Make]] = {
    "bool": leaf(lambda: pa.bool_(), lambda rng: rng.random() < 0.5),
    "int8": leaf(lambda: pa.int8(), integer(8)),
    "int64": leaf(lambda: pa.int64(), integer(64)),
    "uint16": leaf(lambda: pa.uint16(), integer(16, signed=False)),
    "uint64": leaf(lambda: pa.uint64(), integer(64, signed=False)),
    "float16": leaf(lambda: pa.float16(), lambda rng: np.float16(real(rng))),
    "float32": leaf(lambda: pa.float32(), real),
    "float64": leaf(lambda: pa.float64(), real),
    "string": leaf(lambda: pa.string(), word),
    "large_string": leaf(lambda: pa.large_string(), word),
    "string_view": leaf(lambda: pa.string_view(), word),
    "binary": leaf(lambda: pa.binary(), lambda rng: word(rng).encode()),
    "large_binary": leaf(lambda: pa.large_binary(), lambda rng: word(rng).encode()),
    "binary_view": leaf(lambda: pa.binary_view(), lambda rng: word(rng).encode()),
    "fixed_size_binary": leaf(lambda: pa.binary(3), lambda rng: rng.randbytes(3)),
    "decimal128": leaf(lambda: pa.decimal128(9, 2), lambda rng: Decimal(rng.randrange(-(10**6), 10**6)) / 100),
    "decimal256": leaf(lambda: pa.decimal256(50, 3), lambda rng: Decimal(rng.randrange(10**9)) / 1000),
    "date32": times(lambda: pa.date32(), 10**6),
    "date64": times(lambda: pa.date64(), 10**6 * DAY, DAY),
    "time32": times(lambda: pa.time32("ms"), DAY),
    "time64": times(lambda: pa.time64("us"), DAY * 1000),
    "time64 of nanoseconds": times(lambda: pa.time64("ns"), DAY * 1_000_000),
    "timestamp of milliseconds": times(lambda: pa.timestamp("ms"), 10**15),
    "timestamp of microseconds": times(lambda: pa.timestamp("us"), 10**18),
    "timestamp of nanoseconds": times(lambda: pa.timestamp("ns"), 10**18),
    "timestamp with a zone": times(lambda: pa.timestamp("us", "America/New_York"), 10**18),
    "duration": times(lambda: pa.duration("ns"), 10**18),
    "null": leaf(lambda: pa.null(), lambda rng: None),
}
"""Types without parts."""


def missing(rng: random.Random, count: int) -> list[bool]:
    """Return which values are missing: mostly none."""
    share = rng.choice([0, 0, 3])
    return [share > 0 and rng.randrange(share) == 0 for _ in range(count)]


def lengths(rng: random.Random, count: int) -> list[int]:
    """Return the lengths of lists, often one for all."""
    one = rng.randrange(4)
    return [one] * count if rng.random() < 0.5 else [rng.randrange(4) for _ in range(count)]


def list_of(make: Make, large: bool = False) -> Make:
    def lists(rng: random.Random, count: int) -> Any:
        offsets = [0, *np.cumsum(lengths(rng, count)).tolist()]
        starts = [None if gone else offset for gone, offset in zip(missing(rng, count), offsets, strict=False)]
        kind, size = (pa.LargeListArray, pa.int64()) if large else (pa.ListArray, pa.int32())
        return kind.from_arrays(pa.array([*starts, offsets[-1]], size), make(rng, offsets[-1]))

    return lists


def view_of(make: Make, large: bool = False) -> Make:
    """Lists whose items may lie in any order, and be shared."""

    def views(rng: random.Random, count: int) -> Any:
        kind, size = (pa.LargeListViewArray, pa.int64()) if large else (pa.ListViewArray, pa.int32())
        sizes = lengths(rng, count)
        starts = [rng.randrange(9 - length) for length in sizes]
        gone = pa.array(missing(rng, count), pa.bool_())
        return kind.from_arrays(pa.array(starts, size), pa.array(sizes, size), make(rng, 8), mask=gone)

    return views


def fixed_list_of(make: Make) -> Make:
    def lists(rng: random.Random, count: int) -> Any:
        size = rng.randrange(1, 4)
        gone = pa.array(missing(rng, count), pa.bool_())
        return pa.FixedSizeListArray.from_arrays(make(rng, size * count), size, mask=gone)

    return lists


def struct_of(make: Make) -> Make:
    def structs(rng: random.Random, count: int) -> Any:
        gone = pa.array(missing(rng, count), pa.bool_())
        parts = [make(rng, count), LEAVES["int64"]()(rng, count)]
        return pa.StructArray.from_arrays(parts, ["a", "b"], mask=gone)

    return structs


def map_of(make: Make) -> Make:
    def maps(rng: random.Random, count: int) -> Any:
        lists = list_of(make)(rng, count)
        keys = pa.array([f"k{place}" for place in range(len(lists.values))], pa.string())
        return pa.MapArray.from_arrays(lists.offsets, keys, lists.values) if not lists.null_count else maps(rng, count)

    return maps


def dictionary_of(make: Make) -> Make:
    def dictionaries(rng: random.Random, count: int) -> Any:
        values = make(rng, 3)
        places = [None if gone else rng.randrange(3) for gone in missing(rng, count)]
        return pa.DictionaryArray.from_arrays(pa.array(places, pa.int8()), values)

    return dictionaries


def runs_of(make: Make) -> Make:
    def runs(rng: random.Random, count: int) -> Any:
        ends = sorted({rng.randrange(1, count + 1) for _ in range(3)} | {count}) if count else []
        return pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), make(rng, len(ends)))

    return runs


def extension_of(kind: Callable[[], Any], make: Make) -> Make:
    def extensions(rng: random.Random, count: int) -> Any:
        return pa.ExtensionArray.from_storage(kind(), make(rng, count).cast(kind().storage_type))

    return extensions


def tensors(rng: random.Random, count: int) -> Any:
    values = LEAVES["int8"]()(rng, 6 * count).fill_null(7)
    gone = pa.array(missing(rng, count), pa.bool_())
    return pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int8(), [2, 3], permutation=[1, 0]),
        pa.FixedSizeListArray.from_arrays(values, 6, mask=gone),
    )


def intervals(rng: random.Random, count: int) -> Any:
    values = [None if gone else (rng.randrange(9), -1, rng.randrange(10**12)) for gone in missing(rng, count)]
    return pa.array(values, pa.month_day_nano_interval())


EXTENSIONS: dict[str, Make] = {
    "uuid": lambda rng, count: extension_of(pa.uuid, leaf(lambda: pa.binary(16), lambda rng: rng.randbytes(16))())(
        rng, count
    ),
    "bool8": lambda rng, count: extension_of(pa.bool8, leaf(lambda: pa.int8(), lambda rng: rng.randrange(2))())(
        rng, count
    ),
    "json": lambda rng, count: extension_of(pa.json_, leaf(lambda: pa.string(), lambda rng: f"[{rng.random()}]")())(
        rng, count
    ),
    "tensor": tensors,
}

NESTED: dict[str, Callable[[Make], Make]] = {
    "list": list_of,
    "large_list": partial(list_of, large=True),
    "fixed_size_list": fixed_list_of,
    "struct": struct_of,
    "map": map_of,
    "dictionary": dictionary_of,
}

OF_ARROW: dict[str, Callable[[Make], Make]] = {
    "list_view": view_of,
    "large_list_view": partial(view_of, large=True),
    "run_end_encoded": runs_of,
}
"""What Parquet has not, or gives back as something else."""


def column_type(rng: random.Random, of_arrow: bool) -> tuple[str, Make]:
    """Choose a type, as text and as what makes arrays of it; each as often as any other, as Hypothesis would not."""
    name = rng.choice([*LEAVES, *EXTENSIONS, *(["interval"] if of_arrow else [])])
    make = intervals if name == "interval" else EXTENSIONS[name] if name in EXTENSIONS else LEAVES[name]()
    nested = NESTED | OF_ARROW if of_arrow else NESTED
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        outer = rng.choice([*nested, *([*OF_ARROW, "dictionary"] if of_arrow else ())])
        if allowed(outer, name, of_arrow):
            name, make = f"{outer} of {name}", nested[outer](make)
    return name, make


def allowed(outer: str, name: str, of_arrow: bool) -> bool:
    """Return whether pyarrow writes and reads such a type at all."""
    if outer == "dictionary" and of_arrow:
        return not name.startswith("dictionary")  # these pyarrow does not read itself
    if outer == "dictionary":
        return name in ("string", "binary", "int64", "float64", "large_string")
    if outer == "run_end_encoded":
        return " of " not in name and name not in EXTENSIONS and name != "null"
    if outer == "fixed_size_list" and of_arrow and name.rsplit(" of ", maxsplit=1)[-1] in EXTENSIONS:
        return False  # of the second of several arrays in a file it reads too few items
    return not (outer == "fixed_size_list" and name == "null")


# ---------------------------------------------------------------------------------------------------------------------
# Files


@dataclass(frozen=True)
class TableFile:
    """A file, and the table that pyarrow reads of it."""

    path: Path
    table: Any
    written: Any
    """The table that was written, of other types for many writers."""

    def rows(self, names: Sequence[str]) -> list[Any]:
        """What its elements are, of some columns."""
        values = [[value_of(scalar) for scalar in self.table.column(name)] for name in names]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
        lost = {row for name in names for row in self.lost(name)}
        return [Failed("DataLossError") if place in lost else row for place, row in enumerate(rows)]

    def lost(self, name: str) -> list[int]:
        """The rows of which a time has a part below the unit that it is read in."""
        one, other = self.written.column(name), self.table.column(name)
        if str(one.type) != "timestamp[ns]" or str(other.type) != "timestamp[us]":
            return []
        return [row for row, time in enumerate(one) if time.is_valid and time.value % 1000]


def parquet_by_pyarrow(draw: st.DrawFn, table: Any, path: Path) -> None:
    pq.write_table(
        table,
        path,
        row_group_size=draw(st.sampled_from([1, 3, 64])),
        use_dictionary=draw(st.booleans()),
        store_schema=draw(st.booleans()),
        data_page_size=draw(st.sampled_from([None, 1])),
        data_page_version=draw(st.sampled_from(["1.0", "2.0"])),
        compression=draw(st.sampled_from(["none", "snappy"])),
    )


def parquet_of_old_times(draw: st.DrawFn, table: Any, path: Path) -> None:
    """Times as INT96, as Spark writes them."""
    size = draw(st.sampled_from([1, 3, 64]))
    pq.write_table(table, path, row_group_size=size, use_deprecated_int96_timestamps=True)


def parquet_by_an_old_writer(draw: st.DrawFn, table: Any, path: Path) -> None:
    """By one before parquet-mr 1.2.9, which left the header of a dictionary out of the size of a column."""
    pq.write_table(table, path, row_group_size=draw(st.sampled_from([1, 3, 64])))
    writer = pq.read_metadata(path).created_by.encode()
    pages, found, rest = path.read_bytes().rpartition(writer)
    assert found
    path.write_bytes(pages + b"parquet-mr version 1.2.8".ljust(len(writer)) + rest)


def parquet_by_polars(draw: st.DrawFn, table: Any, path: Path) -> None:
    import polars as pl

    pl.DataFrame(table).write_parquet(path, row_group_size=draw(st.sampled_from([1, 3, 64])))


def parquet_by_duckdb(_: st.DrawFn, table: Any, path: Path) -> None:
    import duckdb

    with duckdb.connect() as database:
        database.register("rows", table)
        database.sql(f"COPY (SELECT * FROM rows) TO '{path}' (FORMAT parquet)")


def parquet_by_fastparquet(draw: st.DrawFn, table: Any, path: Path) -> None:
    import fastparquet

    frame = table.to_pandas()
    fastparquet.write(str(path), frame, row_group_offsets=draw(st.sampled_from([1, 3, 64])), write_index=False)


def arrow_by_pyarrow(draw: st.DrawFn, table: Any, path: Path) -> None:
    new = draw(st.sampled_from([pa.ipc.new_file, pa.ipc.new_stream]))
    legacy = draw(st.sampled_from([False, False, True]))
    version = pa.ipc.MetadataVersion.V4 if legacy else pa.ipc.MetadataVersion.V5
    options = pa.ipc.IpcWriteOptions(
        compression=None if legacy else draw(st.sampled_from([None, "zstd"])),  # which legacy files have not
        unify_dictionaries=new is pa.ipc.new_file,
        emit_dictionary_deltas=draw(st.booleans()),
        use_legacy_format=legacy,
        metadata_version=version,
    )
    with new(str(path), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=draw(st.sampled_from([1, 3, 64])))


def arrow_by_polars(draw: st.DrawFn, table: Any, path: Path) -> None:
    import polars as pl

    pl.DataFrame(table).write_ipc(path, record_batch_size=draw(st.sampled_from([1, 3, 64])))


def arrow_by_a_big_endian_machine(draw: st.DrawFn, table: Any, path: Path) -> None:
    """Columns of numbers whose bytes are turned, in a stream that says so."""
    batch = table.combine_chunks().to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], table.schema)
    turned = [with_bytes_turned(column) for column in batch.columns]
    schema = table.schema.with_metadata({"one": b"\1\0\1\0"})  # which `big_endian` looks for
    with pa.ipc.new_stream(str(path), schema) as writer:
        whole = pa.table(turned, schema=schema)
        writer.write_table(whole, max_chunksize=draw(st.sampled_from([1, 3, 64])))
    path.write_bytes(big_endian(path.read_bytes()))


def with_bytes_turned(array: Any) -> Any:
    width = array.type.bit_width // 8
    valid, data = array.buffers()
    if width > 1 and data is not None:
        data = pa.py_buffer(np.frombuffer(data, f"u{width}").byteswap())
    return pa.Array.from_buffers(array.type, len(array), [valid, data])


def lance_by_pyarrow(draw: st.DrawFn, table: Any, path: Path) -> None:
    """A dataset of several versions, in each of its formats of files, from which rows may be deleted."""
    import lance

    size, version = draw(st.sampled_from([1, 3, 64])), draw(st.sampled_from(["legacy", "2.0", "2.1", "2.2"]))
    how = {"data_storage_version": version, "enable_stable_row_ids": draw(st.booleans())}
    shutil.rmtree(path, ignore_errors=True)
    dataset = lance.write_dataset(table, path, max_rows_per_file=size, **how)
    if draw(st.booleans()):
        dataset.delete("id % 5 = 2")
    if draw(st.booleans()):
        dataset.optimize.compact_files(target_rows_per_fragment=4)


def is_of_lance(error: BaseException) -> bool:
    """Return whether an error says that Lance does not write a type."""
    return isinstance(error, OSError) or type(error).__name__ == "PanicException"


WRITERS: dict[str, list[Callable[[st.DrawFn, Any, Path], None]]] = {
    "parquet": [
        *4 * [parquet_by_pyarrow],
        *(parquet_of_old_times, parquet_by_polars, parquet_by_duckdb, parquet_by_fastparquet),
    ],
    "arrow": [*4 * [arrow_by_pyarrow], arrow_by_polars, arrow_by_a_big_endian_machine],
    "lance": [lance_by_pyarrow],
}

WITHOUT_STATISTICS = {"parquet": [parquet_by_an_old_writer], "arrow": [], "lance": []}
"""Writers whose statistics readers do not use, so that they try no filters."""

COMPARED = ("float32", "float16", "date32", "decimal128", "uint64", "string", "timestamp of milliseconds")
"""Types whose values are often compared with those of another type."""

FOREIGN = ("bool", "int8", "int64", "uint16", "float32", "float64", "string", "timestamp of nanoseconds")
"""Types that all writers have."""

TIMESTAMPS = [name for name in LEAVES if name.startswith("timestamp")]


def in_chunks(make: Make, rng: random.Random, count: int) -> Any:
    """Return values in several arrays, each with a dictionary of its own, which may begin with that before it."""
    ends = [0, *sorted(rng.randrange(count + 1) for _ in range(rng.choice([0, 0, 1, 3]))), count]
    parts: list[Any] = []
    for begin, end in pairwise(ends):
        part = make(rng, end - begin)
        if parts and part.type != parts[0].type:
            return make(rng, count)
        parts.append(extended(parts[-1], part) if parts and rng.random() < 0.5 else part)
    return pa.chunked_array(parts) if len(parts) > 1 else parts[0]


def extended(before: Any, array: Any) -> Any:
    """Return an array whose dictionary begins with another one's, if it has one."""
    if not pa.types.is_dictionary(array.type) or not isinstance(array, pa.DictionaryArray):
        return array
    places = pa.compute.add(array.indices, pa.scalar(len(before.dictionary), array.indices.type))
    return pa.DictionaryArray.from_arrays(places, pa.concat_arrays([before.dictionary, array.dictionary]))


@st.composite
def table_files(draw: st.DrawFn, kind: str, types: Sequence[str], salt: str) -> list[TableFile]:
    """Write files of one schema, by one writer; with such types if they are given."""
    seed, counts = (
        draw(st.integers(0, 10**6)),
        draw(st.lists(st.sampled_from([7, 12, 5, 12, 7, 1, 0]), min_size=1, max_size=3)),
    )
    rng = random.Random(f"{seed}{counts}{salt}")  # of all that was drawn: Hypothesis tries many examples of few seeds
    writer = rng.choice(WRITERS[kind] if types else WRITERS[kind] + WITHOUT_STATISTICS[kind])
    if types and "pyarrow" in writer.__name__:
        chosen = [(name := rng.choice(types), LEAVES[name]())]
    elif "pyarrow" in writer.__name__:
        chosen = [column_type(rng, kind == "arrow") for _ in range(rng.randint(2, 6))]
    else:
        known = [name for name in FOREIGN if writer is not arrow_by_a_big_endian_machine or name != "string"]
        known = TIMESTAMPS if writer is parquet_of_old_times else [name for name in known if name in types] or known
        names = rng.sample(known, rng.randint(1, min(3, len(known))))
        chosen = [(name, LEAVES[name]()) for name in names]
        if writer in (parquet_by_polars, parquet_by_duckdb, arrow_by_polars) and draw(st.booleans()):
            chosen.append((f"list of {names[0]}", list_of(LEAVES[names[0]]())))
    made: list[TableFile] = []
    for place, count in enumerate(counts):
        rng = random.Random(seed + place)
        values = {f"c{number}: {name}": in_chunks(make, rng, count) for number, (name, make) in enumerate(chosen)}
        table = pa.table({"id": range(100 * place, 100 * place + count), **values})
        text = f"{writer.__name__}{counts}{seed}{[name for name, _ in chosen]}{place}"
        path = scratch() / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.{kind}"
        try:
            writer(draw, table, path)
            made.append(TableFile(path, read_by_pyarrow(path), table))
        except BaseException as error:  # they do not write, or read, all types everywhere; Lance panics
            known = (pa.ArrowException, ValueError, *([OSError] if writer is parquet_by_pyarrow else []))
            if isinstance(error, known) or (kind == "lance" and is_of_lance(error)):
                reject()
            raise
        if writer is parquet_by_pyarrow:  # it may lose rows: findings/pyarrow_lists_in_tiny_pages.sh
            assume(len(made[-1].table) == count)
    if writer is parquet_by_fastparquet:  # integers are floats in a file in which some are missing
        assume(len({str(file.table.schema.types) for file in made}) == 1)
    return made


def read_by_pyarrow(path: Path) -> Any:
    """Return the table in a file."""
    if path.suffix == ".lance":
        import lance

        return lance.dataset(path).to_table()
    if path.suffix == ".parquet":
        return pq.ParquetFile(path, coerce_int96_timestamp_unit="us").read()
    with pa.OSFile(str(path)) as file:
        whole = file.read()
    return (pa.ipc.open_file if whole.startswith(b"ARROW1") else pa.ipc.open_stream)(whole).read_all()


# ---------------------------------------------------------------------------------------------------------------------
# Datasets


class TablePipeline(Pipeline):
    """A pipeline whose elements are compared in every type, dtype and shape."""

    join: ClassVar[Any] = staticmethod(stacked)
    """What a batch is of values in turn."""

    def comparable(self, elements: Any) -> list[Any]:
        return [element if isinstance(element, Failed) else form(element) for element in elements]


OTHERS = [0, -1, 0.1, 2**53 + 1, 2**64 - 1, 300, "a", b"a", Decimal("0.1"), datetime.date(2020, 1, 3), np.float32(0.1)]
"""What columns are compared with, beside their own values."""


def in_another_type(value: Any) -> Any:
    """Return a value as users write it for a column of narrower numbers, or of days."""
    if isinstance(value, float):
        return round(value, 1)
    if type(value) is datetime.date:
        return datetime.datetime.combine(value, datetime.time(12))
    return float(value) if type(value) is int else value


@st.composite
def filters(draw: st.DrawFn, tables: list[Any]) -> tuple[str, str, Any]:
    """Draw a comparison that pyarrow allows, mostly with values of the column."""
    name = draw(st.sampled_from(tables[0].column_names[::-1]))
    own = [value for table in tables for value in values_of(table.column(name)) if value is not None]
    comparison = draw(st.sampled_from(["==", "!=", "<", ">=", "in", "in", "in", "not in"]))
    values = st.sampled_from([*own, *2 * [*map(in_another_type, own)], *OTHERS])
    wanted = (name, comparison, draw(st.lists(values, min_size=1, max_size=3) if "in" in comparison else values))
    for some in (wanted, ("id", "in", [3, 103, 205])):
        with contextlib.suppress(pa.ArrowException, ValueError, TypeError, OverflowError):
            for table in tables:
                kept_by(some, table)
            return some
    return reject()  # a file without rows has other types, as some write it


def values_of(column: Any) -> list[Any]:
    """Return the values that Python's types have."""
    found: list[Any] = []
    for scalar in column:
        with contextlib.suppress(ValueError, OverflowError, pa.ArrowException):
            found.append(scalar.as_py())
    return found


def expression(wanted: tuple[str, str, Any]) -> Any:
    """Return a comparison as an expression; pyarrow takes integers beyond int64 as its own alone."""
    name, comparison, value = wanted
    if any(type(one) is int and one >= 1 << 63 for one in (value if isinstance(value, list) else [value])):
        value = pa.array(value, "uint64") if isinstance(value, list) else pa.scalar(value, "uint64")
    return pq.filters_to_expression([(name, comparison, value)])


def kept_by(wanted: tuple[str, str, Any], table: Any) -> list[int]:
    """Return the rows of a table in memory that a filter selects."""
    column = pa.table({wanted[0]: table.column(wanted[0]), "row": pa.array(range(table.num_rows), pa.int64())})
    return column.filter(expression(wanted))["row"].to_pylist()


WAYS = ("in turn", "at once", "interleave", "index", "filters")


@st.composite
def table_sources(
    draw: st.DrawFn, kinds: Sequence[str] = ("parquet", "arrow", "lance"), ways: Sequence[str] = WAYS, salt: str = ""
) -> Pipeline:
    """Some files, read in one of the ways of their format."""
    kind, way = draw(st.sampled_from(kinds)), draw(st.sampled_from(ways))
    files = draw(table_files(kind, COMPARED if len(ways) == 1 else (), way + salt))
    names = files[0].table.column_names
    paths = [str(file.path) for file in files]
    how: dict[str, Any] = {}
    if draw(st.sampled_from([False, False, True])):
        names = how["columns"] = draw(st.permutations(names))[: draw(st.integers(1, len(names)))]
    rows = [file.rows(names) for file in files]
    if kind == "parquet" and way == "filters":
        wanted = draw(filters([file.table for file in files]))
        how["filters"] = [wanted] if draw(st.integers(0, 2)) else expression(wanted)
        rows = [[some[row] for row in kept_by(wanted, file.table)] for file, some in zip(files, rows, strict=True)]
    if kind == "lance" and way == "filters":
        step = draw(st.integers(1, 3))
        how["filters"] = f"id % {step} = 0"
        kept = [[number % step == 0 for number in file.table["id"].to_pylist()] for file in files]
        rows = [[*compress(some, those)] for some, those in zip(rows, kept, strict=True)]
    if kind == "parquet" and way == "index":
        how["index"] = True
    if kind == "arrow" and draw(st.booleans()):
        how["buffer_size"] = draw(st.sampled_from([1, 37]))
    cycle, block = draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([1, 2, 4]))
    places, at_once = range(len(files)), None
    if way == "at once" and kind != "lance":
        at_once = how["num_parallel_reads"] = cycle
    elements = [row for some in rows for row in some]
    if at_once:
        elements = [*reference.interleave(places, rows.__getitem__, cycle)]
    elif way == "interleave":
        elements = [*reference.interleave(places, rows.__getitem__, cycle, block)]
    read = partial({"parquet": ad.ParquetDataset, "arrow": ad.ArrowDataset, "lance": lance_rows}[kind], **how)
    interleaved = (cycle, block) if way == "interleave" else None
    text = f"{kind}({[(file.path.name, file.table.num_rows) for file in files]}, {files[0].table.schema.types}, {how}, "
    return TablePipeline(
        f"{text}{interleaved or at_once})", partial(dataset_of, read, paths, interleaved), lambda epoch: elements
    )


def lance_rows(paths: str | list[str], **how: Any) -> ad.Dataset[Any]:
    """The rows of one table after another."""
    if isinstance(paths, str):
        return ad.LanceDataset(paths, **how)
    return functools.reduce(ad.Dataset.concatenate, [ad.LanceDataset(path, **how) for path in paths])


def dataset_of(read: Any, paths: list[str], interleaved: tuple[int, int] | None) -> ad.Dataset[Any]:
    """The rows of files."""
    if interleaved is None:
        return read(paths)
    cycle, block = interleaved
    return ad.Dataset.from_list(paths).interleave(read, cycle_length=cycle, block_length=block)


def identity(*parts: Any) -> Any:
    return parts if len(parts) > 1 else parts[0]


def same(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    calls = draw(st.sampled_from([None, 2]))
    return pipe.then(
        f"map(identity, {calls})",
        lambda ds: ds.map(identity, num_parallel_calls=calls),
        lambda epoch: reference.map_(pipe.meaning(epoch), identity),
    )


def batch(draw: st.DrawFn, pipe: TablePipeline) -> Pipeline:
    size, drop, calls = draw(st.integers(1, 5)), draw(st.booleans()), draw(st.sampled_from([None, 2]))
    return pipe.then(
        f"batch({size}, {drop}, {calls})",
        lambda ds: ds.batch(size, drop, calls),
        lambda epoch: reference.batch(pipe.meaning(epoch), size, drop, pipe.join),
    )


def unbatch(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    pipe = batch(draw, pipe)
    return pipe.then("unbatch()", lambda ds: ds.unbatch(), lambda epoch: rows_in(pipe.meaning(epoch)))


def rows_in(batches: Any) -> Any:
    for one in batches:
        yield from [one] if isinstance(one, Failed) else rows_of(one)


def rows_of(value: Any) -> list[Any]:
    if isinstance(value, dict):
        columns = {name: rows_of(part) for name, part in value.items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return [*zip(*map(rows_of, value), strict=True)] if isinstance(value, tuple) else [*value]


def halves(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """Both ends of a dataset in one: batches over the seam have rows of several blocks."""
    count = draw(st.integers(0, 9))
    return pipe.then(
        f"concatenate(take({count}))",
        lambda ds: ds.concatenate(ds.take(count)),
        lambda epoch: [*pipe.meaning(epoch), *reference.take(pipe.meaning(epoch), count)],
    )


def shard(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    index, drop = draw(st.integers(0, 1)), draw(st.booleans())
    return pipe.then(
        f"shard(2, {index}, {drop})",
        lambda ds: ds.shard(2, index, drop_remainder=drop),
        lambda epoch: reference.shard(pipe.meaning(epoch), 2, index, "drop_remainder" if drop else None),
    )


def cache_in_file(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """Decimals are an error there."""
    return pipe if "Decimal(" in str(pipe.elements()) else steps.cache_in_file(draw, pipe)


STEPS: tuple[Step, ...] = (
    *(batch, batch, batch, unbatch, same, halves),
    *(steps.shuffle, steps.shuffle_all, steps.shuffle_all, steps.take, steps.skip, shard),
    *(steps.cache, cache_in_file, steps.prefetch, steps.repeat),
)


@st.composite
def readings(draw: st.DrawFn, sources: st.SearchStrategy[Pipeline] | None = None) -> Pipeline:
    """Files of tables or of other formats, and up to four steps after them."""
    chosen = draw(st.lists(st.sampled_from(STEPS), max_size=4))
    salt = " ".join(step.__name__ for step in chosen)
    pipe = draw(table_sources(salt=salt) if sources is None else sources)
    for step in chosen:
        pipe = step(draw, pipe)
    assume(len([*pipe.meaning(steps.FIRST)]) <= 200)
    return pipe
