"""How long a reader waits when a function that took 1 us begins to take 10 ms.

    python benchmarks/loaders/slowing.py [--quick] [--json FILE]

Such a function is called on hundreds of elements at a time, which would keep the reader waiting to their end. The
function computes for 1 us on each of the first 20,000 elements, and sleeps for 10 ms on those that follow. Measured is
the longest wait for an element; the reference is the time of a hundred of the slow calls, one after the other.
"""

from __future__ import annotations

import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtMost, Report, Row, parse_arguments

__all__ = ("main",)

QUICK, AFTER = 20_000, 1_000
WAYS: dict[str, dict[str, Any]] = {
    "the engine's thread": {},
    "2 threads": {"num_parallel_calls": 2},
    "AUTOTUNE": {"num_parallel_calls": ad.AUTOTUNE},
    "2 processes": {"num_parallel_calls": 2, "executor": "process"},
}


def work(number: int) -> int:
    if number >= QUICK:
        time.sleep(0.01)
    else:
        end = time.perf_counter() + 1e-6
        while time.perf_counter() < end:
            pass
    return number


def longest_wait(how: dict[str, Any], after: int) -> float:
    """Return the most seconds that pass between two elements."""
    longest = 0.0
    with ad.Dataset.counter().map(work, **how).iterate() as elements:
        next(elements)
        last = time.perf_counter()
        for _ in islice(elements, QUICK + after):
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
    return longest


def main() -> None:
    """Measure each way to call the function and print the table."""
    arguments = parse_arguments(__doc__ or "")
    report = Report("The longest wait when 1 us becomes 10 ms")
    begin = time.perf_counter()
    for _ in range(100):
        work(QUICK)
    hundred = time.perf_counter() - begin
    for name, how in WAYS.items():
        waits = [longest_wait(how, AFTER // 50 if arguments.quick else AFTER) for _ in range(arguments.rounds(3))]
        row = Row(name, sorted(waits)[len(waits) // 2], "s", "100 slow calls", hundred, AtMost(2), {name: waits})
        report.add(row)
    report.finish(arguments.json)


if __name__ == "__main__":
    main()
