"""Statistics of a pipeline and of each step so far: the numbers of the dashboard, of metrics and of `stats()`.

They are counted in `runtime/meter.py`, and put together in `engines/stats.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Final, NamedTuple

from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.statistics.consumer import ConsumerTimes
from asyncdata.statistics.table import Row, html_table, memory, share, text_table, time_of

__all__ = (
    "EMPTY",
    "EngineStatistics",
    "FunctionStatistics",
    "Statistics",
    "StepStatistics",
    "counted",
    "decimal",
    "in_number",
    "statistics_of",
)

HEADINGS = (
    "step",
    "elements",
    "failed",
    "retries",
    "read",
    "size",
    "own time",
    "workers",
    "waits for input",
    "for room",
    "queue",
    "p50",
    "p99",
)


class FunctionStatistics(NamedTuple):
    """One of several functions that a step calls in one pass.

    >>> import asyncdata as ad
    >>> with ad.Dataset.range(100).map(abs).map(bin).iterate() as texts:
    ...     _ = list(texts)
    ...     functions = texts.stats().steps[1].functions
    >>> [function.name for function in functions], all(function.seconds > 0 for function in functions)
    (['map(abs)', 'map(bin)'], True)
    """

    name: str
    """The function with its transformation, for example `"map(decode)"`."""
    seconds: float
    """How long it took, of the step's `own_seconds` and `worker_seconds` together; estimated from some passes."""


class StepStatistics(NamedTuple):
    """Statistics of one step. Times are in seconds; shares in the table are of `EngineStatistics.seconds`.

    >>> import asyncdata as ad
    >>> with ad.Dataset.range(100).map(abs).map(bin).iterate() as texts:
    ...     _ = list(texts)
    ...     step = texts.stats().steps[1]
    >>> step.step, step.items, step.failed, step.own_seconds > 0
    ('map(abs → bin)', 100, 0, True)
    >>> slowest = step.slowest
    >>> slowest.name in ("map(abs)", "map(bin)"), 0.5 <= step.function_share(slowest) <= 1
    (True, True)
    """

    step: str
    """The step as `Dataset.explain` shows it."""
    items: int
    """How many elements it has given, including failed ones."""
    failed: int
    """How many of them failed in this step first."""
    retries: int
    """How many calls `with_retries` has repeated, and how many requests to servers and object stores were repeated."""
    read_bytes: int
    """How many bytes of files a source has read: compressed bytes, if the files are compressed."""
    bytes: int
    """About how many bytes its elements occupied in total, estimated from some of them."""
    own_seconds: float
    """How long its code ran on the thread that runs the pipeline, without the code of its input."""
    worker_seconds: float
    """How long its own threads, tasks and processes worked, in total."""
    workers: int
    """How many of these there are now; 0 if it has none."""
    input_seconds: float
    """How long it waited for its input."""
    room_seconds: float
    """How long it could not continue, because its buffer was full."""
    output_seconds: float
    """How long the next step waited for it; without a buffer this includes its own time and that of its input."""
    queued: int | None
    """How many elements are in its buffer, or in flight; `None` if it has none."""
    queue_size: int | None
    """How many its buffer may hold; `None` if that varies."""
    p50: float | None
    """Seconds that an element takes, as the mean of its block: half of the blocks take less."""
    p99: float | None
    """The same, but only one block in a hundred takes more."""
    kind: str
    """`"source"`, `"function"` (calls a function of the user's on each element), `"buffer"`, `"merge"` (reads several
    inputs, or pipelines of its own), `"device"`, else `"step"`."""
    where: str
    """Where its functions are called, or those inside its datasets: `"inline"`, `"thread"`, `"task"` or `"process"`;
    empty if it has none."""
    cpu_seconds: float
    """How many of `worker_seconds` its threads or processes computed; 0 if that is unknown."""
    tuned: dict[str, Any]
    """The choices of AUTOTUNE; empty if it has none."""
    inputs: tuple[int, ...]
    """The places of the steps that it reads."""
    inner: str = ""
    """The step that calls functions inside the datasets that this one makes, whose work is counted here; empty if none
    does."""
    open_datasets: int = 1
    """How many such datasets are open at once, about."""
    excluded: int = 0
    """How many elements `exclude` left out here, or `join` as nothing has their key."""
    dropped: tuple[str, ...] = ()
    """The texts of the last exceptions that `ignore_errors` dropped here (at most 20), with the step and the element of
    each."""
    functions: tuple[FunctionStatistics, ...] = ()
    """The functions that it calls in one pass, in this order, if there are several."""
    batched: float = 1.0
    """About how many elements of its input are in one of its own, if it makes batches or splits them."""
    sources: Mapping[str, Mapping[str, float]] = {}
    """What each dataset of a mixture has given in this epoch, by its name or number: how many `elements`, with `cost=`
    what these cost, and the `epoch` of one that ends with `repeat()`, perhaps before functions of single elements,
    `shuffle` or `shard`: the number of its repetition, from 0. What is read ahead is counted; a state has the counts of
    what was delivered."""

    @property
    def slowest(self) -> FunctionStatistics | None:
        """The function that takes most of the time, if there are several."""
        return max(self.functions, key=lambda one: one.seconds, default=None)

    def function_share(self, function: FunctionStatistics) -> float:
        """Return a function's share of the time of all functions of the step, from 0 to 1."""
        return function.seconds / (sum([one.seconds for one in self.functions]) or 1.0)

    def function_rows(self, seconds: float) -> list[Row]:
        """Return a row of the table for each function, if there are several, below that of the step."""
        total, rows = self.own_seconds + self.worker_seconds, list[Row]()
        for place, one in enumerate(self.functions):
            mark = "└" if place == len(self.functions) - 1 else "├"
            own = share(one.seconds * self.own_seconds / total, seconds) if total else ""
            each = self.workers and share(one.seconds * self.worker_seconds / total / self.workers, seconds)
            rows.append((f"{mark} {one.name}", *[""] * 5, own, f"at {each}" if each else "", *[""] * 5))
        return rows

    def row(self, seconds: float) -> Row:
        """Return the step as a row of a table, when the pipeline has run for so many seconds."""
        workers = (
            f"{self.workers} at {share(self.worker_seconds / self.workers, seconds) or '0%'}"
            if self.worker_seconds
            else ""
        )
        queue = "" if self.queued is None else f"{self.queued:,}"
        return (
            f"{self.step}: {self.excluded:,} left out" if self.excluded else self.step,
            f"{self.items:,}",
            f"{self.failed:,}" if self.failed else "",
            f"{self.retries:,}" if self.retries else "",
            memory(self.read_bytes) if self.read_bytes else "",
            memory(self.bytes) if self.bytes else "",
            share(self.own_seconds, seconds),
            workers,
            share(self.input_seconds, seconds) if self.inputs else "",
            share(self.room_seconds, seconds),
            queue if self.queue_size is None else f"{queue} of {self.queue_size:,}",
            time_of(self.p50),
            time_of(self.p99),
        )


