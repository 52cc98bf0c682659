"""report(): what a pipeline did, as one HTML file."""

from __future__ import annotations

import time
from os import PathLike

from asyncdata.observe.dashboard_page import report_of
from asyncdata.observe.file_for_browsers import write_file
from asyncdata.observe.history import History, View
from asyncdata.observe.monitored import Monitored, monitor_of
from asyncdata.statistics.statistics import Statistics

__all__ = ("report", "saved_at")


def report(iterator: Monitored | Statistics, path: str | PathLike[str]) -> None:
    """Write what an iterator has done so far as one HTML file, which needs no server and no other file.

    It shows what the dashboard shows, without curves: the bottleneck with its cure, progress, pace, each step with its
    load, errors, and AUTOTUNE's choices. `iterator` may also be a loader, or what `stats()` returned. An existing file
    is overwritten. `Dashboard.save` writes all pipelines of a page with their curves. `PlanError` if `path` has another
    suffix than `.html`, or for what is no iterator.

    >>> import asyncdata as ad
    >>> with ad.Dataset.range(100).batch(10).iterate() as batches:
    ...     _ = list(batches)
    ...     ad.observe.report(batches, "/tmp/run.html")
    """
    stats = iterator if isinstance(iterator, Statistics) else monitor_of("report", iterator)()
    write_file("report", "HTML", path, report_of([View(1, stats, History())], saved_at()))


def saved_at() -> str:
    """Return when a report is saved, in words."""
    return time.strftime("saved on %Y-%m-%d at %H:%M:%S")
