"""Elements of files that are no tables are what the library that defines a format reads, however they are read."""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import io
import json
import random
import sqlite3
import struct
import tarfile
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.formats.compression import zstd_module
from tests import reference
from tests.laws.files import scratch
from tests.laws.pipelines import Pipeline
from tests.laws.table_types import objects, stacked
from tests.laws.tables import TablePipeline, dataset_of, readings
from tests.laws.test_placement import BESIDE, FEW, LEGS
from tests.laws.test_resume import Leg, legs, read_in_legs
from tests.reference import Misfit
from tests.running import WAYS, read_plain

pytestmark = pytest.mark.formats


# ---------------------------------------------------------------------------------------------------------------------
# Values

WORDS = ["", "a", "\xe9\0", "long " * 9, "two\nlines", 'a "quote"', "a,b;c\td|e", " x ", "\u2028\U0001f600", "NaN", "1"]


def word(rng: random.Random) -> str:
    return rng.choice(WORDS)


VALUES: dict[str, Callable[[random.Random], Any]] = {
    "int": lambda rng: rng.choice([0, -1, 7, 2**53 + 1, 2**63 - 1, -(2**63)]),
    "float": lambda rng: rng.choice([0.1, -0.0, 1e300, 5e-324, rng.random()]),
    "bool": lambda rng: rng.random() < 0.5,
    "text": word,
    "big": lambda rng: rng.choice([1, 2**63, 2**70]),
    "not finite": lambda rng: rng.choice([float("nan"), float("inf"), 1.5]),
    "pair": lambda rng: [rng.randrange(9), -1],
    "list": lambda rng: [rng.randrange(9) for _ in range(rng.randrange(4))],
    "texts": lambda rng: [word(rng), "b"],
    "dict": lambda rng: {"x": rng.randrange(9), "y": word(rng)},
}
"""Kinds of columns in formats of Python's values."""


def joined(column: list[Any]) -> Any:
    """Return what a batch is of Python's values in turn; `Misfit` if there is none."""
    kinds = {*map(type, column)}
    if type(None) in kinds:
        return objects(column)
    if kinds & {dict, tuple}:
        if len(kinds) > 1 or len({tuple(sorted(part)) if kinds == {dict} else len(part) for part in column}) > 1:
            raise Misfit
        if kinds == {tuple}:
            return tuple(map(joined, map(list, zip(*column, strict=True))))
        return {name: joined([row[name] for row in column]) for name in column[0]}
    if list in kinds:
        return stacked([np.array(one, object if str in map(type, one) else None) for one in column])
    if kinds <= {bool, int, float}:
        if any(type(value) is int and not -(2**63) <= value < 2**63 for value in column):
            raise Misfit
        return np.array(column)
    return objects(column) if kinds & {np.str_, np.bytes_} else stacked(column)


class FilePipeline(TablePipeline):
    """A pipeline whose elements have Python's values too."""

    join: ClassVar[Any] = staticmethod(joined)


def rows(draw: st.DrawFn, kinds: list[str], missing: bool = True) -> Callable[[random.Random, int], list[Any]]:
    """Draw columns, and return what makes rows of them."""
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3))
    gone = draw(st.sampled_from([0, 0, 3])) if missing else 0

    def value(kind: str, rng: random.Random) -> Any:
        return None if gone and rng.randrange(gone) == 0 else VALUES[kind](rng)

    def make(rng: random.Random, count: int) -> list[Any]:
        return [{"id": id_, **{f"c{n}": value(kind, rng) for n, kind in enumerate(chosen)}} for id_ in range(count)]

    return make


# ---------------------------------------------------------------------------------------------------------------------
# Formats


@dataclass(frozen=True)
class Kind:
    """How files of a format are written, what reads them by the format's own library, and what does here."""

    write: Callable[[random.Random, int, Path], Any]
    elements: Callable[[Path], list[Any]]
    read: Callable[..., ad.Dataset[Any]]
    how: tuple[str, ...] = ("num_parallel_reads", "buffer_size", "index", "compressed")
    """In which ways it can be read."""


