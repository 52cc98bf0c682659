"""What tells a pipeline from others: each field of each node, for kept elements, fingerprints and states."""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import os
import pkgutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.devices.simulated import Accelerator
from asyncdata.executors.function_call import Call
from asyncdata.formats.fixed_length import FixedLayout
from asyncdata.formats.litdata import LitFormat
from asyncdata.graph.node import Node, nodes_of
from asyncdata.identity.content_hash import contents
from asyncdata.sources.arrow import ArrowFile
from asyncdata.sources.energon import EnergonFile
from asyncdata.sources.fixed_length import FixedFiles
from asyncdata.sources.lance import LanceMatches, LanceRows
from asyncdata.sources.lance_table import LanceTable
from asyncdata.sources.listing import Listing
from asyncdata.sources.parquet import ParquetFile
from asyncdata.sources.shards import LitFile, LitFiles
from asyncdata.sources.table_rows import TableRows
from asyncdata.states import fingerprint, plan_labels
from asyncdata.transforms.flat_map import FlatMap
from asyncdata.transforms.group_by_reducer import Calls
from asyncdata.transforms.padded_batch import Padding
from asyncdata.transforms.sample_from_datasets import Removed
from asyncdata.web.keeping import keeping
from tests.states import edited

for module in pkgutil.walk_packages(ad.__path__, "asyncdata."):
    if not module.name.endswith("__main__") and not module.name.startswith("asyncdata.torch"):
        importlib.import_module(module.name)


def kinds(base: type[Any] = Node) -> Iterator[type[Node]]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


NODES = sorted({kind for kind in kinds() if kind.__module__.startswith("asyncdata.")}, key=lambda kind: kind.__name__)
ABSTRACT = {
    "Called",
    "Counted",
    "Groups",
    "NumberedFile",
    "OneForOne",
    "ParsedFile",
    "ShardFile",
    "IndexedSource",
    "IteratorSource",
    "InMemorySource",
    "StateFree",
    "Transparent",
    "Unary",
}
"""Classes of which no pipeline has a node; `Counted` is put into one to check it."""

PLANNED = {"Chosen", "DropEmpty", "MapAndBatch", "Members", "ShuffleRepeat", "RemotePlan"}
"""Nodes that are made while a pipeline runs, after its words were said."""


def number(x: Any) -> Any:
    return x


def other(x: Any) -> Any:
    return x + 1


def pair(state: Any, x: Any) -> Any:
    return state, x


def lance_table() -> LanceTable:
    """A table without the package that reads it."""
    table = object.__new__(LanceTable)
    table.count, table.digest = 9, "ab"
    return table


RANGE = ad.Dataset.range(9)
LISTS = ad.Dataset.from_iterable([[1], [1, 2]])


class Endless:
    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> int:
        return 1


