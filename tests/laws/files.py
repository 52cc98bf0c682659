"""Small real files, made once for all laws, and the datasets that read them, each with what its elements are."""

from __future__ import annotations

import contextlib
import gzip
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.formats.tfrecord import frame
from tests import reference
from tests.reference import Failed

DAMAGED, MISSING = Failed("DataLossError"), Failed("FileNotFoundError")


@dataclass(frozen=True)
class FileSource:
    """A dataset that reads files, made anew by each call of `build`, and its elements, the same in each epoch."""

    text: str
    build: Callable[[], ad.Dataset[Any]]
    elements: Sequence[Any]


@dataclass
class Folder:
    """Where files are kept as long as the tests run, and what is in each."""

    path: Path
    found: dict[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])

    def add(self, name: str, content: bytes, elements: Iterable[Any]) -> None:
        """Write a file, and another with the same content that is compressed if nothing is wrong with it."""
        (self.path / name).write_bytes(content)
        self.found[name] = [*elements]
        if Failed not in map(type, self.found[name]):
            (self.path / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))
            self.found[f"{name}.gz"] = self.found[name]

    def of(self, kind: str, compressed: bool) -> list[str]:
        """Return the names of the files of a kind, one that is missing among them."""
        suffix = f".{kind}{'.gz' if compressed else ''}"
        return sorted(name for name in self.found if name.endswith(suffix))


KEPT: list[tempfile.TemporaryDirectory[str]] = []
"""What is deleted when the interpreter ends."""


@cache
def scratch() -> Path:
    """Return a folder that is there until the interpreter ends."""
    KEPT.append(tempfile.TemporaryDirectory(prefix="asyncdata-laws-"))
    return Path(KEPT[0].name)


@cache
def folder() -> Folder:
    """Write all files, once."""
    made = Folder(scratch() / "files")
    made.path.mkdir()
    add_records(made)
    add_lines(made)
    add_fixed(made)
    add_tables(made)
    for kind in ("records", "lines", "fixed", "csv"):
        made.found[f"missing.{kind}"] = [MISSING]
    add_database(made.path / "table.db")
    (made.path / "table").write_text("number,half\n" + "".join(f"{row},{row / 2}\n" for row in range(7)))
    ad.Dataset.range(23).map(saved_element).save(made.path / "saved", shard_func=lambda number, *_: number % 2)
    return made


def add_records(made: Folder) -> None:
    """Records of many lengths; one is corrupt in a file, another file is cut short."""
    records = [bytes([65 + number]) * (number * 7 % 40) for number in range(26)]
    framed = [*map(frame, records)]
    made.add("a.records", b"".join(framed), records)
    made.add("b.records", b"", [])
    damaged = framed[9][:13] + b"~" + framed[9][14:]
    made.add("c.records", b"".join([*framed[:9], damaged, *framed[10:14]]), [*records[:9], DAMAGED, *records[10:14]])
    made.add("d.records", b"".join(framed[4:8]) + framed[8][:-3], [*records[4:8], DAMAGED])


def add_lines(made: Folder) -> None:
    lines = [b"", b"one", b"", b"four", b"x" * 200, *[b"line %d" % number for number in range(19)]]
    made.add("a.lines", b"\n".join(lines) + b"\n", lines)
    made.add("b.lines", b"\r\n".join(lines[:7]), lines[:7])
    made.add("c.lines", b"", [])


def add_fixed(made: Folder) -> None:
    """Records of three bytes after a header of two and before a footer of one."""
    records = [b"%03d" % number for number in range(31)]
    made.add("a.fixed", b"##" + b"".join(records) + b"!", records)
    made.add("b.fixed", b"##!", [])
    made.add("c.fixed", b"##" + b"".join(records[:4]) + b"9!", [DAMAGED])
    made.add("d.fixed", b"##" + b"".join(records[20:]) + b"!", records[20:])


def add_tables(made: Folder) -> None:
    """Two columns; in one file a record has a field too many, another has no number."""
    rows = [(np.int32(number * number), f"name {number}".encode()) for number in range(25)]
    told = [b'%d,"%s"\n' % (number, name) for number, name in rows]
    made.add("a.csv", b"".join(told), rows)
    odd = [*told[:3], b"1,2,3\n", told[4], b"x,y\n", b"7,\n"]
    made.add("b.csv", b"".join(odd), [*rows[:3], DAMAGED, rows[4], DAMAGED, (np.int32(7), b"none")])