def json_lines(draw: st.DrawFn) -> Kind:
    writer, escaped = draw(st.sampled_from(["json", "json", "polars", "pandas", "msgspec"])), draw(st.booleans())
    end, last, first = draw(st.sampled_from(["\n", "\r\n", "\n\n \n"])), draw(st.booleans()), draw(st.booleans())
    make = rows(draw, [*VALUES] if writer == "json" else ["int", "float", "bool", "text", "pair"])

    def write(rng: random.Random, count: int, path: Path) -> None:
        made = make(rng, count)
        if writer == "polars":
            import polars as pl

            pl.DataFrame(made, infer_schema_length=None).write_ndjson(path)
        elif writer == "pandas":
            import pandas as pd

            pd.DataFrame(made).to_json(path, orient="records", lines=True, force_ascii=escaped)
        elif writer == "msgspec":
            import msgspec

            path.write_bytes(b"\n".join(map(msgspec.json.encode, made)))
        else:
            text = end.join(json.dumps(row, ensure_ascii=escaped) for row in made) + end * last
            path.write_bytes(b"\xef\xbb\xbf" * first + text.encode())

    def elements(path: Path) -> list[Any]:
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
        return [json.loads(line) for line in lines if line.strip()]

    return Kind(write, elements, ad.JsonLinesDataset)


def text_lines(draw: st.DrawFn) -> Kind:
    end, last = draw(st.sampled_from([b"\n", b"\r\n"])), draw(st.booleans())

    def write(rng: random.Random, count: int, path: Path) -> None:
        path.write_bytes(end.join(word(rng).replace("\n", "\r").encode() for _ in range(count)) + end * last)

    def elements(path: Path) -> list[Any]:
        """Return lines as TensorFlow splits them: without any carriage return."""
        with path.open("rb") as file:
            return [line.replace(b"\r", b"").removesuffix(b"\n") for line in file]

    return Kind(write, elements, ad.TextLineDataset, ("num_parallel_reads", "buffer_size", "compressed"))


def records_of_one_length(draw: st.DrawFn) -> Kind:
    size, header, footer = draw(st.integers(1, 5)), draw(st.integers(0, 3)), draw(st.integers(0, 3))

    def write(rng: random.Random, count: int, path: Path) -> None:
        path.write_bytes(rng.randbytes(header + size * count + footer))

    def elements(path: Path) -> list[Any]:
        body = path.read_bytes()[header:]
        return [body[start : start + size] for start in range(0, len(body) - footer, size)]

    read = partial(ad.FixedLengthRecordDataset, record_bytes=size, header_bytes=header, footer_bytes=footer)
    return Kind(write, elements, read, ("num_parallel_reads", "buffer_size"))


def tf_records(draw: st.DrawFn) -> Kind:
    def write(rng: random.Random, count: int, path: Path) -> None:
        records = [rng.randbytes(rng.choice([0, 1, 40])) for _ in range(count)]
        sizes = [struct.pack("<Q", len(record)) for record in records]
        check = reference.masked
        framed = [size + check(size) + one + check(one) for size, one in zip(sizes, records, strict=True)]
        path.write_bytes(b"".join(framed))

    return Kind(write, lambda path: [*reference.tf_records(path.read_bytes())], ad.TFRecordDataset)


def array_records(draw: st.DrawFn) -> Kind:
    from array_record.python import array_record_module as module

    options = draw(st.sampled_from(["group_size:1", "group_size:3", "group_size:2,uncompressed"]))

    def write(rng: random.Random, count: int, path: Path) -> None:
        writer = module.ArrayRecordWriter(str(path), options)
        for _ in range(count):
            writer.write(rng.randbytes(rng.choice([0, 1, 40])))
        writer.close()

    def elements(path: Path) -> list[Any]:
        reader = module.ArrayRecordReader(str(path))
        return reader.read_all() if reader.num_records() else []

    return Kind(write, elements, ad.ArrayRecordDataset, ("num_parallel_reads",))


DTYPES = ["?", "i1", "<i8", ">i4", "u8", "f2", "<f4", ">f8", "c8", "M8[s]", "m8[ns]", "U3", "S3", "V2", "i4,f8"]