def examples(folder: Path) -> dict[str, ad.Dataset[Any]]:
    """A pipeline for each class of nodes, which has one node of it."""
    path, database, saved = str(folder / "a"), folder / "rows.db", str(folder / "saved")
    Path(path).write_bytes(b"abcd")
    sqlite3.connect(database).close()
    RANGE.save(saved)
    load = next(node for node in nodes_of(ad.Dataset.load(saved).plan) if type(node).__name__ == "SavedFiles")
    assert isinstance(load, FlatMap)
    ragged: Any = LISTS
    return {
        "AssertCardinality": RANGE.apply(ad.experimental.assert_cardinality(9)),
        "AsyncIterated": ad.Dataset.from_async_iterable(Endless()),
        "Balance": RANGE.balance(number, 2, 2, 0),
        "Batch": RANGE.batch(2),
        "ArrowFile": ad.Dataset(ArrowFile(path)),
        "BatchWithin": RANGE.batch(2, within=1),
        "BucketByTokenCount": ragged.bucket_by_token_count(8, number),
        "Buckets": ragged.bucket_by_sequence_length(len, [2], [2, 2]),
        "Cache": RANGE.cache(),
        "Choose": ad.Dataset.choose_from_datasets([RANGE, RANGE], ad.Dataset.range(2)),
        "Concatenate": RANGE.concatenate(RANGE),
        "Counter": ad.Dataset.counter(),
        "CsvFile": ad.experimental.CsvDataset(path, [np.int32]),
        "Distinct": RANGE.distinct(number),
        "ElementFile": ad.Dataset(load.function.fn(next(iter(load.inputs[0].items)))),  # type: ignore[attr-defined]
        "Elements": ad.Dataset.from_list([1, 2]),
        "Exclude": RANGE.exclude([{"source": "range(9)", "index": 1}]),
        "EnergonFile": ad.Dataset(EnergonFile(path)),
        "Enumerate": RANGE.enumerate(),
        "FileCache": RANGE.cache(folder / "kept"),
        "Filter": RANGE.filter(number),
        "FixedFile": ad.FixedLengthRecordDataset(path, 2),
        "FlatMap": RANGE.flat_map(number),
        "Generated": ad.Dataset.from_generator(range, args=(3,)),
        "GroupByReducer": RANGE.group_by_reducer(number, ad.Reducer(number, pair, number)),
        "HttpStreamed": ad.Dataset.from_http_stream("http://localhost"),
        "WebSocketStreamed": ad.Dataset.from_websocket("ws://localhost"),
        "IgnoreErrors": RANGE.ignore_errors(),
        "Interleave": RANGE.interleave(number, cycle_length=2),
        "FileNames": ad.Dataset.list_files(path, shuffle=False),
        "Items": ad.Dataset.from_iterable(["a", "b"]),
        "Iterated": ad.Dataset.from_iterable({1, 2}),
        "Join": RANGE.join(RANGE, number),
        "JsonLinesFile": ad.JsonLinesDataset(path),
        "KeyWindows": RANGE.group_by_window(number, pair, window_size=2),
        "LanceMatches": ad.Dataset(LanceMatches("a.lance", lance_table(), filters="x > 3")),
        "LanceRows": ad.Dataset(LanceRows("a.lance", lance_table())),
        "LineFile": ad.TextLineDataset(path),
        "Listing": ad.Dataset(Listing("s3://bucket/*.jpg")),
        "Map": RANGE.map(number),
        "MapBatches": RANGE.map(number, batch=2),
        "PackSequences": ragged.pack_sequences(8),
        "MdsFile": ad.MdsDataset(f"{path}.mds"),
        "LitFile": ad.Dataset(LitFile(path, form=LitFormat(), known=LitFiles(LitFormat()))),
        "NpyFile": ad.NpyDataset(path),
        "SafetensorsFile": ad.SafetensorsDataset(path, ["x"]),
        "TokenFile": ad.TokenDataset(path, 4, dtype="uint8"),
        "ParquetFile": ad.Dataset(ParquetFile(path)),
        "PadToCardinality": RANGE.apply(ad.experimental.pad_to_cardinality(10)),
        "PaddedBatch": ragged.padded_batch(2),
        "Permute": RANGE.shuffle(seed=1),
        "Prefetch": RANGE.prefetch(2),
        "PrefetchToDevice": RANGE.prefetch_to_device(Accelerator()),
        "KafkaTopic": ad.Dataset.from_kafka("localhost:9092", "samples"),
        "Kept": ad.Dataset(keeping(ad.Dataset.from_kafka("localhost:9092", "samples").plan)),
        "Queued": ad.Dataset.from_redis_stream("redis://localhost", "samples"),
        "QueryRows": ad.experimental.SqlDataset("sqlite", database, "SELECT 1", (np.int32,)),
        "ListBatch": RANGE.list_batch(2),
        "RaggedBatch": ragged.ragged_batch(2),
        "Random": ad.Dataset.random(seed=1),
        "Range": RANGE,
        "RateLimit": RANGE.rate_limit(10),
        "Rebatch": RANGE.batch(2).rebatch([2, 3]),
        "RecordFile": ad.TFRecordDataset(path),
        "Reduced": RANGE.group_by_window(number, pair, 2),
        "Received": ad.Dataset.from_channel(ad.Channel()),
        "Repeat": RANGE.repeat(2),
        "Removed": ad.Dataset(Removed("web", ("range(9)",))),
        "ReplayBuffer": ad.Dataset.from_channel(ad.Channel(), sample="priority", window=2, priority=number),
        "Resample": RANGE.rejection_resample(number, [0.5, 0.5], seed=1),
        "Sample": ad.Dataset.sample_from_datasets([RANGE, RANGE], [0.5, 0.5], seed=1, cost=number),
        "SampleFile": ad.WebDataset(path),
        "SavedFiles": ad.Dataset(load),
        "Scan": RANGE.scan(0, pair),
        "Shard": RANGE.shard(2, 0),
        "Shuffle": RANGE.shuffle(2, seed=1),
        "Skip": RANGE.skip(2),
        "Slices": ad.Dataset.from_tensor_slices([1, 2]),
        "Take": RANGE.take(2),
        "Stored": ad.Dataset.from_channel(str(folder / "channel")),
        "TableRows": ad.Dataset(TableRows("a.zarr", lance_table())),
        "TakeWhile": RANGE.take_while(number),
        "Tensors": ad.Dataset.from_tensors([1, 2]),
        "Unbatch": RANGE.batch(2).unbatch(),
        "Unique": RANGE.unique(),
        "Window": RANGE.window(2),
        "Zip": ad.Dataset.zip((RANGE, RANGE)),
    }


