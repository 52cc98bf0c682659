"""The command `asyncdata doctor`: the statistics of each step of a pipeline, and what limits it."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from typing import Any

from asyncdata.cli.pipeline_file import add_arguments, pipeline_of
from asyncdata.dataset import Dataset
from asyncdata.observe.bottleneck import Bottleneck, bottleneck_of
from asyncdata.observe.statistics import Statistics

__all__ = ("add_parser", "observed", "run")

DESCRIPTION = """
Read a pipeline for some seconds, and print what each step did, which one limits it, and what to change.
"""


def add_parser(commands: Any) -> None:
    """Add `doctor` to the subparsers of a command line."""
    parser: ArgumentParser = commands.add_parser("doctor", help="see what limits a pipeline", description=DESCRIPTION)
    add_arguments(parser)
    parser.set_defaults(run=run)


def run(arguments: Namespace) -> int:
    """Read the pipeline and print its statistics."""
    stats, found = observed(pipeline_of(arguments.pipeline), arguments.seconds, arguments.step)
    print(stats)
    print()
    for choice in stats.tuned:
        choices = ", ".join(f"{key}={value}" for key, value in choice.items() if key != "step")
        print(f"AUTOTUNE: {choice['step']}: {choices}")
    print(found)
    return 0


def observed(ds: Dataset[Any], seconds: float, step: float) -> tuple[Statistics, Bottleneck]:
    """Read a dataset for so many seconds, with `step` seconds of sleep per element, and return its statistics."""
    with ds.iterate() as elements:
        end = time.monotonic() + seconds
        for _ in elements:
            if step:
                time.sleep(step)
            if time.monotonic() > end:
                break
        stats = elements.stats()
    return stats, bottleneck_of(stats)
