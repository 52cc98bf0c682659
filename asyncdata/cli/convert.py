"""The command `asyncdata convert`: files of one format, read and written as shards of another."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

import numpy as np

from asyncdata.cli.arguments import add_storage_option, storage_options
from asyncdata.cli.recognised import RecognisedFiles, as_examples, named, recognise
from asyncdata.dataset import Dataset
from asyncdata.formats.tf_example import decode_example, make_example
from asyncdata.readers.make_csv_dataset import make_csv_dataset
from asyncdata.redaction import redacted
from asyncdata.storage import is_local

__all__ = ("DESCRIPTION", "EXAMPLE", "add_arguments", "run")

DESCRIPTION = """
Read files of any format that asyncdata inspect knows, and write them as shards of another format into a folder or a
bucket. Rows become columns of Parquet, lines of JSON, tf.Examples in TFRecord files, or samples of WebDataset. An
interrupted conversion continues when it is called again. A value that the format cannot hold, such as bytes in JSON, is
an error.
"""

PICTURES: Final = {b"\xff\xd8": "jpg", b"\x89PNG": "png", b"GIF8": "gif", b"BM": "bmp"}

EXAMPLE: Final = """
Example: asyncdata convert 'data/*.jsonl' shards --to parquet
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `convert`."""
    parser.add_argument(
        "source", metavar="SOURCE", help="a file, a folder, a pattern in quotes, or a URL; in a bucket also a prefix"
    )
    parser.add_argument("target", metavar="TARGET", help="a folder, or a URL of a bucket: s3://, gs://, az://")
    parser.add_argument("--to", choices=[*WRITERS], required=True, help="the format of the shards")
    parser.add_argument("--shards", type=int, metavar="N", help="the number of shards; without it a shard has 256 MiB")
    parser.add_argument("--compression", metavar="TYPE", help="GZIP, for Parquet also SNAPPY or ZSTD")
    add_storage_option(parser)


def run(arguments: Namespace) -> int:
    """Read, write, and print what was written."""
    storage = storage_options(arguments.storage)
    found = recognise(arguments.source, storage)
    rows = rows_of(found)
    if arguments.shards is not None and rows.cardinality() < 0:
        rows = rows.apply(counted(rows))
    method, shape = WRITERS[arguments.to]
    written = getattr(rows if shape is None else rows.map(shape), method)
    options = None if is_local(arguments.target) else storage
    names = written(arguments.target, arguments.shards, arguments.compression, storage_options=options, progress=report)
    print(f"{found.kind} to {arguments.to}: {redacted(written_as(names))}")
    return 0


def report(elements: int, shards: int) -> None:
    """Print the progress."""
    print(f"{elements:,} elements in {shards:,} shard{'s' * (shards != 1)}", file=sys.stderr)


def written_as(names: Sequence[str]) -> str:
    """Return which files were written, in words."""
    return f"1 file, {names[0]}" if len(names) == 1 else f"{len(names):,} files, {names[0]} to {names[-1]}"


def counted(rows: Dataset[Any]) -> Callable[[Dataset[Any]], Dataset[Any]]:
    """Count the elements, and return a transformation that gives a dataset their number."""
    count = rows.reduce(0, one_more)
    return lambda dataset: dataset.assert_cardinality(count)


def one_more(count: int, *_: Any) -> int:
    return count + 1


def rows_of(found: RecognisedFiles) -> Dataset[Any]:
    """Return the elements of files as dicts."""
    if found.kind == "TFRecord" and as_examples(next(iter(found.dataset.take(1)), b"")):
        return found.dataset.map(features)
    if found.kind == "CSV":
        return csv_rows(found.paths, len(found.dataset.element_spec), found.storage)
    return found.dataset.map(row)


def features(record: bytes) -> dict[str, Any]:
    """Return the features of a tf.Example: a value that is alone in its list without the list."""
    named: dict[str, Any] = dict(decode_example(record))
    return {name: values[0] if len(values) == 1 else values for name, values in named.items()}


def row(*element: Any) -> dict[str, Any]:
    if len(element) == 2:
        return {"image": element[0], "label": element[1]}
    (value,) = element
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    if isinstance(value, bytes):
        try:
            return {"text": value.decode()}
        except UnicodeDecodeError:
            return {"data": value}
    return {"values": value}


def record(values: dict[str, Any]) -> bytes:
    """Return a row as a record of a TFRecord file."""
    if list(values) == ["data"]:
        return values["data"]
    return make_example({name: value for name, value in values.items() if value is not None})


def sample(values: dict[str, Any]) -> dict[str, Any]:
    """Return a row as a sample: bytes and arrays as members of their own, and all other values as one of JSON."""
    if "__key__" in values:
        return values
    found: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, bytes):
            kind = next((kind for begin, kind in PICTURES.items() if value.startswith(begin)), "bin")
            found[kind if name in ("data", "image") else f"{name.lower()}.{kind}"] = value
        elif isinstance(value, np.ndarray):
            found["npy" if name == "values" else f"{name.lower()}.npy"] = value
        elif name == "label" and isinstance(value, (int, np.integer)):
            found["cls"] = value
        else:
            rest[name] = value
    return found | ({"json": rest} if rest else {})


WRITERS: Final[dict[str, tuple[str, Callable[..., Any] | None]]] = {
    "parquet": ("write_parquet", None),
    "jsonl": ("write_jsonl", None),
    "tfrecord": ("write_tfrecords", record),
    "webdataset": ("write_webdataset", sample),
}


INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*")
"""Integers that are written as Python writes them: 007 is not one, as it would lose its zeros."""

FLOAT: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")

LARGEST: Final = 1 << 63

BATCH: Final = 1024


def csv_rows(paths: Sequence[str], columns: int, storage: Mapping[str, str] | None = None) -> Dataset[dict[str, Any]]:
    """Return the records as dicts of `int`, `float` or `str`; a missing number is `None`. All records are read once."""
    defaults = [""] * columns
    batches = make_csv_dataset(
        [*map(named, paths)], BATCH, column_defaults=defaults, num_epochs=1, shuffle=False, storage_options=storage
    )
    texts = batches.unbatch().map(decoded)
    kinds: dict[str, str] = {}
    for row in texts:
        kinds = {name: kind_with(kinds.get(name, ""), field) for name, field in row.items()}
    return texts.map(partial(typed, kinds))


def decoded(record: Mapping[str, bytes]) -> dict[str, str]:
    """Return the fields as text."""
    return {name: field.decode() for name, field in record.items()}


def kind_with(kind: str, field: str) -> str:
    """Return the kind of a column that also has this field: "int", "float" or "str", "" if no field is known yet."""
    if not field or kind == "str":
        return kind
    if INTEGER.fullmatch(field):
        return (kind or "int") if -LARGEST <= int(field) < LARGEST else "str"
    return "float" if FLOAT.fullmatch(field) else "str"


def typed(kinds: Mapping[str, str], row: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields as values of their columns' kinds."""
    return {name: value_of(kinds[name], field) for name, field in row.items()}


def value_of(kind: str, field: str) -> Any:
    if kind not in ("int", "float"):
        return field
    number = int if kind == "int" else float
    return number(field) if field else None