def zipped(datasets: Any) -> Any:
    node = ad.Dataset.zip(datasets).plan
    return node.rebuild  # type: ignore[attr-defined]


SPECIAL: dict[tuple[str, str], Callable[[], Any]] = {
    ("FileNames", "items"): lambda: ["/another"],
    ("FixedFile", "files"): lambda: FixedFiles(FixedLayout(3, 0, 0)),
    ("LanceMatches", "table"): lance_table,  # of the same rows
    ("LanceRows", "table"): lance_table,
    ("TableRows", "table"): lance_table,
    ("Zip", "rebuild"): lambda: zipped({"a": RANGE, "b": RANGE}),
    ("GroupByReducer", "calls"): lambda: Calls.of(ad.Reducer(other, pair, number)),
    ("Buckets", "paddings"): lambda: [Padding(values=1)],
    ("Counter", "dtype"): lambda: np.dtype("int8"),
    ("Range", "dtype"): lambda: np.dtype("int8"),
    ("KeyWindows", "size_func"): lambda: Call("window_size_func", other),
    ("QueryRows", "connect"): lambda: functools.partial(other, "b"),
}


CHANGES: list[tuple[Any, Callable[[Any], Any]]] = [
    (bool, lambda value: not value),
    ((int, float), lambda value: value + 1),
    (str, lambda value: f"{value}x"),
    (range, lambda value: range(value.stop + 1)),
    (Call, lambda value: called(value)),
    (tuple, lambda value: tuple(map(called, value)) if value and isinstance(value[0], Call) else (*value, 1)),
    (list, lambda value: [*value, 1]),
    (np.ndarray, lambda value: value + 1),
    (np.dtype, lambda _: np.dtype("int8")),
    (type(None), lambda _: 7),
]
"""What to make of a value to have another one of its type."""


def called(call: Call) -> Call:
    """Return another function with the same name."""
    found = copy.copy(call)
    found.fn = other
    return found


