"""Random tables in files of which a part cannot be read, and what is given of them: an error in its place, all else."""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import reject
from hypothesis import strategies as st

import asyncdata as ad
from tests.laws.files import scratch
from tests.laws.pipelines import Pipeline
from tests.laws.tables import LEAVES, TableFile, TablePipeline, column_type, dataset_of, intervals, read_by_pyarrow
from tests.reference import Failed

__all__ = ("refused_sources",)

pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")


Part: TypeAlias = tuple[int, int, int]
"""Some rows of a table, from one to another, and as how many records they are counted that cannot be read; 0 if they
can be. `WHOLE` for all that a file has."""

WHOLE = -1


@dataclass(frozen=True)
class RefusedFile:
    """A file, the table in it, and which parts of its rows cannot be read with one of some columns."""

    path: Path
    table: Any
    columns: Sequence[str]
    parts: Sequence[Part]

    def elements(self, names: Sequence[str], counted: bool) -> list[Any]:
        """What its elements are: one error for each part that cannot be read, or for each record of it if `counted`."""
        once = [name for name in names if self.table.column_names.count(name) == 1]
        rows = TableFile(self.path, self.table.select(once), self.table.select(once)).rows(once)
        found: list[Any] = []
        for begin, stop, lost in self.parts:
            readable = not lost or set(self.columns).isdisjoint(names)
            errors = [Failed("DataLossError", of_source=lost == WHOLE)]
            found += rows[begin:stop] if readable else errors * (lost if counted and lost != WHOLE else 1)
        return found


def groups_of(count: int, size: int) -> list[tuple[int, int]]:
    """Return the rows of each row group."""
    return [(begin, min(begin + size, count)) for begin in range(0, count, size)]


# ---------------------------------------------------------------------------------------------------------------------
# Columns that no value can be made of

Column: TypeAlias = Callable[[random.Random, int], tuple[list[str], list[Any]]]
"""Makes one column or two, of so many rows."""


def of_one_name(rng: random.Random, count: int) -> tuple[list[str], list[Any]]:
    return ["bad", "bad"], [LEAVES[rng.choice(["int64", "string"])]()(rng, count) for _ in range(2)]


def with_fields_of_one_name(rng: random.Random, count: int) -> tuple[list[str], list[Any]]:
    """A struct, which may be in a list."""
    inside = rng.random() < 0.5
    fields = [pa.array(range(count + inside), pa.int64()) for _ in range(2)]
    structs = pa.StructArray.from_arrays(fields, ["q", "q"])
    lists = pa.ListArray.from_arrays(pa.array([*range(count), count + 1], pa.int32()), structs) if inside else structs
    return ["bad"], [lists]


def of_months(rng: random.Random, count: int) -> tuple[list[str], list[Any]]:
    """Intervals, of which `said_to_be_months` makes months: pyarrow has no values of these."""
    return ["bad"], [intervals(rng, count)]


def of_coded_codes(rng: random.Random, count: int) -> tuple[list[str], list[Any]]:
    """A dictionary of a dictionary: pyarrow writes it, and reads no column of such a file."""
    words = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int8()), ["x", "y"])
    places = pa.array([rng.randrange(2) for _ in range(count)], pa.int8())
    return ["bad"], [pa.DictionaryArray.from_arrays(places, words)]


def said_to_be_months(content: bytes) -> bytes:
    """Change the type of intervals in the schema of an Arrow stream or file."""
    data = bytearray(content)

    def at(place: int) -> int:
        return place + struct.unpack_from("<I", data, place)[0]

    def field(table: int, number: int) -> int:
        fields = table - struct.unpack_from("<i", data, table)[0]
        return table + struct.unpack_from("<H", data, fields + 4 + 2 * number)[0]

    columns = at(field(at(field(at(data.index(b"\xff\xff\xff\xff") + 8), 2)), 1))  # of the schema of the first message
    for number in range(struct.unpack_from("<I", data, columns)[0]):
        column = at(columns + 4 + 4 * number)
        if data[field(column, 2)] == 11:  # an interval
            struct.pack_into("<h", data, field(at(field(column, 3)), 0), 0)
    return bytes(data)


# ---------------------------------------------------------------------------------------------------------------------
# Files


def parquet_of(make: Column, rng: random.Random, names: list[str], columns: list[Any], path: Path) -> RefusedFile:
    """A file whose row groups cannot be read with a column."""
    count, size = len(columns[0]), rng.choice([1, 3, 64])
    more, made = make(rng, count)
    table = pa.Table.from_arrays([*columns, *made], [*names, *more])
    pq.write_table(table, path, row_group_size=size)
    return RefusedFile(path, table, ["bad"], [(begin, stop, stop - begin) for begin, stop in groups_of(count, size)])


def arrow_of(make: Column, rng: random.Random, names: list[str], columns: list[Any], path: Path) -> RefusedFile:
    """A file or stream that cannot be read with a column."""
    count, size = len(columns[0]), rng.choice([1, 3, 64])
    more, made = make(rng, count)
    table = pa.Table.from_arrays([*columns, *made], [*names, *more])
    with rng.choice([pa.ipc.new_file, pa.ipc.new_stream])(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=size)
    if make is of_months:
        path.write_bytes(said_to_be_months(path.read_bytes()))
    return RefusedFile(path, table, table.column_names if make is of_coded_codes else ["bad"], [(0, count, WHOLE)])


