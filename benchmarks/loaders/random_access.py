"""Records in any order, by an index of the files, against records in order; all from the page cache.

    python benchmarks/loaders/random_access.py [--quick] [--json FILE]

The first part reads 16 files of records of one size: in order, shuffled through a buffer of 10,000, shuffled as a whole
(`index=True`, `shuffle()`), and single records by number. The second goes on in the middle of one file with
`shuffle(1000)`, whose buffer is then filled again, up to the first element. The third makes the index of that file.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtMost, Report, Row, alternate, parse_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness import Arguments

__all__ = ("main",)

FILES = 16
BUFFER, HELD = 10_000, 1_000
LOOKED_UP = 100


def write(paths: Sequence[str], size: int, total: int) -> int:
    """Write random records of one size into files, and return how many."""
    random = np.random.default_rng(0)
    records = [random.bytes(size) for _ in range(50)]
    each = total // size // len(paths)
    for path in paths:
        with ad.TFRecordWriter(path) as writer:
            for number in range(each):
                writer.write(records[number % 50])
    return each * len(paths)


def exhausted(ds: ad.Dataset[bytes]) -> Callable[[], Any]:
    """A run in which the consumer gets every element."""

    def run() -> None:
        for _ in ds:
            pass

    return run


def orders(folder: Path, kilobytes: int, bar: float, total: int, arguments: Arguments, report: Report) -> None:
    """Read records of one size in several orders."""
    paths = [str(folder / f"{kilobytes}k-{number}.tfrecord") for number in range(FILES)]
    count = write(paths, kilobytes * 1000, total)
    plain, known = ad.TFRecordDataset(paths), ad.TFRecordDataset(paths, index=True)

    def look_up() -> None:
        for number in range(LOOKED_UP):
            known.at(number * 977 % count)

    samples = alternate(
        {
            "in order": lambda: exhausted(plain),
            f"shuffle({BUFFER})": lambda: exhausted(plain.shuffle(BUFFER, seed=0)),
            "shuffle()": lambda: exhausted(known.shuffle(seed=0)),
            "at": lambda: look_up,
        },
        arguments.rounds(5),
    )
    in_order, one = samples.pop("in order").median / count * 1e6, samples.pop("at").median / LOOKED_UP * 1e6
    for name, runs in samples.items():
        bound = AtMost(bar) if name == "shuffle()" else None
        micros = runs.median / count * 1e6
        title = f"{kilobytes} KB records, {name}"
        report.add(Row(title, micros, "us", "in order", in_order, bound, {name: runs.seconds}))
    report.add(Row(f"{kilobytes} KB records, dataset[i]", one, "us"))


def resuming(path: str, count: int, arguments: Arguments, report: Report) -> None:
    """Go on in the middle of a file with what a shuffle's buffer held, with an index and without."""

    def build(index: bool) -> ad.Dataset[bytes]:
        return ad.TFRecordDataset(path, index=index).shuffle(HELD, seed=0)

    with build(False).iterate() as records:
        for _ in range(count // 2):
            next(records)
        state = records.state_dict()

    def first(index: bool) -> Callable[[], None]:
        def run() -> None:
            with build(index).iterate(state=state) as records:
                next(records)

        return run

    build(True).cardinality()  # makes the index
    samples = alternate({"without": lambda: first(False), "with": lambda: first(True)}, arguments.rounds(5))
    raw = {name: runs.seconds for name, runs in samples.items()}
    report.add(
        Row(
            f"going on in the middle, shuffle({HELD})",
            samples["with"].median,
            "s",
            "without an index",
            samples["without"].median,
            samples=raw,
        )
    )


def making(path: str, count: int, arguments: Arguments, report: Report) -> None:
    """Make the index of a file."""
    index = Path(path).with_name(f".{Path(path).name}.index")

    def make() -> Callable[[], Any]:
        index.unlink(missing_ok=True)
        return ad.TFRecordDataset(path, index=True).cardinality

    runs = alternate({"index": make}, arguments.rounds(5))["index"]
    report.add(Row("index made, per record of 10 KB", runs.median / count * 1e6, "us", samples={"": runs.seconds}))
    report.add(Row("index kept, per record of 10 KB", os.path.getsize(index) / count, "bytes"))


def main() -> None:
    """Write the files, run every part and print the table."""
    arguments = parse_arguments(__doc__ or "")
    report = Report("TFRecord in any order, from the page cache")
    total = 2_000_000 if arguments.quick else 200_000_000
    with tempfile.TemporaryDirectory() as folder:
        for kilobytes, bar in ((1, 10), (10, 6), (100, 4)):
            orders(Path(folder), kilobytes, bar, total, arguments, report)
        path = str(Path(folder) / "one.tfrecord")
        count = write([path], 10_000, 5 * total)
        resuming(path, count, arguments, report)
        making(path, count, arguments, report)
    report.finish(arguments.json)


if __name__ == "__main__":
    main()
