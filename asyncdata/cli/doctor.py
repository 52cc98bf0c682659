"""The command `asyncdata doctor`: the statistics of each step of a pipeline, and what limits it."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from typing import Any, Final

from asyncdata.cli.pipeline_file import add_arguments, pipeline_of
from asyncdata.dataset import Dataset
from asyncdata.iterator import DatasetIterator
from asyncdata.statistics.bottleneck import Bottleneck, bottleneck_of
from asyncdata.statistics.statistics import Statistics

__all__ = ("DESCRIPTION", "EXAMPLE", "add_arguments", "observed", "present", "print_errors", "read", "run")

SHOWN: Final = 3

DESCRIPTION = """
Read a pipeline for some seconds, and print what each step did, which one limits it, and what to change.
"""

EXAMPLE: Final = """
Example: asyncdata doctor pipeline.py:ds --step 0.05, as if a training step took 50 ms, where the file pipeline.py has
ds = ad.Dataset.list_files("*.jpg").map(decode).batch(32).
"""


def run(arguments: Namespace) -> int:
    """Read the pipeline and print its statistics."""
    stats, found = observed(pipeline_of(arguments.pipeline), arguments.seconds, arguments.step)
    print_errors(stats)
    print(stats)
    print()
    for step, choice, why in stats.tuned_rows[1:]:
        print(f"AUTOTUNE: {step}: {choice}{why and f' ({why})'}")
    print(found)
    return 0


def observed(ds: Dataset[Any], seconds: float, step: float) -> tuple[Statistics, Bottleneck]:
    """Read a dataset for so many seconds, with `step` seconds of sleep per element, and return its statistics."""
    with ds.iterate() as elements:
        read(elements, seconds, step)
        stats = elements.stats()
    return stats, bottleneck_of(stats)


def read(elements: DatasetIterator[Any], seconds: float, step: float) -> None:
    """Read an iterator for so many seconds, with `step` seconds of sleep per element."""
    end = time.monotonic() + seconds
    for _ in present(elements):
        if step:
            time.sleep(step)
        if time.monotonic() > end:
            break


def present(elements: DatasetIterator[Any]) -> Iterator[Any]:
    """Yield the elements, and `None` in the place of each that failed; raise what ends the pipeline."""
    while True:
        try:
            yield next(elements)
        except StopIteration:
            return
        except Exception:
            if elements.stats().state == "failed":
                raise
            yield None


def print_errors(stats: Statistics) -> None:
    """Print the last errors of elements, where errors go."""
    if stats.errors:
        failed = sum([step.failed for step in stats.steps])
        print(f"asyncdata: {failed:,} elements failed; the last errors:", file=sys.stderr)
        for error in stats.errors[-SHOWN:]:
            print(f"  {error}", file=sys.stderr)
