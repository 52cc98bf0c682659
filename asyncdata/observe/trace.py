"""trace(): a record of what ran when, drawn as a timeline or opened in Perfetto."""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Self

from asyncdata.errors import PlanError
from asyncdata.graph.node import Node, check_count
from asyncdata.observe.file_for_browsers import write_file
from asyncdata.observe.timeline import Bar, timeline
from asyncdata.runtime.spans import RECORDERS, Recorder, Span, record

__all__ = ("Trace", "trace")


class Trace:
    """Records, while its `with` block runs, what steps and workers did, and how long consumers waited.

    >>> import asyncdata as ad
    >>> with ad.trace() as t:
    ...     for batch in ad.Dataset.range(100).map(lambda x: x + 1).batch(10):
    ...         with t.step():
    ...             pass  # train
    >>> sorted({bar.row for bar in t.bars()})[:2]
    ['batch(10)', 'map(<lambda>)']
    >>> t.seconds > 0
    True
    """

    def __init__(self, max_spans: int = 100_000) -> None:
        self._recorder = Recorder(check_count("trace", "max_spans", max_spans, 1))
        self._begun = self._ended = 0.0

    def __enter__(self) -> Self:
        if self._begun:
            raise PlanError("a trace records once: make another with asyncdata.trace()")
        self._begun = time.perf_counter()
        RECORDERS.append(self._recorder)
        return self

    def __exit__(self, *_: object) -> None:
        RECORDERS.remove(self._recorder)
        self._ended = time.perf_counter()

    @contextmanager
    def step(self, name: str = "train") -> Generator[None]:
        """Record the body as a step of training.

        >>> import asyncdata as ad
        >>> with ad.trace() as t, t.step("evaluate"):
        ...     pass
        >>> [bar.row for bar in t.bars()]
        ['evaluate']
        """
        begin = time.perf_counter()
        try:
            yield
        finally:
            record(name, "step", time.perf_counter() - begin, 1)

    @property
    def seconds(self) -> float:
        """How long it has recorded."""
        return (self._ended or time.perf_counter()) - self._begun if self._begun else 0.0

    def bars(self) -> list[Bar]:
        """Return what was recorded, in order: a row for each step, and seconds since the trace began.

        >>> import asyncdata as ad
        >>> with ad.trace() as t:
        ...     _ = list(ad.Dataset.range(3).map(abs).batch(3))
        >>> "map(abs)" in {bar.row for bar in t.bars()}
        True
        """
        found = [self._bar(span) for span in [*self._recorder.spans] if span.end >= self._begun]
        return sorted(found, key=lambda bar: bar.begin)

    def _bar(self, span: Span) -> Bar:
        label = span.step.label() if isinstance(span.step, Node) else str(span.step)
        return Bar(label, span.kind, span.lane, max(0.0, span.begin - self._begun), span.end - self._begun, span.items)

    def plot(
        self, path: str | PathLike[str], *, title: str = "", above: Trace | None = None, title_above: str = ""
    ) -> None:
        """Draw what was recorded as an SVG picture: a row for each step, time to the right.

        `above` is another trace. It is drawn above this one on the same scale, to compare the two.

        >>> import asyncdata as ad
        >>> with ad.trace() as t:
        ...     _ = list(ad.Dataset.range(3).batch(3))
        >>> t.plot("/tmp/timeline.svg", title="as it was")
        """
        parts = [(title, self.bars(), self.seconds)]
        if above is not None:
            parts.insert(0, (title_above, above.bars(), above.seconds))
        write_file("plot", "SVG", path, timeline(parts))

    def save(self, path: str | PathLike[str]) -> None:
        """Write what was recorded as JSON for https://ui.perfetto.dev or chrome://tracing: a track for each step and
        each of its workers. Times are in microseconds there.

        >>> import asyncdata as ad
        >>> with ad.trace() as t:
        ...     _ = list(ad.Dataset.range(3).batch(3))
        >>> t.save("/tmp/trace.json")
        """
        Path(path).write_text(json.dumps({"traceEvents": events(self.bars())}), encoding="utf-8")


def trace(max_spans: int = 100_000) -> Trace:
    """Record what pipelines of this process do while the `with` block runs: `plot` it, or `save` it for Perfetto.

    It records work in threads and worker processes, and how long the consumer waits; `t.step()` records training. Of a
    pipeline with `placement="process"` only the consumer's waits are recorded. The last `max_spans` spans are retained.

    >>> import asyncdata as ad
    >>> with ad.trace() as t:
    ...     _ = list(ad.Dataset.range(100).batch(10))
    >>> t.plot("/tmp/timeline.svg")
    >>> t.save("/tmp/trace.json")
    """
    return Trace(max_spans)


def events(bars: list[Bar]) -> list[dict[str, Any]]:
    """Return bars as Chrome's trace events, each step a process and each of its lanes a thread of it."""
    steps = {row: number + 1 for number, row in enumerate(dict.fromkeys(bar.row for bar in bars))}
    lanes: dict[tuple[str, str, int], int] = {}
    found: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": row}}
        for row, number in steps.items()
    ]
    for bar in bars:
        lane = lanes.setdefault((bar.row, bar.kind, bar.lane), len(lanes) + 1)
        found.append(
            {
                "ph": "X",
                "name": bar.row,
                "cat": bar.kind,
                "pid": steps[bar.row],
                "tid": lane,
                "ts": bar.begin * 1e6,
                "dur": (bar.end - bar.begin) * 1e6,
                "args": {"elements": bar.items},
            }
        )
    return found
