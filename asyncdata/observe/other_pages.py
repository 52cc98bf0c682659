"""Pipelines of other processes, such as other ranks, read from their dashboards."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin, urlsplit

from asyncdata.errors import PlanError
from asyncdata.observe.dashboard_page import rendered
from asyncdata.observe.history import History, View
from asyncdata.redaction import redacted
from asyncdata.statistics.statistics import FunctionStatistics, Statistics, StepStatistics

__all__ = ("OtherPage", "drawn_for_trial", "statistics_from", "told_to_others")

PATH: Final = "pipelines.json"
MOST_BYTES: Final = 4 << 20
TIMEOUT: Final = 2.0
MOST_FAILURES: Final = 5
"""After so many readings that failed, its pipelines are shown as ones that do not answer."""

DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NewPipeline(NamedTuple):
    """A pipeline of another process that is new here."""

    rank: str
    monitor: Callable[[], Statistics]


class OtherPage:
    """The pipelines of the dashboard at a URL."""

    def __init__(self, url: str) -> None:
        if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
            raise PlanError(
                "the URL of another dashboard must be as its program logs it, such as 'http://127.0.0.1:8485/', "
                f"got {redacted(url)!r:.80}"
            )
        self.url = urljoin(url, PATH)
        self.latest: dict[int, Statistics] = {}
        self.failed = 0

    def read(self) -> list[NewPipeline]:
        try:
            with DIRECT.open(self.url, timeout=TIMEOUT) as reply:
                told = json.loads(reply.read(MOST_BYTES))
            found = {int(one["number"]): (str(one["rank"]), statistics_from(one["stats"])) for one in told}
            for number, (rank, stats) in found.items():
                drawn_for_trial(View(number, stats, History(), rank))
        except Exception:  # noqa: BLE001  it may be gone, or be no dashboard: whatever it tells must not stop this one
            self.lost()
            return []
        self.failed, known = 0, {*self.latest}
        self.latest |= {number: stats for number, (_, stats) in found.items()}
        new = [number for number in found if number not in known]
        return [NewPipeline(found[number][0], partial(self.latest.__getitem__, number)) for number in new]

    def lost(self) -> None:
        """Record that it did not answer; after a while its pipelines are shown so, and are new if it answers again."""
        self.failed += 1
        if self.failed == MOST_FAILURES:
            for number, stats in self.latest.items():
                if stats.state in {"running", "not begun"}:
                    self.latest[number] = replace(stats, state="no answer")
        elif self.failed > MOST_FAILURES:
            self.latest = {}


def drawn_for_trial(view: View) -> None:
    """Raise an error if a pipeline cannot be shown, as where it tells no number of what has to be one."""
    view.history.add(0.0, view.stats)
    rendered([view])


def told_to_others(views: Sequence[View]) -> list[dict[str, Any]]:
    """Return pipelines for the dashboards of other processes: the newest, and those that run."""
    return [
        {"number": view.number, "rank": view.rank, "stats": view.stats.to_dict()}
        for view in views
        if view is views[-1] or view.stats.running
    ]


def statistics_from(told: Mapping[str, Any]) -> Statistics:
    """Return the statistics that `Statistics.to_dict` made a dict of."""
    values: dict[str, Any] = {field.name: told[field.name] for field in fields(Statistics)}
    values["steps"], values["errors"] = tuple([step_from(step) for step in told["steps"]]), tuple(told["errors"])
    return Statistics(**values)


def step_from(told: Mapping[str, Any]) -> StepStatistics:
    values: dict[str, Any] = {name: told[name] for name in StepStatistics._fields}
    values["inputs"], values["dropped"] = tuple(told["inputs"]), tuple(told["dropped"])
    values["functions"] = tuple([FunctionStatistics(one["name"], one["seconds"]) for one in told["functions"]])
    return StepStatistics(**values)