def add_database(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE numbers (number INTEGER, name TEXT)")
        db.executemany("INSERT INTO numbers VALUES (?, ?)", [(number, f"n{number}") for number in range(21)])
        db.commit()


def saved_element(number: int) -> Any:
    """Return what is kept in files of elements: structures, arrays, strings."""
    return number, {"name": f"#{number}", "values": np.arange(number % 4)}


def order_saved() -> list[Any]:
    """Return the elements as they are read: shard by shard."""
    return [saved_element(number) for number in (*range(0, 23, 2), *range(1, 23, 2))]


READERS: dict[str, Callable[..., ad.Dataset[Any]]] = {
    "records": ad.TFRecordDataset,
    "lines": ad.TextLineDataset,
    "fixed": lambda names, **how: ad.FixedLengthRecordDataset(names, 3, 2, 1, **how),
    "csv": lambda names, **how: ad.experimental.CsvDataset(names, [np.int32, b"none"], **how),
}


@st.composite
def file_sources(draw: st.DrawFn) -> FileSource:
    """Some files of one kind, read one after the other or two at once, in blocks that are as small as can be or not."""
    kind = draw(st.sampled_from([*READERS, "sql", "saved", "listed", "table"]))
    if kind == "sql":
        return rows_of_a_query(draw)
    if kind == "saved":
        return FileSource("load(saved)", lambda: ad.Dataset.load(folder().path / "saved"), order_saved())
    if kind == "listed":
        return listed_files(draw)
    if kind == "table":
        return batches_of_a_table(draw)
    compressed = draw(st.sampled_from([False, False, True]))
    names = draw(st.lists(st.sampled_from(folder().of(kind, compressed)), min_size=1, max_size=3))
    how: dict[str, Any] = {"compression_type": "GZIP"} if compressed else {}
    if (size := draw(st.sampled_from([None, 1, 37]))) is not None:
        how["buffer_size"] = size
    if kind != "csv" and draw(st.integers(0, 2)) == 0:
        how["num_parallel_reads"] = draw(st.sampled_from([1, 2]))
    if kind == "records" and not compressed and draw(st.booleans()):
        how["index"] = True
    as_dataset = draw(st.booleans())
    return FileSource(
        f"{kind}({names}, {how}, {as_dataset=})",
        lambda: READERS[kind](paths(names, as_dataset), **how),
        elements_of(names, how.get("num_parallel_reads")),
    )


def paths(names: Sequence[str], as_dataset: bool) -> Any:
    found = [str(folder().path / name) for name in names]
    return ad.Dataset.from_list(found) if as_dataset else found


def elements_of(names: Sequence[str], at_once: int | None) -> list[Any]:
    found = folder().found
    if at_once is None:
        return [element for name in names for element in found[name]]
    return list(reference.interleave(names, found.__getitem__, at_once))


def listed_files(draw: st.DrawFn) -> FileSource:
    """The names of files by several patterns, sorted; one that two patterns match is there twice."""
    endings = draw(st.lists(st.sampled_from(["lines", "fixed", "?*d", "records.gz"]), min_size=1, max_size=2))
    found = [name for ending in endings for name in there() if fnmatch(name, f"*.{ending}")]

    def build() -> ad.Dataset[Any]:
        patterns = [str(folder().path / f"*.{ending}") for ending in endings]
        return ad.Dataset.list_files(patterns, shuffle=False).map(os.path.basename)

    return FileSource(f"list_files({endings})", build, sorted(found))


def there() -> list[str]:
    return [path.name for path in folder().path.iterdir() if "." in path.name]


def batches_of_a_table(draw: st.DrawFn) -> FileSource:
    """Dicts of columns."""
    size, rows = draw(st.sampled_from([1, 3, 7, 8])), range(7)
    batches = [rows[start : start + size] for start in range(0, len(rows), size)]
    return FileSource(
        f"make_csv_dataset({size})",
        lambda: ad.experimental.make_csv_dataset(folder().path / "table", size, num_epochs=1, shuffle=False),
        [
            {"number": np.array(batch, np.int32), "half": np.array([row / 2 for row in batch], np.float32)}
            for batch in batches
        ],
    )


def rows_of_a_query(draw: st.DrawFn) -> FileSource:
    most = draw(st.sampled_from([21, 8, 0]))
    query = f"SELECT number, name FROM numbers WHERE number < {most} ORDER BY number DESC"
    return FileSource(
        f"sql({most})",
        lambda: ad.experimental.SqlDataset("sqlite", folder().path / "table.db", query, (np.int64, str)),
        [(np.int64(number), f"n{number}".encode()) for number in reversed(range(most))],
    )