def edited(path: Path, edit: Callable[[Any], None]) -> None:
    """Change the metadata of a Parquet file. fastparquet cannot write that of all types: `ValueError`."""
    metadata = pytest.importorskip("fastparquet").ParquetFile(str(path)).fmd
    content = path.read_bytes()
    end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for change in (lambda _: None, edit):
        schema = pq.read_schema(path)
        change(metadata)
        footer = bytes(metadata.to_bytes())
        path.write_bytes(content[:end] + footer + struct.pack("<I", len(footer)) + b"PAR1")
        try:
            same = pq.read_schema(path).equals(schema)
        except OSError:
            same = False
        if not same:
            raise ValueError("it has other types")


def of_other_lengths(rng: random.Random, names: list[str], columns: list[Any], path: Path) -> RefusedFile:
    """A file of which a row group has more or fewer rows than its metadata says.

    pyarrow reads as many as it says; columns of lists alone do not show that there are more.
    """
    count, size = len(columns[0]), rng.choice([2, 3, 64])
    table = pa.table(dict(zip(names, columns, strict=True)))
    pq.write_table(table, path, row_group_size=size)
    groups = groups_of(count, size)
    bad = rng.randrange(len(groups))
    begin, stop = groups[bad]
    other = rng.choice([1, 5, -1, begin - stop]) + stop - begin

    def edit(metadata: Any) -> None:
        metadata.row_groups[bad].num_rows = other

    edited(path, edit)
    parts = [(start, end, other * (number == bad)) for number, (start, end) in enumerate(groups)]
    return RefusedFile(path, table, names, parts if other else [(0, count, WHOLE)])


def beyond_its_end(rng: random.Random, names: list[str], columns: list[Any], path: Path) -> RefusedFile:
    """A file that says of a column of some row group that it lies behind the end: nothing is read with that column."""
    count, size = len(columns[0]), rng.choice([1, 3, 64])
    codes = rng.random() < 0.5
    table = pa.table(dict(zip(names, columns, strict=True)))
    pq.write_table(table, path, row_group_size=size, use_dictionary=codes)
    metadata = pq.read_metadata(path)
    group, place = rng.randrange(metadata.num_row_groups), rng.randrange(metadata.num_columns)

    def edit(metadata: Any) -> None:
        chunk = metadata.row_groups[group].columns[place].meta_data
        chunk.data_page_offset += 10**6
        if chunk.dictionary_page_offset is not None:
            chunk.dictionary_page_offset += 10**6

    edited(path, edit)
    path_of_column = metadata.schema.column(place).path
    column = next(name for name in names if f"{path_of_column}.".startswith(f"{name}."))
    return RefusedFile(path, table, [column], [(0, count, WHOLE)])


TROUBLES: dict[str, list[Callable[[random.Random, list[str], list[Any], Path], RefusedFile]]] = {
    "parquet": [
        *(of_other_lengths, beyond_its_end),
        *(partial(parquet_of, make) for make in (of_one_name, with_fields_of_one_name)),
    ],
    "arrow": [partial(arrow_of, make) for make in (of_one_name, with_fields_of_one_name, of_months, of_coded_codes)],
}


def read_back(table: Any, path: Path) -> Any:
    """Return what pyarrow reads of a sound file."""
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        with pa.ipc.new_stream(str(path), table.schema) as writer:
            writer.write_table(table)
    return read_by_pyarrow(path)


@st.composite
def refused_files(draw: st.DrawFn, kind: str) -> list[RefusedFile]:
    """Write files of one schema, each with one of these troubles."""
    seed, counts = draw(st.integers(0, 10**6)), draw(st.lists(st.sampled_from([7, 5, 1]), min_size=1, max_size=3))
    rng = random.Random(f"{seed}{counts}{kind}")
    chosen = [column_type(rng, kind == "arrow") for _ in range(rng.randint(1, 3))]
    made: list[RefusedFile] = []
    trouble = rng.choice(TROUBLES[kind])
    for place, count in enumerate(counts):
        columns = [pa.array(range(count), pa.int64()), *(make(rng, count) for _, make in chosen)]
        names = ["id", *(f"c{number}" for number in range(len(chosen)))]
        text = f"refused {kind}{counts}{seed}{place}"
        path = scratch() / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.{kind}"
        try:
            table = read_back(pa.table(dict(zip(names, columns, strict=True))), path)
            made.append(trouble(rng, names, table.columns, path))
        except (pa.ArrowException, ValueError):  # pyarrow does not write, or read, all types everywhere
            reject()
    return made


@st.composite
def refused_sources(draw: st.DrawFn, kinds: Sequence[str] = ("parquet", "arrow")) -> Pipeline:
    """Such files, read in one of the ways of their format."""
    kind = draw(st.sampled_from(kinds))
    files = draw(refused_files(kind))
    names: Sequence[str] = files[0].table.column_names
    how: dict[str, Any] = {}
    if draw(st.booleans()):
        names = [*dict.fromkeys(names)]
        names = how["columns"] = [*draw(st.permutations(names))[: draw(st.integers(1, len(names)))]]
        if len(files[0].columns) > 1 and "id" not in names:
            names.append("id")  # which shows it
    if kind == "parquet" and draw(st.booleans()):
        how["index"] = True
    elements = [element for file in files for element in file.elements(names, "index" in how)]
    read = partial(ad.ParquetDataset if kind == "parquet" else ad.ArrowDataset, **how)
    text = f"refused {kind}({[(file.path.name, file.parts) for file in files]}, {files[0].table.schema.types}, {how})"
    paths = [str(file.path) for file in files]
    return TablePipeline(text, partial(dataset_of, read, paths, None), lambda epoch: elements)