def arrays(draw: st.DrawFn) -> Kind:
    several, order = draw(st.booleans()), draw(st.sampled_from(["C", "C", "F"]))
    made = [
        (np.dtype(draw(st.sampled_from(DTYPES))), draw(st.sampled_from([(), (2,), (2, 3), (0,)]))) for _ in range(2)
    ]

    def array(rng: random.Random, count: int, dtype: Any, shape: tuple[int, ...]) -> Any:
        size = count * int(np.prod(shape, dtype=int))
        if dtype.kind == "U":
            return np.array([rng.choice(["", "a", "\xe9b"]) for _ in range(size)], dtype).reshape(count, *shape)
        content = (
            rng.randbytes(size * dtype.itemsize) if dtype.kind != "b" else bytes(rng.randrange(2) for _ in range(size))
        )
        return np.frombuffer(content, dtype).reshape(count, *shape).copy(order)

    def write(rng: random.Random, count: int, path: Path) -> None:
        with path.open("wb") as file:
            if several:
                arrays = {name: array(rng, count, *how) for name, how in zip("xy", made, strict=True)}
                (np.savez_compressed if order == "F" else np.savez)(file, **arrays)
            else:
                np.save(file, array(rng, count, *made[0]))

    def elements(path: Path) -> list[Any]:
        found = np.load(path)
        if not several:
            return [*found]
        with found:
            columns = dict(found)
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    return Kind(write, elements, ad.NpyDataset, ("num_parallel_reads", "buffer_size", "index"))


def npy(value: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, value)
    return file.getvalue()


MEMBERS: dict[str, Callable[[random.Random], Any]] = {
    "txt": lambda rng: word(rng).encode(),
    "cls": lambda rng: b"%d" % rng.randrange(-1, 99),
    "json": lambda rng: json.dumps(VALUES["dict"](rng)).encode(),
    "npy": lambda rng: npy(np.arange(rng.randrange(3))),
    "jpg": lambda rng: rng.randbytes(rng.choice([0, 1, 511, 512, 600])),
}


def samples(draw: st.DrawFn) -> Kind:
    """Archives of several dialects of tar, some keys of which are long or in folders, and what webdataset reads."""
    from webdataset import TarWriter, autodecode, tariterators

    dialect = draw(st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, None]))
    chosen = draw(st.lists(st.sampled_from([*MEMBERS]), min_size=1, max_size=3, unique=True))
    prefix = draw(st.sampled_from(["", "./", "folder/", "a.b/", "x" * 90 + "/", "\xe9/"]))

    def write(rng: random.Random, count: int, path: Path) -> None:
        made = [
            {"__key__": f"{prefix}{id_:03}", **{name: MEMBERS[name](rng) for name in chosen}} for id_ in range(count)
        ]
        if dialect is None:
            with TarWriter(str(path), encoder=False) as writer:
                for sample in made:
                    writer.write(sample)
            return
        with tarfile.open(path, "w", format=dialect) as archive:
            for sample in made:
                for name in chosen:
                    info = tarfile.TarInfo(f"{sample['__key__']}.{name}")
                    info.size, info.mtime = len(sample[name]), 0.5
                    archive.addfile(info, io.BytesIO(sample[name]))

    def elements(path: Path) -> list[Any]:
        state = random.getstate()  # which it changes
        with path.open("rb") as stream:
            members = tariterators.tar_file_expander([{"url": "", "stream": stream}])
            found = [*map(autodecode.Decoder([]), tariterators.group_by_keys(members))]
        random.setstate(state)
        return [
            {name: value for name, value in one.items() if name not in ("__url__", "__local_path__")} for one in found
        ]

    return Kind(write, elements, ad.WebDataset)


