"""The cases of sources, readers of files and what is kept in files."""

from __future__ import annotations

import gzip
import sqlite3
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from harness import tensorflow
from sides import Case, consume, filled, made, swallow, unseen

import asyncdata as ad

try:
    import apsw
except ImportError:
    apsw = None

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from harness import Prepare
    from sides import Api

__all__ = ("kept", "listed", "readers", "sources")

ONE = np.zeros(4, np.float32)
QUERY = "SELECT id, share, name FROM rows ORDER BY id"


def sources(count: int) -> Iterator[Case]:
    """Elements that are in memory or made."""
    few = count // 20
    table = {"x": np.zeros((count, 4), np.float32), "y": np.arange(count)}
    numbers = list(range(few))
    cheap = {
        "range": lambda api: api.Dataset.range(count),
        "random, take": lambda api: api.Dataset.random(seed=1).take(count),
        "from_tensors, repeat": lambda api: api.Dataset.from_tensors(ONE).repeat(count),
        "from_tensor_slices, numbers": lambda api: api.Dataset.from_tensor_slices(table["y"]),
        "from_tensor_slices, a dict of two": lambda api: api.Dataset.from_tensor_slices(table),
    }
    others = {
        "counter, take": lambda api: api.Dataset.counter().take(few),
        "from_list": lambda api: from_list(api)(numbers),
        "from_generator": lambda api: generated(api, few),
    }
    own = {
        "from_iterable, a list": lambda api: api.Dataset.from_iterable(numbers),
        "from_iterable, an iterator": lambda api: api.Dataset.from_iterable(Numbers(few)),
        "from_source": lambda api: api.Dataset.from_source(numbers),
        "from_async_iterable": lambda api: api.Dataset.from_async_iterable(Numbers(few)),
    }
    yield from swallow(count, cheap)
    yield from swallow(few, others)
    yield from swallow(few, own, is_shared=False)


def from_list(api: Any) -> Callable[[list[Any]], Any]:
    return api.Dataset.from_list if api is ad else api.experimental.from_list


def generated(api: Any, count: int) -> Any:
    """Return the numbers that a generator gives, of a declared type."""
    spec = (ad if api is ad else tensorflow()).TensorSpec((), "int64")
    return api.Dataset.from_generator(lambda: iter(range(count)), output_signature=spec)


