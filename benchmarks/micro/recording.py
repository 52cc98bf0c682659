"""What recording costs: `Options(record=)` for each batch of shuffled elements, and `exclude` for each element.

    python benchmarks/micro/recording.py [--quick] [--json FILE]

Each pipeline runs with and without it in turn, and the best run of each counts, in processor time. A batch has 256
elements out of a shuffle buffer, whose order can be computed again; or behind a filter, and each is named in the log.
The busy pipelines make some 1,000 batches a second.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtMost, Report, Row, alternate, parse_arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness import Arguments, Prepare

__all__ = ("main",)

BATCH = 256


def shuffled(batches: int) -> Any:
    """Elements out of a shuffle buffer."""
    return ad.Dataset.range(batches * BATCH).shuffle(10_000, seed=1)


def filtered(batches: int) -> Any:
    """Elements whose order no one can compute again, as a function chose them."""
    return ad.Dataset.range(batches * BATCH).filter(chosen).shuffle(10_000, seed=1)


def chosen(element: int) -> bool:
    return element % 64 > 0


DATA = bytes(1 << 20)


def decoded(batch: Any) -> Any:
    """Work as long as decoding a batch takes, about a millisecond, as decoders do without the interpreter's lock."""
    hashlib.sha1(DATA, usedforsecurity=False).digest()
    return batch


def read(dataset: Any) -> Prepare:
    """Read the dataset to its end, with a state every 1,000 elements."""

    def run() -> None:
        with dataset.iterate(epoch=0) as batches:
            for step, _ in enumerate(batches):
                if step % 1000 == 999:
                    batches.state_dict()

    return lambda: run


def compare(dataset: Any, folder: str, rounds: int) -> tuple[float, float, int]:
    """Return the processor seconds with and without a log, and its bytes."""
    log = Path(folder, "run.jsonl")

    def recorded() -> Callable[[], None]:
        log.unlink(missing_ok=True)
        return read(dataset.with_options(ad.Options(record=log)))()

    found = alternate({"without": read(dataset), "with": recorded}, rounds, clock=time.process_time)
    return found["with"].best, found["without"].best, log.stat().st_size


def measure(report: Report, arguments: Arguments) -> None:
    """Fill the report."""
    count, rounds = (20, 1) if arguments.quick else (400, 9)
    with tempfile.TemporaryDirectory() as folder:
        for name, ds, bar in (("shuffled", shuffled(count), 0.05), ("filtered", filtered(count), 4)):
            after, before, size = compare(ds.batch(BATCH), folder, rounds)
            cost = (after - before) / count * 1e3
            report.add(Row(f"record a batch of 256 {name}", cost, "ms", "bar", 0.15, AtMost(1)))
            report.add(Row("its log, for each element", size / count / BATCH, "B", "bar", bar, AtMost(1)))
            after, before, _ = compare(ds.batch(BATCH).map(decoded), folder, rounds)
            report.add(Row(f"1,000 batches a second, {name}", after, "s", "without", before, AtMost(1.02)))
        _, _, size = compare(ad.Dataset.range(count * BATCH).batch(BATCH), folder, 1)
        report.add(Row("a log of consecutive elements, for each", size / count / BATCH, "B", "bar", 0.05, AtMost(1)))
    elements = shuffled(count)
    bad = [{"source": f"range({count * BATCH})", "index": index} for index in (3, 4)]
    found = alternate({"with": read(elements.exclude(bad)), "without": read(elements)}, rounds, clock=time.process_time)
    cost = (found["with"].best - found["without"].best) / count / BATCH * 1e6
    report.add(Row("exclude after shuffle, for each element", cost, "us"))


def main() -> None:
    """Run the benchmark."""
    arguments = parse_arguments("What recording costs.")
    report = Report("Recording")
    measure(report, arguments)
    report.finish(arguments.json)


if __name__ == "__main__":
    main()