FIELDS: dict[str, tuple[Any, Callable[[random.Random], Any]]] = {
    "int32": (np.int32, lambda rng: rng.choice([0, -1, 2**31 - 1])),
    "int64": (np.int64, VALUES["int"]),
    "float32": (np.float32, VALUES["float"]),
    "float64": (np.float64, lambda rng: rng.choice([VALUES["float"](rng), float("inf"), float("nan")])),
    "text": (str, lambda rng: word(rng).replace("\0", "")),
}
"""Types of fields of CSV: required ones, or by a default."""

DEFAULTS: dict[str, Any] = {
    "int32": np.int32(5),
    "int64": np.int64(-3),
    "float32": np.float32(0.5),
    "float64": np.float64(2),
    "text": "none",
}


def comma_separated(draw: st.DrawFn) -> Kind:
    chosen = draw(st.lists(st.sampled_from([*FIELDS]), min_size=1, max_size=3))
    required = [draw(st.booleans()) and name != "text" for name in chosen]
    header, comma = draw(st.booleans()), draw(st.sampled_from([",", ";", "\t", "|"]))
    writer = draw(st.sampled_from(["csv", "csv", "pandas", "polars", "duckdb"]))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    quoted = [csv.QUOTE_ALL] if end == "\r" else [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]
    style = {"lineterminator": end, "quoting": draw(st.sampled_from(quoted))}  # some Pythons quote no newline otherwise
    places = draw(st.permutations(range(len(chosen) + 1)))[: draw(st.integers(1, len(chosen) + 1))]
    selected = sorted(places) if draw(st.booleans()) else None
    how = [(np.dtype(np.int32), None), *[told(name, must) for name, must in zip(chosen, required, strict=True)]]
    shown = range(len(how)) if selected is None else selected

    def write(rng: random.Random, count: int, path: Path) -> None:
        made = [
            [
                id_,
                *[
                    None if not must and rng.randrange(4) == 0 else FIELDS[name][1](rng)
                    for name, must in zip(chosen, required, strict=True)
                ],
            ]
            for id_ in range(count)
        ]
        names = [f"c{place}" for place in range(len(how))]
        if writer == "csv":
            with path.open("w", newline="", encoding="utf-8") as file:
                out = csv.writer(file, delimiter=comma, **style)
                out.writerows([names, *made] if header else made)
            return
        write_frame(
            writer,
            dict(zip(names, map(list, zip(*made, strict=True)), strict=True)) if made else {},
            path,
            comma,
            header,
            names,
        )

    def elements(path: Path) -> list[Any]:
        with path.open(newline="", encoding="utf-8") as file:
            found = [*csv.reader(file, delimiter=comma, strict=True)][header:]
        return [record(row, how, shown) for row in found]

    defaults = [dtype.type if default is None else default for dtype, default in how]
    read = partial(
        ad.experimental.CsvDataset,
        record_defaults=[str if defaults[place] is np.object_ else defaults[place] for place in shown],
        header=header,
        field_delim=comma,
        select_cols=selected,
    )
    return Kind(write, elements, read, ("buffer_size", "compressed"))


def told(name: str, required: bool) -> tuple[Any, Any]:
    """Return the dtype of a field and its default, `None` if it is required."""
    kind = FIELDS[name][0]
    return np.dtype(object if kind is str else kind), None if required else DEFAULTS[name]


def record(fields: list[str], how: list[tuple[Any, Any]], shown: Iterable[int]) -> Any:
    """Return a record, or its error if a field that is required is missing: some write NaN as an empty field."""
    missing = any(fields[place] == "" and how[place][1] is None for place in shown)
    return reference.DAMAGED if missing else tuple([field(fields[place], *how[place]) for place in shown])


def field(text: str, dtype: Any, default: Any) -> Any:
    """Return the value of a field: what Python makes of it, in its dtype."""
    if dtype.kind == "O":
        return (text or default).encode()
    if text == "":
        return dtype.type(default)
    with np.errstate(over="ignore"):
        return dtype.type(float(text) if dtype.kind == "f" else int(text))