MOST_SOURCES: Final = 20
"""Datasets of a mixture that a table shows."""

EMPTY: Final = StepStatistics(
    "", 0, 0, 0, 0, 0, 0.0, 0.0, 0, 0.0, 0.0, 0.0, None, None, None, None, "", "", 0.0, {}, ()
)


class EngineStatistics(NamedTuple):
    """All steps, sources first; how many seconds the pipeline has run, and how much its buffers hold."""

    steps: tuple[StepStatistics, ...] = ()
    seconds: float = 0.0
    held_bytes: int = 0
    budget_bytes: int = 0
    thread_seconds: float = 0.0
    """How long the thread that runs it has computed; 0 if that thread also runs other code."""
    queued_seconds: float = 0.0
    """How long that thread was ready to run but had no core, because other programs used the cores."""
    process_seconds: float = 0.0
    """How long all threads of its process have computed."""
    idle_cores: float | None = None
    """How many of the cores that it may use were idle on average; `None` if that is unknown."""


@dataclass(frozen=True)
class Statistics:
    """Statistics of an iterator so far. `print` and notebooks show a table; `to_dict` is for programs.

    >>> import asyncdata as ad
    >>> with ad.Dataset.range(100).batch(10).iterate() as batches:
    ...     _ = list(batches)
    ...     stats = batches.stats()
    >>> [(step.step, step.items) for step in stats.steps]
    [('range(100)', 100), ('batch(10)', 10), ('prefetch(AUTOTUNE)', 10)]
    >>> stats.elements, stats.samples, stats.batched
    (10, 100, 10.0)
    >>> 0 <= stats.waiting <= 1, stats.sample_pace > stats.pace > 0, stats.running
    (True, True, False)
    >>> stats.dropped, [choice["step"] for choice in stats.tuned]
    ((), ['prefetch(AUTOTUNE)'])
    >>> print(stats.summary)
    10 elements in ...: ... a second, ... samples a second; the first after ..., then the consumer waited ...
    """

    steps: tuple[StepStatistics, ...]
    """The steps, sources first."""
    placement: str
    """Where the pipeline runs: `Options.placement`."""
    elements: int
    """How many elements the consumer got."""
    seconds: float
    """Seconds since the consumer asked for the first element, until the end of the data, or now."""
    first_seconds: float
    """Seconds until the first element was there."""
    waiting_seconds: float
    """How long the consumer waited for elements, including the first one."""
    engine_seconds: float
    """How long the pipeline has run: shares of steps are of this."""
    held_bytes: int
    """How many bytes self-tuning buffers may hold now, together, by the size of their elements."""
    budget_bytes: int
    """How many bytes they may hold at most: `Options.ram_budget`."""
    thread_seconds: float
    """How long the thread that runs the pipeline has computed; 0 if that thread also runs other code."""
    queued_seconds: float
    """How long that thread was ready to run but had no core, because other programs used them; 0 if unknown."""
    process_seconds: float
    """How long all threads of the process that runs the pipeline have computed, including yours."""
    idle_cores: float | None
    """How many of the cores that the process may use were idle on average; `None` if that is unknown."""
    state: str
    """`"not begun"`, `"running"`, `"ended"` with the data, `"failed"`, or `"closed"` before the end."""
    waits_seconds: float
    """How long the consumer has been waiting for the element that it asked for last; 0 if it is there."""
    errors: tuple[str, ...]
    """The texts of the last exceptions that the consumer got (at most 20), with the step and the element of each."""
    cardinality: int = UNKNOWN_CARDINALITY
    """How many elements this iterator gives in all, counted as `elements` are; negative if that is unknown or
    infinite."""
    skipped: int = 0
    """How many elements `skip_steps` left out; `elements` has them not."""
    epoch: int = 0
    """The number of this epoch of the dataset, from 0."""

    @property
    def dropped(self) -> tuple[str, ...]:
        """The texts of the last exceptions that `ignore_errors` dropped, which the consumer did not get."""
        return tuple([text for step in self.steps for text in step.dropped])

    @property
    def pace(self) -> float:
        """How many elements the consumer got in a second."""
        return self.elements / self.seconds if self.seconds else 0.0

    @property
    def samples(self) -> int:
        """About how many samples are in the elements that the consumer got: the members of its batches."""
        return round(self.elements * self.batched)

    @property
    def sample_pace(self) -> float:
        """About how many samples the consumer got in a second."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def batched(self) -> float:
        """About how many samples are in an element, 1 without batches."""
        place, size = len(self.steps) - 1, 1.0
        while place >= 0:
            step = self.steps[place]
            size *= step.batched
            place = step.inputs[0] if len(step.inputs) == 1 and step.kind != "merge" else -1
        return size

    @property
    def waiting(self) -> float:
        """The share of its time that the consumer waited, from 0 to 1, without the wait for the first element."""
        seconds = self.seconds - self.first_seconds
        return min(1.0, max(0.0, self.waiting_seconds - self.first_seconds) / seconds) if seconds > 0 else 0.0

    @property
    def running(self) -> bool:
        """Whether more elements may come: it has begun, and has not ended, failed or been closed."""
        return self.state == "running"

    @property
    def tuned(self) -> list[dict[str, Any]]:
        """The choices of AUTOTUNE, a dict for each step that it tunes: see `DatasetIterator.stats`."""
        return [{"step": step.step, **step.tuned} for step in self.steps if step.tuned]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as dicts, lists, strings and numbers that JSON can hold.

        >>> import asyncdata as ad
        >>> numbers = iter(ad.Dataset.range(3))
        >>> _ = list(numbers)
        >>> found = numbers.stats().to_dict()
        >>> found["elements"], found["steps"][0]["step"]
        (3, 'range(3)')
        """
        steps = [
            {
                **step._asdict(),
                "inputs": list(step.inputs),
                "functions": [one._asdict() for one in step.functions],
                "dropped": list(step.dropped),
            }
            for step in self.steps
        ]
        derived = {
            "pace": self.pace,
            "samples": self.samples,
            "sample_pace": self.sample_pace,
            "waiting": self.waiting,
            "errors": [*self.errors],
        }
        return {**vars(self), **derived, "steps": steps}

    @property
    def summary(self) -> str:
        """The statistics of the pipeline in one sentence."""
        if not self.seconds:
            return "not begun"
        pace = f"{decimal(self.pace)} a second"
        if self.batched > 1:
            pace += f", {decimal(self.sample_pace)} samples a second"
        return (
            f"{self.elements:,} elements in {time_of(self.seconds)}: {pace}; "
            f"{f'{self.skipped:,} more left out by skip_steps; ' if self.skipped else ''}"
            f"the first after {time_of(self.first_seconds)}, then the consumer waited {self.waiting:.0%} of the time; "
            f"buffers have {memory(self.held_bytes)} of {memory(self.budget_bytes)}"
        )

    @property
    def rows(self) -> list[Row]:
        """The steps as rows of a table, with the headings first."""
        seconds = self.engine_seconds
        return [HEADINGS, *[row for step in self.steps for row in (step.row(seconds), *step.function_rows(seconds))]]

    @property
    def source_rows(self) -> list[Row]:
        """What each dataset of a mixture has given, as rows of a table with the headings first, those that gave most
        before others; empty without a mixture."""
        found = [(name, given) for step in self.steps for name, given in step.sources.items()]
        found.sort(key=lambda one: -one[1]["elements"])
        keys = [key for key in ("elements", "cost", "epoch") if any(key in given for _, given in found)]
        totals = {key: sum([given.get(key, 0) for _, given in found]) for key in keys}

        def cell(key: str, given: Mapping[str, float]) -> str:
            number = f"{given[key]:,.{0 if given[key] == int(given[key]) else 1}f}" if key in given else ""
            return f"{number}, {given[key] / (totals[key] or 1):.1%}" if key in given and key != "epoch" else number

        rows: list[Row] = [("dataset", *keys)] if found else []
        rows += [(name, *[cell(key, given) for key in keys]) for name, given in found[:MOST_SOURCES]]
        if len(found) > MOST_SOURCES:
            rows.append((f"{len(found) - MOST_SOURCES:,} others", *[""] * len(keys)))
        return rows

    @property
    def tuned_rows(self) -> list[Row]:
        """AUTOTUNE's choices and why, as rows of a table with the headings first; empty without any."""
        head: list[Row] = [("step", "choice", "why")] if self.tuned else []
        return head + [(one["step"], chosen_in_words(one), str(one.get("why", ""))) for one in self.tuned]

    @property
    def tables(self) -> list[list[Row]]:
        """The rows of all tables that are not empty."""
        return [*filter(None, [self.rows, self.source_rows])]

    def __str__(self) -> str:
        return "\n\n".join([self.summary, *map(text_table, self.tables)])

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.summary)}</p>{''.join(map(html_table, self.tables))}"


