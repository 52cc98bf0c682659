"""Memory does not grow with the number of elements: after 10 million against after 100,000.

    python benchmarks/micro/memory.py [--quick] [--json FILE]

Each pipeline runs in a fresh process, which reports its resident memory on the way.
"""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import Below, Report, Row, parse_arguments

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("main",)

EARLY = 100_000
BAR = Below(20)


def increment(value: int) -> int:
    return value + 1


def interleaved(numbers: Any) -> Any:
    """Sixteen inner datasets at a time, a thousand elements each."""
    inner = ad.Dataset.range(1000)
    return ad.Dataset.range(len(numbers) // 1000).interleave(lambda _: inner, num_parallel_calls=ad.AUTOTUNE)


PIPELINES: dict[str, Callable[[Any], Any]] = {
    "range": lambda numbers: numbers,
    "map": lambda numbers: numbers.map(increment),
    "map, 4 threads": lambda numbers: numbers.map(increment, num_parallel_calls=4),
    "shuffle, batch, unbatch": lambda numbers: numbers.shuffle(1000, seed=0).batch(256).unbatch(),
    "interleave": interleaved,
}
"""Each gives out as many elements as it is given numbers."""


def resident_megabytes() -> float:
    """What this process holds in memory now (Linux)."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def grow(name: str, count: int) -> None:
    """Iterate over `count` elements and print the memory after the early ones and at the end."""
    elements = iter(PIPELINES[name](ad.Dataset.range(count)))
    for _ in itertools.islice(elements, EARLY):
        pass
    early = resident_megabytes()
    for _ in itertools.islice(elements, count - EARLY - 1):
        pass
    print(early, resident_megabytes())


def measured(name: str, count: int) -> tuple[float, float]:
    """Run `grow` in a fresh process and read what it printed."""
    command = [sys.executable, __file__, "--grow", name, str(count)]
    early, late = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(early), float(late)


def main() -> None:
    """Measure every pipeline and print the table."""
    arguments = parse_arguments(__doc__ or "")
    report = Report("Memory after 10 million elements, against after 100,000")
    count = 110_000 if arguments.quick else 10_000_000
    for name in PIPELINES:
        early, late = measured(name, count)
        report.add(Row(name, late, unit="MB", against="early", reference=early, bar=BAR))
    report.finish(arguments.json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--grow"]:
        grow(sys.argv[2], int(sys.argv[3]))
    else:
        main()