def write_frame(writer: str, columns: dict[str, Any], path: Path, comma: str, header: bool, names: list[str]) -> None:
    if not columns:
        path.write_text(comma.join(names) + "\n" if header else "")
    elif writer == "pandas":
        import pandas as pd

        frame = pd.DataFrame({name: pd.Series(column, dtype=object) for name, column in columns.items()})
        frame.to_csv(path, sep=comma, header=header, index=False)
    else:
        import polars as pl

        frame = pl.DataFrame({name: pl.Series(name, column, strict=False) for name, column in columns.items()})
        if writer == "polars":
            frame.write_csv(path, separator=comma, include_header=header)
            return
        import duckdb

        with duckdb.connect() as database:
            database.register("frame", frame.to_arrow())
            told = "true" if header else "false"
            database.sql(f"COPY (SELECT * FROM frame) TO '{path}' (FORMAT csv, HEADER {told}, DELIMITER '{comma}')")


FORMATS = [json_lines, text_lines, records_of_one_length, tf_records, arrays, samples, comma_separated]
if importlib.util.find_spec("array_record"):
    FORMATS.append(array_records)


def compress(path: Path, how: str) -> None:
    import bz2
    import gzip

    pack = {"gzip": gzip.compress, "bzip2": bz2.compress, "zstd": zstd_module().compress}[how]
    path.write_bytes(pack(path.read_bytes()))


def files(draw: st.DrawFn) -> Pipeline:
    """Some files of a format, read in one of its ways."""
    form = draw(st.sampled_from(FORMATS))
    kind = form(draw)
    seed, counts = (
        draw(st.integers(0, 10**6)),
        draw(st.lists(st.sampled_from([7, 12, 5, 1, 0]), min_size=1, max_size=3)),
    )
    way = draw(st.sampled_from(["in turn", "at once", "interleave", "index"]))
    how: dict[str, Any] = {}
    packed = draw(st.sampled_from([None, None, "gzip", "bzip2", "zstd"])) if "compressed" in kind.how else None
    if way == "index" and "index" in kind.how:
        how["index"], packed = True, None
    if "buffer_size" in kind.how and draw(st.booleans()):
        how["buffer_size"] = draw(st.sampled_from([1, 37]))
    cycle, block = draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([1, 2, 4]))
    paths: list[str] = []
    found: list[list[Any]] = []
    for place, count in enumerate(counts):
        text = f"{form.__name__}{counts}{seed}{place}{packed}"
        path = scratch() / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.{form.__name__}"
        kind.write(random.Random(seed + place), count, path)
        found.append(kind.elements(path))
        if packed:
            compress(path, packed)
        paths.append(str(path))
    interleaved = (cycle, block) if way == "interleave" and form is not array_records else None
    elements = [one for some in found for one in some]
    if way == "at once" and "num_parallel_reads" in kind.how:
        how["num_parallel_reads"] = cycle
        if form is not array_records:  # which are read by number, in order
            elements = [*reference.interleave(range(len(found)), found.__getitem__, cycle)]
    elif interleaved:
        elements = [*reference.interleave(range(len(found)), found.__getitem__, cycle, block)]
    return FilePipeline(
        f"{form.__name__}({counts}, {seed}, {packed}, {how}, {interleaved})",
        partial(dataset_of, partial(kind.read, **how), paths, interleaved),
        lambda epoch: elements,
    )


# ---------------------------------------------------------------------------------------------------------------------
# What is no list of files

COLUMNS: dict[str, tuple[str, Any, Callable[[random.Random], Any]]] = {
    "int64": ("INTEGER", np.int64, VALUES["int"]),
    "int8": ("INTEGER", np.int8, lambda rng: rng.choice([-128, 0, 127])),
    "float64": ("REAL", np.float64, VALUES["float"]),
    "float32": ("REAL", np.float32, lambda rng: rng.choice([0.5, -0.0, 1e30])),
    "bool": ("INTEGER", bool, lambda rng: rng.randrange(2)),
    "text": ("TEXT", str, word),
}