def chosen_in_words(choice: Mapping[str, Any]) -> str:
    """Return what AUTOTUNE chose for a step in words."""
    words: list[str] = []
    if (where := choice.get("where")) == "inline":
        words.append("on the pipeline's thread")
    elif where is not None:
        words.append(in_number(choice["workers"], where))
    elif "workers" in choice:
        words.append(f"{in_number(choice['workers'], 'input')} at once")
    if choice.get("group", 1) > 1:
        words.append(f"each {choice['group']} elements at a time")
    if "buffer" in choice:
        words.append(f"{in_number(choice['buffer'], 'element')} ahead")
    if choice.get("bytes"):
        words.append(memory(choice["bytes"]))
    if "inner" in choice:
        words.append(f"functions of its datasets: {chosen_in_words(choice['inner'])}")
    return ", ".join(words)


def decimal(pace: float) -> str:
    """Return a pace with as many digits as one reads."""
    return f"{pace:,.{0 if pace >= 100 else 1}f}"


def statistics_of(
    engine: EngineStatistics,
    times: ConsumerTimes,
    placement: str,
    elements: int,
    state: str,
    cardinality: int = UNKNOWN_CARDINALITY,
) -> Statistics:
    """Return the statistics of an engine and its consumer."""
    waits = times.waits if state == "running" else 0.0
    return Statistics(
        steps=engine.steps,
        placement=placement,
        elements=elements,
        seconds=times.seconds,
        first_seconds=times.first,
        waiting_seconds=times.waited + waits,
        engine_seconds=engine.seconds,
        held_bytes=engine.held_bytes,
        budget_bytes=engine.budget_bytes,
        thread_seconds=engine.thread_seconds,
        queued_seconds=engine.queued_seconds,
        process_seconds=engine.process_seconds,
        idle_cores=engine.idle_cores,
        state=state,
        waits_seconds=waits,
        errors=(*times.errors,),
        cardinality=cardinality,
    )


def counted(step: StepStatistics) -> str:
    """Return how many workers a step has, in words."""
    return in_number(step.workers, {"thread": "thread", "task": "task", "process": "process"}.get(step.where, "worker"))


def in_number(count: int, what: str) -> str:
    """Return a number of things, in words."""
    return f"{count:,} {what}{'' if count == 1 else 'es' if what == 'process' else 's'}"