def changed(kind: str, name: str, value: Any) -> Any:
    """Return another value for a field."""
    if (kind, name) in SPECIAL:
        return SPECIAL[kind, name]()
    for types, change in CHANGES:
        if isinstance(value, types):
            return change(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        first = dataclasses.fields(value)[0].name
        return dataclasses.replace(value, **{first: changed(kind, first, getattr(value, first))})
    return other


DERIVED = {("Rebatch", "size"), ("BatchWithin", "drop_remainder")}
"""Fields that follow from others, or are always the same."""


def with_changed(node: Node, name: str) -> Node:
    found = copy.copy(node)
    object.__setattr__(found, name, changed(type(node).__name__, name, getattr(node, name)))
    return found


def test_every_class_of_nodes_has_an_example(tmp_path: Path) -> None:
    assert {kind.__name__ for kind in NODES} - ABSTRACT - PLANNED == examples(tmp_path).keys()


@pytest.mark.parametrize("kind", sorted({kind.__name__ for kind in NODES} - ABSTRACT - PLANNED))
def test_every_field_counts_unless_it_says_that_it_does_not(kind: str, tmp_path: Path) -> None:
    node = next(node for node in nodes_of(examples(tmp_path)[kind].plan) if type(node).__name__ == kind)
    for field in dataclasses.fields(node):
        if not node.is_input(field.name) and (kind, field.name) not in DERIVED:
            now, counts = with_changed(node, field.name), field.metadata.get("counts")
            if counts != "elsewhere":
                assert (contents(now) != contents(node)) == (counts != "never"), field.name
                assert (fingerprint(now) != fingerprint(node)) == (counts != "never"), field.name
            if counts is None:
                assert plan_labels(now) != plan_labels(node), field.name
            elif counts == "stored" and isinstance(getattr(node, field.name), Call):
                assert plan_labels(now) == plan_labels(node), field.name


@pytest.mark.parametrize("kind", ["Permute", "Shuffle", "Random", "Sample", "Resample"])
def test_seeds_count_where_somebody_chose_them(kind: str, tmp_path: Path) -> None:
    node = next(node for node in nodes_of(examples(tmp_path)[kind].plan) if type(node).__name__ == kind)
    assert fingerprint(with_changed(node, "seed")) != fingerprint(node)


def paths(folder: Path) -> list[str]:
    found = [folder / part / "x.txt" for part in ("train", "val")]
    for path in found:
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            path.write_text(f"{path.parent.name[0]}1,2\n" * 8)
            path.with_name("number.csv").write_text('"1",2\n,4\n' * 4)
    return [*map(str, found)]


def csv(folder: Path, **options: Any) -> Any:
    paths(folder)
    given = {"record_defaults": [7, 7], **options}
    return ad.experimental.CsvDataset(folder / "train" / "number.csv", **given)


def made_csv(folder: Path, **options: Any) -> Any:
    paths(folder)
    given = {"column_names": ["a", "b"], "header": False, "shuffle": False, "num_epochs": 1, **options}
    return ad.experimental.make_csv_dataset(str(folder / "train" / "number.csv"), 2, column_defaults=[7, 7], **given)


def rows(folder: Path, dtype: Any) -> Any:
    with closing(sqlite3.connect(folder / "rows.db")) as database:
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute("CREATE TABLE IF NOT EXISTS numbers AS SELECT 1 AS x UNION SELECT 2 UNION SELECT 3")
        database.commit()
    query = "SELECT x FROM numbers ORDER BY x"
    return ad.experimental.SqlDataset("sqlite", folder / "rows.db", query, (dtype,))


def fixed(folder: Path, size: int, header: int = 0) -> Any:
    return ad.FixedLengthRecordDataset(paths(folder)[:1], size, header)


BOTH: dict[str, Callable[[Path], tuple[ad.Dataset[Any], ad.Dataset[Any]]]] = {
    "padded_batch": lambda _: tuple(LISTS.padded_batch(2, padding_values=one) for one in (-1, -2)),
    "bucket_by_token_count": lambda _: tuple(
        LISTS.map(np.array).bucket_by_token_count(4, padding_values=one) for one in (-1, -2)
    ),
    "bucket_by_sequence_length": lambda _: tuple(
        LISTS.bucket_by_sequence_length(len, [5], [2, 2], padding_values=one) for one in (-1, -2)
    ),
    "bucket_boundaries": lambda _: tuple(LISTS.bucket_by_sequence_length(len, [one], [2, 1]) for one in (2, 5)),
    "pack_sequences": lambda _: tuple(LISTS.map(np.array).pack_sequences(4, padding_values=one) for one in (-1, -2)),
    "scan": lambda _: tuple(RANGE.scan(one, lambda s, x: (s + x, s)) for one in (0, 5)),
    "output_signature": lambda _: tuple(
        ad.Dataset.from_generator(range, output_signature=ad.TensorSpec((), one), args=(3,))
        for one in (np.int32, np.float32)
    ),
    "generator arguments": lambda _: tuple(ad.Dataset.from_generator(range, args=(one, 9)) for one in (3, 5)),
    "ragged_batch": lambda _: tuple(LISTS.ragged_batch(2, row_splits_dtype=one) for one in ("int32", "int64")),
    "target_dist": lambda _: tuple(
        RANGE.rejection_resample(lambda x: x % 2, one, [0.5, 0.5], seed=1) for one in ([0.9, 0.1], [0.1, 0.9])
    ),
    "choose stop": lambda _: tuple(
        ad.Dataset.choose_from_datasets([RANGE, RANGE.take(1)], ad.Dataset.range(2).repeat(5), one)
        for one in (True, False)
    ),
    "sample stop": lambda _: tuple(
        ad.Dataset.sample_from_datasets([RANGE, RANGE.take(1)], [0.5, 0.5], seed=3, stop_on_empty_dataset=one)
        for one in (True, False)
    ),
    "zip": lambda _: (ad.Dataset.zip({"a": RANGE, "b": RANGE}), ad.Dataset.zip({"a": RANGE, "c": RANGE})),
    "record_bytes": lambda folder: (fixed(folder, 2), fixed(folder, 4)),
    "header_bytes": lambda folder: (fixed(folder, 2), fixed(folder, 2, 2)),
    "compression": lambda folder: tuple(ad.TextLineDataset(paths(folder)[:1], one) for one in (None, "GZIP")),
    "csv default": lambda folder: (csv(folder), csv(folder, record_defaults=[8, 7])),
    "csv dtype": lambda folder: (csv(folder), csv(folder, record_defaults=[7.0, 7])),
    "csv header": lambda folder: (csv(folder), csv(folder, header=True)),
    "csv na_value": lambda folder: (csv(folder), csv(folder, na_value="4")),
    "csv select_cols": lambda folder: (
        csv(folder, record_defaults=[7], select_cols=[0]),
        csv(folder, record_defaults=[7], select_cols=[1]),
    ),
    "csv exclude_cols": lambda folder: (
        csv(folder, record_defaults=[7], exclude_cols=[0]),
        csv(folder, record_defaults=[7], exclude_cols=[1]),
    ),
    "csv use_quote_delim": lambda folder: (csv(folder), csv(folder, use_quote_delim=False)),
    "make_csv label": lambda folder: (made_csv(folder), made_csv(folder, label_name="a")),
    "make_csv names": lambda folder: (made_csv(folder), made_csv(folder, column_names=["a", "c"])),
    "make_csv na_value": lambda folder: (made_csv(folder), made_csv(folder, na_value="4")),
    "sql": lambda folder: (rows(folder, np.int32), rows(folder, np.float64)),
}  # type: ignore[assignment]


def shown(dataset: Any) -> list[str]:
    found: list[str] = []
    with dataset.iterate() as elements:
        while True:
            try:
                found.append(repr(next(elements)))
            except StopIteration:
                return found
            except OSError as error:
                found.append(type(error).__name__)
            except ad.DataLossError as error:
                found.append(type(error).__name__)


@pytest.mark.parametrize("both", BOTH.values(), ids=BOTH.keys())
def test_other_arguments_make_another_pipeline(both: Any, tmp_path: Path) -> None:
    was, now = both(tmp_path)
    assert was.fingerprint() != now.fingerprint()
    assert was.fingerprint() == both(tmp_path)[0].fingerprint()
    right, others = map(shown, both(tmp_path))
    assert right != others or "Ragged" in right[0]  # which does not show what has changed
    assert shown(was.snapshot(tmp_path / "kept")) == right
    assert shown(now.snapshot(tmp_path / "kept")) == others
    assert shown(was.cache(tmp_path / "one")) == right
    with pytest.raises(ad.ResumeError, match="has the elements of another pipeline"):
        list(now.cache(tmp_path / "one"))
    with was.iterate() as elements:
        next(elements)
        state = elements.state_dict()
    assert state["plan"] == plan_labels(both(tmp_path)[0].plan)
    with pytest.raises(ad.ResumeError, match="the state is of another pipeline"):
        now.iterate(state=state)
    earlier = edited(state, version=2, plan=[node.identity for node in nodes_of(was.plan) if node.identity])
    with now.iterate(state=earlier):  # as it could not be told apart then
        pass


def test_weights_count_for_what_is_kept_and_may_change_on_the_way(tmp_path: Path) -> None:
    was, now = [
        ad.Dataset.sample_from_datasets([RANGE, RANGE.map(other)], one, seed=3) for one in ([0.9, 0.1], [0.1, 0.9])
    ]
    assert list(was.snapshot(tmp_path)) != list(now.snapshot(tmp_path))
    assert list(now.snapshot(tmp_path)) == list(now)
    with was.iterate() as elements:
        next(elements)
        state = elements.state_dict()
    assert len(list(now.iterate(state=state))) == 17


READERS: dict[str, Callable[[Any], ad.Dataset[Any]]] = {
    "path": ad.TextLineDataset,
    "list": lambda path: ad.TextLineDataset([path]),
    "names": lambda path: ad.TextLineDataset(ad.Dataset.list_files(path)),
    "fixed": lambda path: ad.FixedLengthRecordDataset(path, 5),
}


def test_a_path_is_the_same_from_wherever_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, _ = paths(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert ad.TextLineDataset(train).fingerprint() == ad.TextLineDataset("train/x.txt").fingerprint()


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_files_of_another_folder_or_time_are_others(read: Any, tmp_path: Path) -> None:
    train, val = paths(tmp_path)
    Path(val).write_text(Path(train).read_text().replace("t", "v"))
    assert len({read(one).fingerprint() for one in (train, val)}) == 2
    for path in (train, val):
        assert list(read(path).snapshot(tmp_path / "kept")) == list(read(path))
    os.utime(train, ns=(1, 1))
    assert len([*(tmp_path / "kept").iterdir()]) == 2
    assert list(read(train).cache(tmp_path / "one")) == list(read(train))
    with read(train).iterate() as lines:
        next(lines)
        state = lines.state_dict()
    assert len(list(read(val).iterate(state=state))) == 7
    with open(train, "a") as file:
        file.write("t1,2\n")
    assert len(list(read(train).snapshot(tmp_path / "kept"))) == 9
    with pytest.raises(ad.ResumeError, match="has the elements of another pipeline"):
        list(read(train).cache(tmp_path / "one"))


class Scaled:
    def __init__(self, by: Any) -> None:
        self.by = by
        self.calls = 0

    def method(self, x: int) -> int:
        self.calls += 1
        return x * self.by

    def __call__(self, x: int) -> int:
        return self.method(x)


@dataclasses.dataclass
class Config:
    by: int

    def __call__(self, x: int) -> int:
        return x * self.by


class Slotted:
    __slots__ = ("by",)

    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, x: int) -> int:
        return x * self.by


class Numbers:
    def __init__(self, by: int) -> None:
        self.by = by

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.by))