def query(draw: st.DrawFn) -> Pipeline:
    """Rows of SQLite, and what Python's own driver gives; NULL is 0, False or empty."""
    chosen = draw(st.lists(st.sampled_from([*COLUMNS]), min_size=1, max_size=3))
    seed, count = draw(st.integers(0, 10**6)), draw(st.sampled_from([0, 1, 12, 20]))
    rng = random.Random(seed)
    path = scratch() / f"{hashlib.sha256(f'{chosen}{seed}{count}'.encode()).hexdigest()[:20]}.db"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database:
        names = ", ".join(f"c{place} {COLUMNS[name][0]}" for place, name in enumerate(chosen))
        database.execute(f"CREATE TABLE t (id INTEGER, {names})")
        made = [
            [id_, *[None if rng.randrange(5) == 0 else COLUMNS[name][2](rng) for name in chosen]]
            for id_ in range(count)
        ]
        database.executemany(f"INSERT INTO t VALUES (?{', ?' * len(chosen)})", made)
        database.commit()
        found = database.execute(text := "SELECT * FROM t ORDER BY id DESC").fetchall()
    types = [np.int64, *[COLUMNS[name][1] for name in chosen]]
    elements = [tuple([of_column(value, kind) for value, kind in zip(row, types, strict=True)]) for row in found]
    read = partial(ad.experimental.SqlDataset, "sqlite", str(path), text, types)
    return FilePipeline(f"SqlDataset({chosen}, {seed}, {count})", read, lambda epoch: elements)


def of_column(value: Any, kind: Any) -> Any:
    if kind is str:
        return (value or "").encode()
    return np.dtype(kind).type(value or 0)


def of_hugging_face(draw: st.DrawFn) -> Pipeline:
    """Rows of a dataset of the package datasets by number, or of its streams."""
    import datasets

    make = rows(draw, ["int", "float", "bool", "text", "pair", "list", "texts", "dict"])
    seed, count, shards = (
        draw(st.integers(0, 10**6)),
        draw(st.sampled_from([1, 7, 20])),
        draw(st.sampled_from([None, None, 1, 3])),
    )
    whole = datasets.Dataset.from_list(make(random.Random(seed), count))
    if draw(st.booleans()):
        whole = whole.shuffle(seed=seed)
    text = f"datasets({whole.features}, {seed}, {count}, {shards})"
    if shards is None:
        elements = [whole[place] for place in range(len(whole))]
        calls = draw(st.sampled_from([None, 2]))
        return FilePipeline(
            text, lambda: ad.Dataset.from_source(whole, num_parallel_calls=calls), lambda epoch: elements
        )
    shards = min(shards, count)
    elements = [*whole.to_iterable_dataset(num_shards=shards)]
    return FilePipeline(
        text, lambda: ad.Dataset.from_iterable(whole.to_iterable_dataset(num_shards=shards)), lambda epoch: elements
    )


@st.composite
def format_sources(draw: st.DrawFn) -> Pipeline:
    return draw(st.sampled_from([*[files] * 7, query, of_hugging_face]))(draw)


pipes = readings(format_sources())


@given(pipe=pipes, way=st.sampled_from(WAYS))
def test_elements_are_what_the_library_of_the_format_reads(pipe: Pipeline, way: Callable[..., list[Any]]) -> None:
    assert pipe.comparable(way(pipe.build())) == pipe.elements()


@given(pipe=pipes)
def test_the_optimizer_changes_nothing(pipe: Pipeline) -> None:
    assert pipe.comparable(read_plain(pipe.build().with_options(ad.Options(optimize=False)))) == pipe.elements()


@given(pipe=pipes, legs=legs)
def test_going_on_is_as_if_nothing_had_happened(pipe: Pipeline, legs: list[Leg]) -> None:
    assert pipe.comparable(read_in_legs(pipe, legs)) == pipe.elements()


@FEW
@given(pipe=pipes)
def test_a_process_of_its_own_changes_nothing(pipe: Pipeline) -> None:
    assert pipe.comparable(read_plain(pipe.build().with_options(BESIDE))) == pipe.elements()


@FEW
@given(pipe=pipes, legs=LEGS)
def test_going_on_in_other_processes_is_as_if_nothing_had_happened(pipe: Pipeline, legs: list[Any]) -> None:
    assert pipe.comparable(read_in_legs(pipe, legs)) == pipe.elements()
