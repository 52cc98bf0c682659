"""What an element costs that travels alone, as its function takes too long for a group: Python calls, processor time.

    python benchmarks/micro/single_elements.py [--quick] [--json FILE]

The pipeline is `range(n).map(function, num_parallel_calls=2).batch(8).prefetch(2)`. Calls are what `sys.setprofile`
reports as "call" in all threads of this process, from the request for the first element on: functions of Python and
continuations of generators and coroutines, not what is in C. Processor time is that of this process, worker processes
apart.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncdata as ad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import AtMost, Report, Row, alternate, parse_arguments

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from harness import Arguments

__all__ = ("calls_of", "main")

MOST_CALLS = 87
"""The bar of a function that sleeps 2 ms, ordered, in threads."""


def sleep_2_ms(number: int) -> int:
    time.sleep(2e-3)
    return number


def sleep_100_us(number: int) -> int:
    time.sleep(1e-4)
    return number


def compute_100_us(number: int) -> int:
    end = time.thread_time() + 1e-4
    while time.thread_time() < end:
        pass
    return number


def nothing(number: int) -> int:
    return number


FUNCTIONS = {sleep_2_ms: 400, sleep_100_us: 4000, compute_100_us: 4000, nothing: 100_000}
"""Each with how many elements it is measured on."""

WAYS: dict[str, dict[str, Any]] = {
    "threads": {},
    "threads, unordered": {"deterministic": False},
    "processes": {"executor": "process"},
    "processes, unordered": {"executor": "process", "deterministic": False},
}


def pipeline(function: Callable[[int], int], count: int, **how: Any) -> ad.Dataset[Any]:
    """Return the pipeline that is measured."""
    return ad.Dataset.range(count).map(function, num_parallel_calls=2, **how).batch(8).prefetch(2)


def calls_of(dataset: ad.Dataset[Any]) -> Counter[str]:
    """Return how often each function of Python is called while a dataset is read, in all threads."""
    calls = Counter[str]()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls[frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    threading.setprofile(count)
    sys.setprofile(count)
    try:
        for _ in dataset:
            pass
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return calls


def measure(function: Callable[[int], int], way: str, count: int, arguments: Arguments, report: Report) -> None:
    """Add the calls and the processor time for an element."""
    dataset, name = pipeline(function, count, **WAYS[way]), f"{function.__name__}, {way}"
    times = alternate({name: lambda: lambda: list(dataset)}, arguments.rounds(5), clock=time.process_time)[name]
    calls = calls_of(dataset).total() / count
    bar: dict[str, Any] = {"against": "bar", "reference": MOST_CALLS, "bar": AtMost(1)}
    report.add(Row(f"{name}: calls", calls, "calls", **(bar if (function, way) == (sleep_2_ms, "threads") else {})))
    micros = [seconds * 1e6 / count for seconds in times.seconds]
    report.add(Row(f"{name}: processor", times.median * 1e6 / count, "us", samples={"us": micros}))


def main() -> None:
    """Measure, and print the table."""
    arguments = parse_arguments(__doc__ or "")
    report = Report("Elements that travel alone")
    for function, count in FUNCTIONS.items():
        for way in WAYS:
            measure(function, way, count // 10 if arguments.quick else count, arguments, report)
    report.finish(arguments.json)


if __name__ == "__main__":
    main()