def enclosed(dataset: ad.Dataset[Any]) -> Callable[[Any], Any]:
    return lambda x: dataset.take(x)


def keyed(x: int, block_bytes: int) -> int:
    return x * block_bytes


VALUES: dict[str, Callable[[int], ad.Dataset[Any]]] = {
    "method": lambda by: RANGE.map(Scaled(by).method),
    "partial of a method": lambda by: RANGE.map(functools.partial(Scaled(by).method)),
    "object": lambda by: RANGE.map(Scaled(by)),
    "dataclass": lambda by: RANGE.map(Config(by)),
    "keywords of a partial": lambda by: RANGE.map(functools.partial(keyed, block_bytes=by)),
    "slots": lambda by: RANGE.map(Slotted(by)),
    "method of a dataclass in an object": lambda by: RANGE.map(Scaled(Config(by)).method),
    "array": lambda by: RANGE.map(Scaled(np.full(2, by)).method),
    "iterable": lambda by: ad.Dataset.from_iterable(Numbers(by)),
    "generator": lambda by: ad.Dataset.from_generator(Numbers(by).__iter__),
    "dataset of a closure": lambda by: RANGE.flat_map(enclosed(ad.Dataset.range(by))),
}


@pytest.mark.parametrize("make", VALUES.values(), ids=VALUES.keys())
def test_the_value_whose_method_is_called_counts(make: Callable[[int], ad.Dataset[Any]]) -> None:
    assert make(2).fingerprint() == make(2).fingerprint() != make(3).fingerprint()
    assert plan_labels(make(2).plan) == plan_labels(make(3).plan)


def test_what_a_method_assigns_does_not_count(tmp_path: Path) -> None:
    scaled = Scaled(2)
    for _ in range(2):
        assert list(RANGE.map(scaled.method).cache(tmp_path / "kept")) == [*range(0, 18, 2)]
