"""The command `asyncdata inspect`: what a file, a folder or a URL holds, and whether it can be read completely."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from asyncdata.cli.arguments import add_storage_option, storage_options
from asyncdata.cli.recognised import RecognisedFiles, as_examples, recognise
from asyncdata.dataset import Dataset
from asyncdata.formats.tf_example import decode_example
from asyncdata.redaction import redacted
from asyncdata.storage import size_of

__all__ = ("DESCRIPTION", "EXAMPLE", "add_arguments", "described", "run", "shortened", "shown")

DESCRIPTION = """
Show what is at a path, a pattern, a URL or a prefix of a bucket: its format, the number of elements, the first
element, and what is damaged. Everything is read; with --quick only the first element. The exit status is 1 if something
is damaged.
"""

MOST: Final = 10
"""The most errors that are printed."""

WIDTH: Final = 110

EXAMPLE: Final = """
Example: asyncdata inspect 'data/*.tfrecord', or asyncdata inspect s3://bucket/train/ --storage-option
region=eu-central-1
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `inspect`."""
    parser.add_argument(
        "source", metavar="SOURCE", help="a file, a folder, a pattern in quotes, or a URL; in a bucket also a prefix"
    )
    add_storage_option(parser)
    parser.add_argument("--quick", action="store_true", help="read only the first element")


@dataclass
class Contents:
    """The elements and errors that were read."""

    elements: int = 0
    first: Any = None
    errors: list[Exception] = field(default_factory=list[Exception])


def run(arguments: Namespace) -> int:
    """Read the files, and print what they hold."""
    found = recognise(arguments.source, storage_options(arguments.storage))
    contents = contents_of(found.dataset, arguments.quick)
    for name, value in report(found, contents, arguments.quick):
        print(f"{name:<10}{value}")
    return 1 if contents.errors else 0


def contents_of(dataset: Dataset[Any], quick: bool) -> Contents:
    """Read a dataset, or its first element."""
    seen = Contents()
    with dataset.iterate() as elements:
        while not (quick and (seen.elements or seen.errors)):
            try:
                element = next(elements)
            except StopIteration:
                break
            except Exception as error:  # noqa: BLE001  each is reported
                if seen.errors and seen.errors[-1] is error:
                    break  # the pipeline has ended
                seen.errors.append(error)
                continue
            if not seen.elements:
                seen.first = element
            seen.elements += 1
    return seen


def report(found: RecognisedFiles, contents: Contents, quick: bool) -> Iterable[tuple[str, str]]:
    """Yield the lines to print."""
    files = "" if len(found.paths) == 1 else f", {len(found.paths)} files"
    yield "format", found.kind + (f", {found.compression.lower()}" if found.compression else "") + files
    sizes = [*map(bytes_of, found.paths)]
    yield "bytes", "unknown" if -1 in sizes else f"{sum(sizes):,}".replace(",", " ")
    if not quick:
        yield "elements", str(contents.elements)
    if contents.elements:
        first = contents.first
        if found.kind == "TFRecord" and as_examples(first):
            yield "records", "serialized tf.Examples: parse_example"
            first = decode_example(first)
        yield "spec", shortened(described(first))
        yield "first", shortened(repr(shown(first)))
    for error in contents.errors[:MOST]:
        yield "damage", redacted(f"{type(error).__name__}: {error}")
    if len(contents.errors) > MOST:
        yield "damage", f"and {len(contents.errors) - MOST} more"


def bytes_of(path: str) -> int:
    """Return how many bytes a file has, or all in a folder; -1 if that is unknown, as of a URL."""
    if not os.path.isdir(path):
        return size_of(path)
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())


def described(value: Any) -> str:
    """Return the types in an element; of arrays the dtype and shape."""
    if isinstance(value, dict):
        named = cast("dict[Any, Any]", value)
        return "{" + ", ".join(f"{name!r}: {described(part)}" for name, part in named.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(described, cast("tuple[Any, ...]", value))) + ")"
    if isinstance(value, np.ndarray):
        array = cast("np.ndarray[Any, Any]", value)
        return f"{array.dtype} {array.shape}"
    return type(value).__name__


def shown(value: Any) -> Any:
    """Return an element with long values shortened."""
    if isinstance(value, dict):
        return {name: shown(part) for name, part in cast("dict[Any, Any]", value).items()}
    if isinstance(value, tuple):
        return tuple(map(shown, cast("tuple[Any, ...]", value)))
    if isinstance(value, bytes):
        return value if len(value) <= 30 else value[:30] + b"..."
    if isinstance(value, str):
        return value if len(value) <= 30 else value[:30] + "..."
    if isinstance(value, np.ndarray):
        return cast("np.ndarray[Any, Any]", value).reshape(-1)[:6].tolist()
    return value


def shortened(text: str) -> str:
    """Return a text that fits a line."""
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."
