"""AUTOTUNE beside every choice that can be made by hand, for functions of four kinds.

    python benchmarks/loaders/autotune.py [--quick] [--json FILE]

A cheap lambda, a decoder that releases the interpreter lock (JPEG photographs of about 60 KB; zlib where Pillow and
scikit-learn are not installed), pure Python code, and calls that sleep for 20 ms. Each is run inline, in one, two and
four threads, in as many as there are cores and twice as many, in as many processes as there are cores, and with
`executor=AUTOTUNE`, by turns. Runs last until AUTOTUNE has settled; the time in which it tries is part of it. The bar
is 1.05 times the best by hand.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import asyncdata as ad
from asyncdata.system.host_resources import usable_cores

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness import AtMost, Report, Row, alternate, parse_arguments
from jpeg import load, write_files

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness import Prepare

__all__ = ("main",)

NOISE = zlib.compress(np.random.default_rng(0).integers(0, 64, 600_000).astype(np.uint8).tobytes())
CORES = usable_cores()
HANDS: dict[str, dict[str, Any]] = {
    "inline": {"executor": "inline"},
    "1 thread": {"num_parallel_calls": 1},
    **{f"{calls} threads": {"num_parallel_calls": calls} for calls in (2, 4, CORES, 2 * CORES)},
    f"{CORES} processes": {"num_parallel_calls": CORES, "executor": "process"},
}
MANY: dict[str, dict[str, Any]] = {f"{calls} threads": {"num_parallel_calls": calls} for calls in (8, 16, 32, 64)}


def cheap(number: int) -> int:
    return number + 1


def inflate(_: int) -> int:
    return len(zlib.decompress(NOISE))


def python_code(number: int) -> int:
    total = number
    for place in range(9000):
        total += place * place
    return total


def sleep(number: int) -> int:
    time.sleep(0.02)
    return number


def run(ds: Any) -> Prepare:
    """Read a dataset to its end."""
    return lambda: lambda: sum(1 for _ in ds)


def case(report: Report, name: str, ds: Any, fn: Callable[..., Any], hands: dict[str, Any], rounds: int) -> None:
    """Add the row of one function."""
    ways = {hand: ds.map(fn, **how) for hand, how in hands.items()}
    tuned = ds.map(fn, executor=ad.AUTOTUNE)
    samples = alternate({hand: run(way) for hand, way in (ways | {"AUTOTUNE": tuned}).items()}, rounds)
    best = min(hands, key=lambda hand: samples[hand].median)
    with tuned.iterate() as elements:
        (chosen,) = elements.stats().tuned
    raw = {hand: found.seconds for hand, found in samples.items()}
    print(f"{name}: {chosen['workers']} x {chosen['where']}; {chosen['why']}")
    report.add(Row(name, samples["AUTOTUNE"].median, "s", best, samples[best].median, AtMost(1.05), raw))


def photographs(folder: Path, count: int) -> tuple[str, Any, Callable[..., Any]]:
    """Return a decoder and what it decodes."""
    if importlib.util.find_spec("PIL") is None or importlib.util.find_spec("sklearn") is None:
        return "zlib", ad.Dataset.range(count), inflate
    write_files(folder, 16)
    files = sorted(str(path) for path in folder.iterdir())
    return "JPEG", ad.Dataset.from_list(files).repeat(-(-count // len(files))), load


def main() -> None:
    """Measure all four and print the table."""
    arguments = parse_arguments(__doc__ or "")
    report, rounds, scale = (
        Report("AUTOTUNE beside the best by hand"),
        arguments.rounds(3),
        400 if arguments.quick else 1,
    )
    numbers = ad.Dataset.range
    case(report, "a cheap lambda", numbers(6_000_000 // scale), cheap, HANDS, rounds)
    with tempfile.TemporaryDirectory() as folder:
        name, ds, decode = photographs(Path(folder), 4000 // scale)
        case(report, name, ds, decode, HANDS, rounds)
    case(report, "Python code", numbers(12_000 // scale), python_code, HANDS, rounds)
    case(report, "sleeps of 20 ms", numbers(12_000 // scale), sleep, MANY, rounds)
    report.finish(arguments.json)


if __name__ == "__main__":
    main()
