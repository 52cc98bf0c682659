"""The command `asyncdata bench`: the pace of a pipeline, and its ceiling if its source cost nothing."""

from __future__ import annotations

from argparse import Namespace
from itertools import islice
from typing import Any, Final

from asyncdata.cli.doctor import observed, present, print_errors
from asyncdata.cli.pipeline_file import add_arguments, pipeline_of
from asyncdata.dataset import Dataset
from asyncdata.graph.node import Node, nodes_of
from asyncdata.options import Options
from asyncdata.statistics.table import memory, time_of

try:
    from resource import RUSAGE_SELF, getrusage
except ImportError:  # only Unix has it
    getrusage = None

__all__ = ("DESCRIPTION", "EXAMPLE", "add_arguments", "run")

CACHED: Final = 256
DESCRIPTION = """
Read a pipeline for some seconds, and print its pace, when the first element came, its memory and what limits it. Then
read it once more over elements of its source that are cached in memory, which shows the gain of a faster source.
"""

EXAMPLE: Final = """
Example: asyncdata bench pipeline.py:ds --seconds 5, where the file pipeline.py has
ds = ad.Dataset.list_files("*.jpg").map(decode).batch(32).
"""


def run(arguments: Namespace) -> int:
    """Measure the pipeline, and print what was found."""
    ds = pipeline_of(arguments.pipeline)
    stats, found = observed(ds, arguments.seconds, arguments.step)
    print_errors(stats)
    print(f"pace           {stats.pace:,.1f} elements a second ({stats.elements:,} in {time_of(stats.seconds)})")
    if stats.batched > 1:
        print(f"samples        {stats.sample_pace:,.1f} a second, the members of batches")
    print(f"first element  after {time_of(stats.first_seconds)}")
    print(f"waiting        {stats.waiting:.0%} of the reader's time")
    print(f"memory         {memory(peak_bytes())} at most, in this process")
    cached = with_cached_source(ds, stats.steps[0].items)
    if cached is not None:
        ceiling, _ = observed(cached, arguments.seconds, arguments.step)
        print(f"ceiling        {ceiling.pace:,.1f} elements a second if the source cost nothing")
    print(f"bottleneck     {found}")
    return 0


def peak_bytes() -> int:
    """Return the most memory that this process has had; 0 if the system does not say."""
    return 0 if getrusage is None else getrusage(RUSAGE_SELF).ru_maxrss * 1024  # pyright: ignore[reportPossiblyUnboundVariable]


def with_cached_source(ds: Dataset[Any], count: int) -> Dataset[Any] | None:
    """Return the pipeline over `count` elements: some elements of its source, cached in memory and repeated.

    `None` if it has several sources, or a `cache` or `snapshot`, or if its source fails.
    """
    nodes = [*nodes_of(ds.plan)]
    files = any(node.label().startswith(("cache(", "snapshot(")) for node in nodes)
    if files or len([node for node in nodes if not node.inputs]) != 1 or not count:
        return None
    with Dataset[Any](nodes[0], Options(placement="thread")).iterate() as source:
        elements = list(islice(present(source), CACHED))
        if source.stats().errors:
            return None
    plan: Node = Dataset.from_list(elements).repeat(max(1, count // len(elements))).plan
    for node in nodes[1:]:
        plan = node.with_inputs(plan)
    return Dataset(plan, ds.__getstate__()[1])