class Numbers:
    """Numbers that a plain loop takes, or an asynchronous one."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))

    async def __aiter__(self) -> AsyncIterator[int]:
        for number in range(self.count):
            yield number


class Files:
    """Files of each kind, in a folder of their own."""

    def __init__(self, count: int) -> None:
        self.owner = tempfile.TemporaryDirectory()
        self.folder = Path(self.owner.name)
        self.count = count
        lines = b"".join(b"%d,%d,%g,number %d\n" % (i, i % 1000, i / 7, i) for i in range(count))
        self.text = self.write("text.csv", lines)
        self.named = self.write("named.csv", b"id,square,share,name\n" + lines)
        self.zipped = self.write("text.gz", gzip.compress(lines, 6))
        self.fixed = self.write("fixed", bytes(32 * count))
        self.records = self.records_of("records", None)
        self.zipped_records = self.records_of("records.gz", "GZIP")
        self.database = str(self.folder / "rows.db")
        with closing(sqlite3.connect(self.database)) as db:
            db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, share REAL, name TEXT)")
            db.executemany("INSERT INTO rows VALUES (?, ?, ?)", ((i, i / 7, f"number {i}") for i in range(count)))
            db.commit()

    def write(self, name: str, data: bytes) -> str:
        path = self.folder / name
        path.write_bytes(data)
        return str(path)

    def read_rows(self) -> None:
        """Read the rows of the database in this thread, and put their columns into arrays."""
        with closing(sqlite3.connect(self.database)) as database:
            database.text_factory = bytes
            cursor = database.execute(QUERY)
            while rows := cursor.fetchmany(1000):
                for column, dtype in zip(zip(*rows, strict=True), (np.int64, np.float64, object), strict=True):
                    np.array(column, dtype)

    def records_of(self, name: str, compression: str | None) -> str:
        path = str(self.folder / name)
        with ad.TFRecordWriter(path, compression) as writer:
            for _ in range(self.count):
                writer.write(bytes(32))
        return path


def readers(files: Files) -> Iterator[Case]:
    """Lines, records and rows of files."""
    yield from swallow(
        files.count,
        {
            "TextLineDataset": lambda api: api.TextLineDataset(files.text),
            "TextLineDataset, GZIP": lambda api: api.TextLineDataset(files.zipped, "GZIP"),
            "FixedLengthRecordDataset, 32 bytes": lambda api: api.FixedLengthRecordDataset(files.fixed, 32),
            "TFRecordDataset, 32 bytes, batch(256)": lambda api: records(api, files.records).batch(256),
            "TFRecordDataset, GZIP, batch(256)": lambda api: records(api, files.zipped_records, "GZIP").batch(256),
            "CsvDataset": lambda api: csv(api, files.text),
            "CsvDataset, batch(256)": lambda api: csv(api, files.text).batch(256),
            "make_csv_dataset, batches of 256": lambda api: named_csv(api, files.named),
            "SqlDataset": lambda api: queried(api, files.database, "sqlite"),
            **({} if apsw is None else {"SqlDataset, by APSW here": lambda api: queried(api, files.database, quick)}),
        },
    )
    yield Case("SqlDataset, a loop over batch(256)", files.count, partial(looped, files))


def looped(files: Files, api: Api) -> Prepare:
    """Give rows to a plain loop, as they are used: a thread that reads, the engine and the loop wake each other."""
    batches = queried(api, files.database, "sqlite").batch(256)
    return lambda: lambda: consume(batches)


def records(api: Any, path: str, compression: str | None = None) -> Any:
    return api.TFRecordDataset(path, compression)


def csv(api: Any, path: str) -> Any:
    """Return records of two integers, a fraction and a string."""
    kinds = [np.int64(0), np.int64(0), np.float32(0), ""] if api is ad else types("int64", "int64", "float32", "string")
    return api.experimental.CsvDataset(path, kinds)


def types(*names: str) -> list[Any]:
    return [tensorflow().as_dtype(name) for name in names]


def named_csv(api: Any, path: str) -> Any:
    return api.experimental.make_csv_dataset(path, 256, num_epochs=1, shuffle=False)


def queried(api: Any, path: str, driver: Any) -> Any:
    """Return rows of a database, read here by that driver."""
    if api is ad:
        return api.experimental.SqlDataset(driver, path, QUERY, (np.int64, np.float64, str))
    return api.experimental.SqlDataset("sqlite", path, QUERY, tuple(types("int64", "float64", "string")))


def quick(path: str) -> Any:
    """Connect by a driver that is quicker than Python's own."""
    return apsw.Connection(path, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOMUTEX)


def listed(files: int) -> Case:
    """Many empty files, listed and given."""
    owner = tempfile.TemporaryDirectory()
    for number in range(files):
        Path(owner.name, f"{number:05}.png").touch()
    return Case(
        "list_files, from the listing on",
        files,
        lambda api: lambda: lambda: consume(unseen(api, api.Dataset.list_files(f"{owner.name}/*.png", shuffle=False))),
    )


def kept(count: int) -> Iterator[Case]:
    """Elements that are written to files, and read from them: numbers, dicts of an array and a number, and arrays."""
    few = count // 10
    table = {"x": np.zeros((count, 16), np.float32), "y": np.arange(count)}
    rows = np.zeros((few, 1024), np.float32)
    yield from kept_in_files("numbers", lambda api: api.Dataset.range(count), count)
    yield from kept_in_files("a dict of two", lambda api: api.Dataset.from_tensor_slices(table), count)
    yield from kept_in_files("4 KB", lambda api: api.Dataset.from_tensor_slices(rows), few)


def kept_in_files(what: str, build: Callable[[Any], Any], count: int) -> Iterator[Case]:
    """Yield a case for each way to keep these elements."""

    def saved(api: Any, path: str) -> Callable[[], Any]:
        dataset = build(api)
        return lambda: dataset.save(path)

    def loaded(api: Any, path: str) -> Callable[[], Any]:
        if not Path(path).exists():
            build(api).save(path)
        dataset = unseen(api, api.Dataset.load(path))
        return lambda: consume(dataset)

    def cached(api: Any, path: str) -> Callable[[], Any]:
        dataset = unseen(api, build(api).cache(path))
        return lambda: consume(dataset)

    def snapped(api: Any, path: str) -> Callable[[], Any]:
        dataset = unseen(api, build(api).snapshot(path))
        return lambda: consume(dataset)

    yield Case(f"save, {what}", count, made(saved))
    yield Case(f"load, {what}", count, filled(loaded))
    for name, run in (("cache(filename)", cached), ("snapshot", snapped)):
        yield Case(f"{name}, {what}, written", count, made(run))
        yield Case(f"{name}, {what}, read", count, filled(run))
