"""The step that limits a pipeline, found from its statistics, and what to change.

Reasons and measurements: docs/design.md, "Statistics".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from html import escape
from math import ceil
from typing import Final

from asyncdata.statistics.statistics import Statistics, StepStatistics, counted
from asyncdata.statistics.table import memory, time_of
from asyncdata.system.host_resources import lock_is_held, usable_cores

__all__ = ("Bottleneck", "Load", "bottleneck_of")

ENOUGH: Final = 0.05
"""The share of its time that a consumer may wait before the input counts as the limit."""

IDLE: Final = 0.6
"""The load below which no resource is the limit: then steps wait for each other."""

COMPUTES: Final = 0.1
"""The smallest share of its time that a computing function computes, even on a busy machine."""

MERGES: Final = 0.3
"""The same where the step merges datasets whose functions compute or wait, as that computes too."""

MOST_CALLS: Final = 64
CHEAP: Final = 50e-6
HANDED: Final = 200e-6
GROUP: Final = 16e-3
ELEMENT: Final = 2e-6
BYTE: Final = 2e-10
"""Processor seconds to send a group of elements to a worker process and to receive its results (`HANDED`), seconds of
work in a group (`GROUP`), and seconds for each element (`ELEMENT`) and byte (`BYTE`) that is sent in either
direction."""
FILL: Final = 0.5


STREAMS: Final = tuple(
    f"from_{name}(" for name in ("channel", "http_stream", "websocket", "redis_stream", "nats", "kafka")
)
"""Steps that give what others send, as it comes."""

OF_FUNCTIONS: Final = frozenset({"thread", "workers", "lock"})
"""The resources that functions use."""


@dataclass(frozen=True)
class Load:
    """How busy a resource of a step is, as a share of the time; 1 is the most.

    >>> import asyncdata as ad
    >>> with ad.Dataset.range(100).map(abs).iterate() as numbers:
    ...     _ = list(numbers)
    ...     loads = numbers.bottleneck().loads
    >>> loads[0].load >= loads[-1].load, "consumer" in [load.resource for load in loads]
    (True, True)
    """

    step: str
    resource: str
    """`"thread"` (of the pipeline), `"workers"`, `"lock"` (of the interpreter), `"waiting"`, `"device"`, `"buffer"`,
    `"fill"`, `"sender"` (who sends to a channel, queue or stream), `"consumer"` (the reader), or `"nothing"` if too
    little was read to tell."""
    load: float


@dataclass(frozen=True)
class Bottleneck:
    """What limits a pipeline. `str` of it is a sentence.

    >>> import time
    >>> import asyncdata as ad
    >>> def fetch(x):
    ...     time.sleep(0.002)
    ...     return x
    >>> with ad.Dataset.range(100).map(fetch, num_parallel_calls=2).iterate() as elements:
    ...     _ = list(elements)
    ...     found = elements.bottleneck()
    >>> found.step, found.resource, found.gain > 2
    ('map(fetch, num_parallel_calls=2)', 'workers', True)
    """

    step: str
    """The step as `Dataset.explain` shows it; `"consumer"` if the input is fast enough."""
    resource: str
    """The resource of the step that is the limit: see `Load.resource`."""
    load: float
    """How busy the resource is, as a share of the time."""
    gain: float
    """How many times as fast the pipeline would be with the change, predicted from the other loads; 1 if unknown."""
    evidence: str
    """What was measured."""
    change: str
    """What to change."""
    loads: tuple[Load, ...]
    """All loads that were compared, the busiest first."""
    function: str = ""
    """The function that takes most of the time, if the step calls several in one pass, for example `"map(decode)"`."""

    def __str__(self) -> str:
        gain = f" would give about {self.gain:.1f} times the pace" if self.gain >= 1.05 else ""
        return f"{self.evidence}: {self.change}{gain}."

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self))}</p>"


def bottleneck_of(stats: Statistics) -> Bottleneck:
    """Return what limits a pipeline with these statistics."""
    analysis = LoadAnalysis(stats)
    if (found := analysis.nothing() or analysis.filling() or analysis.only_one()) is not None:
        return found
    if stats.waiting < ENOUGH:
        evidence = f"the input is not the problem: its reader waits {stats.waiting:.0%} of the time"
        change = "make the step that reads it faster, or do more in the pipeline"
        return analysis.bottleneck(analysis.consumer, evidence, change)
    busiest = analysis.loads[0]
    if busiest.load < IDLE:
        return analysis.uneven(busiest)
    return analysis.advise(busiest)


class LoadAnalysis:
    """Compares the loads of all resources that the steps use."""

    def __init__(self, stats: Statistics) -> None:
        self.stats = stats
        self.seconds = stats.engine_seconds or 1.0
        self.by_label = {step.step: step for step in stats.steps}
        self.consumer = Load("consumer", "consumer", 1 - stats.waiting)
        loads = [self.thread(), *self.workers(), *self.waiting()]
        self.loads = tuple(sorted(loads, key=lambda one: -one.load))

    # loads

    def thread(self) -> Load:
        """Return the load of the thread that runs the pipeline, with the step that takes most of it."""
        own = {step.step: step.own_seconds for step in self.stats.steps}
        known = sum(own.values())
        total = max(known, self.stats.thread_seconds)
        step = max(own, key=lambda name: own[name])
        parallel = [one for one in self.stats.steps if one.kind == "function" and one.where in {"thread", "task"}]
        handed = [one for one in parallel if one.p50 and one.p50 < CHEAP]
        if handed and total - known > own[step]:
            step = min(handed, key=lambda one: one.p50 or 0.0).step
        return Load(step, "thread", min(1.0, total / self.seconds))

    def workers(self) -> list[Load]:
        """Return the loads of the workers of steps; threads that together compute on one core share the lock."""
        found: list[Load] = []
        threads = [step for step in self.stats.steps if step.where == "thread"]
        locked = (self.stats.thread_seconds + sum([step.cpu_seconds for step in threads])) / self.seconds
        for step in self.stats.steps:
            if not step.workers or not step.worker_seconds:
                continue
            load = step.worker_seconds / step.workers / self.seconds
            holds = (
                lock_is_held() and step.where == "thread" and self.computes(step) and step.workers > 1 and locked < 1.25
            )
            load = load * step.workers if holds else load  # only one of them runs at a time
            device = step.kind == "device"
            found.append(Load(step.step, "device" if device else "lock" if holds else "workers", min(1.0, load)))
        return found

    def computes(self, step: StepStatistics) -> bool:
        """Return whether the functions of a step compute. Threads that take turns each do so part of the time."""
        if step.where == "inline":
            had_a_core = max(0.0, step.own_seconds - self.stats.queued_seconds)
            least = COMPUTES if step.kind == "function" else MERGES
            return not 0 < self.stats.thread_seconds < least * had_a_core
        unknown = step.where == "process" and not step.cpu_seconds
        return unknown or step.cpu_seconds > min(COMPUTES * step.worker_seconds, self.seconds / 2)

    def waiting(self) -> list[Load]:
        """Return the shares of the time in which steps without workers waited for something outside the pipeline."""
        found: list[Load] = []
        for step in self.stats.steps:
            if step.queued is None and not step.workers:
                idle = step.output_seconds - step.own_seconds - step.input_seconds
                resource = "sender" if step.step.startswith(STREAMS) else "waiting"
                found.append(Load(step.step, resource, min(1.0, max(0.0, idle / self.seconds))))
        return found

    # changes

    def bottleneck(self, limit: Load, evidence: str, change: str, most: float = 1.0) -> Bottleneck:
        """Return the bottleneck; the change makes it at most `most` times as fast, until another load is the limit."""
        others = [one.load for one in self.loads if one.step != limit.step or one.resource != limit.resource]
        next_one = max([*others, self.consumer.load, 1e-3])
        gain = max(1.0, min(most, limit.load / next_one))
        loads = tuple(sorted([*self.loads, self.consumer], key=lambda one: -one.load))
        step = self.by_label.get(limit.step)
        slowest = None if step is None or limit.resource not in OF_FUNCTIONS else step.slowest
        if step is None or slowest is None:
            return Bottleneck(limit.step, limit.resource, limit.load, gain, evidence, change, loads)
        evidence += f" ({step.function_share(slowest):.0%} of that in {slowest.name})"
        return Bottleneck(limit.step, limit.resource, limit.load, gain, evidence, change, loads, slowest.name)

    def unknown(self, evidence: str, change: str) -> Bottleneck:
        """Return that too little was read to tell."""
        return self.bottleneck(Load("", "nothing", 0.0), evidence, change)

    def nothing(self) -> Bottleneck | None:
        """Return that nothing was read, if so."""
        if self.stats.elements and self.stats.engine_seconds:
            return None
        if self.stats.state == "ended":
            return self.unknown("nothing was read", "there are no elements")
        return self.unknown("nothing was read yet", "read some elements first")

    def only_one(self) -> Bottleneck | None:
        """Return that a single element was read, if so: the wait for the first one counts as the start."""
        if self.stats.elements > 1 or self.stats.state == "ended":
            return None
        came = f"only one element was read, which came after {time_of(self.stats.first_seconds)}"
        return self.unknown(came, "read more elements first")

    def filling(self) -> Bottleneck | None:
        """Return the bottleneck if a shuffle took most of the time so far to fill its buffer.

        The first element may be late for other reasons, such as modules that are imported in the first run.
        """
        stats = self.stats
        shuffles = [step for step in stats.steps if step.step.startswith("shuffle(")]
        slowest = max(shuffles, key=lambda one: one.input_seconds, default=None)
        if slowest is None:
            return None
        filled = min(stats.first_seconds, slowest.input_seconds + slowest.own_seconds)
        if filled < FILL * stats.seconds or not stats.seconds:
            return None
        step, share = slowest.step, filled / stats.seconds
        evidence = f"{step} took {share:.0%} of the time to fill its buffer before the first element"
        change = (
            "a smaller buffer_size, or shuffle(EVERYTHING) of file names or indices before they are read, begins sooner"
        )
        return self.bottleneck(Load(step, "fill", share), evidence, change)

    def uneven(self, busiest: Load) -> Bottleneck:
        """Return the bottleneck if no resource is busy all of the time, but the reader waits."""
        last, stats = self.stats.steps[-1], self.stats
        wait = (
            f"the reader waits {stats.waiting:.0%} of the time, though nothing is busy for more than {busiest.load:.0%}"
        )
        if stats.first_seconds > FILL * stats.seconds:
            begun = f"the first element came after {time_of(stats.first_seconds)} of {time_of(stats.seconds)}"
            start = "the start of the pipeline: imports of a first run, threads, processes"
            return self.unknown(begun, f"read more elements first, as most of this was {start}")
        if last.kind not in {"buffer", "device"}:
            change = "nothing is read ahead while the reader works: prefetch(AUTOTUNE) as the last step"
            gain = 1 / max(busiest.load, self.consumer.load)
            return replace(self.bottleneck(Load(last.step, "buffer", stats.waiting), wait, change), gain=gain)
        full = [step for step in stats.steps if step.kind == "buffer" and step.room_seconds > ENOUGH * self.seconds]
        if buffers := [step for step in full if not step.tuned]:
            step = min(buffers, key=lambda one: one.queue_size or 0)
            change = f"the buffer of {step.step} is sometimes full and sometimes empty: prefetch(AUTOTUNE) in its place"
            return self.bottleneck(Load(step.step, "buffer", stats.waiting), wait, change)
        for step in stats.steps:
            if (
                step.kind == "function"
                and step.where == "process"
                and (step.p50 or 1.0) < CHEAP
                and stats.process_seconds > step.worker_seconds
            ):
                sending = f"sending elements to {counted(step)} takes longer than {step.step} itself"
                load = next((one for one in self.loads if one.step == step.step), busiest)
                return self.bottleneck(load, sending, "leave executor out, or map(batch=) a function of many elements")
        return self.advise(busiest)

    def advise(self, limit: Load) -> Bottleneck:
        """Return the bottleneck with the change for a busy resource."""
        step = self.by_label[limit.step]
        if limit.resource == "thread":
            return self.advise_thread(limit, step)
        if limit.resource in {"waiting", "sender"}:
            return self.advise_waiting(limit, step)
        if limit.resource == "device":
            decodes = "decode_on_device" in step.step
            evidence = f"{step.step} {'decodes and copies' if decodes else 'copies'} {limit.load:.0%} of the time"
            change = "smaller elements (uint8 instead of float32, converted on the device)"
            if decodes:
                change = "smaller pictures, or map(decode_image, num_parallel_calls=AUTOTUNE) on the host"
            return self.bottleneck(limit, evidence, change)
        return self.advise_workers(limit, step)

    def advise_workers(self, limit: Load, step: StepStatistics) -> Bottleneck:
        """Return the change if the workers of a step are always busy."""
        share = step.worker_seconds / max(1, step.workers) / self.seconds
        busy = f"{step.step} keeps {counted(step)} busy {min(1.0, share):.0%} of the time"
        if limit.resource == "lock":
            return self.advise_processes(limit, step, f"{busy} and holds the interpreter lock")
        if step.retries > ENOUGH * step.items:
            busy = f"{busy}, with {step.retries:,} repeated calls or requests"
        if not self.computes(step):
            return self.advise_calls(limit, step, f"{busy}, waiting")
        if step.workers >= usable_cores():
            full = "no core is free for more: " if limit.load >= IDLE else ""
            return self.bottleneck(limit, busy, f"{full}less work per element, or a cache of the results")
        change = f"num_parallel_calls={usable_cores()}{inside(step)}"
        return self.advise_cores(limit, step, busy, change, usable_cores())

    def advise_calls(self, limit: Load, step: StepStatistics, evidence: str) -> Bottleneck:
        """Advise to make more calls of a waiting function at once."""
        now, computes = max(1, step.workers), self.stats.thread_seconds if limit.resource == "thread" else 0.0
        most = self.seconds / computes if computes else float("inf")  # what computes there does so still
        gain = self.bottleneck(limit, evidence, "", min(most, max(MOST_CALLS, now) / now)).gain
        calls = min(max(MOST_CALLS, now), ceil(now * gain * 1.2))
        each = ceil(calls / step.open_datasets)  # of the datasets that are open, if there are several
        most = min(most, each * step.open_datasets / now)
        change = f"num_parallel_calls={each}{inside(step)}"
        if step.where == "process":
            change += " without executor='process', as threads wait as well"
        return self.bottleneck(limit, evidence, change, most)

    def advise_processes(self, limit: Load, step: StepStatistics, evidence: str) -> Bottleneck:
        """Advise to make calls in processes."""
        if not lock_is_held():
            change = f"num_parallel_calls={usable_cores()}{inside(step)}"
            return self.advise_cores(limit, step, evidence, change, usable_cores())
        items, cost = max(1, step.items), self.cost(step)
        inputs = sum([self.stats.steps[place].bytes for place in step.inputs])
        handed = min(1.0, cost / GROUP) * HANDED + ELEMENT + BYTE * (inputs + step.bytes) / items
        if usable_cores() * self.seconds < items * (cost + handed):
            change = f"map(batch=) a function of many elements{inside(step)}, as sending each to a process takes longer"
            return self.bottleneck(limit, evidence, change)
        change = f"executor='process'{inside(step)}"
        if step.step.startswith("filter("):  # which has no executor
            change = "a map(executor='process') before it that computes what it decides by"
        calls = usable_cores() if step.inner else step.workers or usable_cores()  # one pool for all its datasets
        return self.advise_cores(limit, step, evidence, change, calls, handed)

    def advise_cores(
        self, limit: Load, step: StepStatistics, evidence: str, change: str, calls: int, handed: float = 0.0
    ) -> Bottleneck:
        """Advise to compute more at once, in so many calls, if there are cores for them.

        The rest of this process still computes for each element, and sending an element takes `handed` seconds more.
        """
        items, cost, total = max(1, step.items), self.cost(step), usable_cores()
        away = step.cpu_seconds if step.where == "process" else 0.0
        rest = max(0.0, (self.stats.process_seconds + away) / items - cost)
        idle = self.stats.idle_cores
        cores = total if idle is None else min(total, (self.stats.process_seconds + away) / self.seconds + idle)
        pace = min(calls / cost, cores / (cost + rest + handed)) if cost else float("inf")
        found = self.bottleneck(limit, evidence, change, min(pace * self.seconds / items, total))
        if found.gain < 1.05 and cores < 0.9 * total:
            left = f"{change}, when cores are free: other programs left {cores:.1f} of {total}"
            return replace(found, change=left)
        return found

    def cost(self, step: StepStatistics) -> float:
        """Return for about how many seconds the functions of a step compute per element."""
        own = step.own_seconds - self.stats.queued_seconds if step.where == "inline" else 0.0
        return max(step.cpu_seconds, own) / max(1, step.items)

    def advise_thread(self, limit: Load, step: StepStatistics) -> Bottleneck:
        """Return the change if the thread that runs the pipeline is always busy."""
        share = step.own_seconds / self.seconds
        cheap = step.kind == "function" and step.p50 is not None and step.p50 < CHEAP
        if cheap and step.where in {"thread", "task"} and share < limit.load / 2:
            handing = f"passing elements to {counted(step)} takes longer than {step.step} itself"
            evidence = f"{handing}, {limit.load:.0%} of the time"
            return self.bottleneck(limit, evidence, fewer_handed(step))
        mostly = f", mostly in {step.inner} of its datasets" if step.inner else ""
        evidence = f"{step.step} takes {share:.0%} of the time of the thread that runs the pipeline{mostly}"
        calls = step.kind == "function" or step.where == "inline"
        if calls and not self.computes(step):
            return self.advise_calls(limit, step, f"{evidence}, waiting")
        if calls:
            return self.advise_processes(limit, step, evidence)
        elsewhere = ", or Options(placement='process'), where it does not take turns with its reader"
        return self.bottleneck(
            limit, evidence, f"less work in {step.step}{'' if self.stats.placement == 'process' else elsewhere}"
        )

    def advise_waiting(self, limit: Load, step: StepStatistics) -> Bottleneck:
        """Return the change if a source waits, or a step that merges sources."""
        evidence = f"the pipeline waits for {step.step} {limit.load:.0%} of the time, in which it does not compute"
        if step.read_bytes:
            evidence += f"; it reads {memory(int(step.read_bytes / self.seconds))} a second"
        if step.retries:
            evidence += f"; {step.retries:,} of its requests failed and were repeated"
        if step.step.startswith("rate_limit("):
            return self.bottleneck(limit, evidence, "that is the rate that you set; a higher per_second", float("inf"))
        if limit.resource == "sender":
            return self.bottleneck(limit, evidence, "who sends to it, or the connection, is the limit")
        if step.kind == "source":
            change = "read several at once: num_parallel_reads=, or interleave(..., num_parallel_calls=AUTOTUNE)"
        else:
            wider = "a larger cycle_length with num_parallel_calls=AUTOTUNE"
            change = f"read more of its inputs at once: {wider}, and files of similar size"
        return self.bottleneck(limit, evidence, change, float(MOST_CALLS))


def fewer_handed(step: StepStatistics) -> str:
    """Return what to change where handing elements to workers takes longer than what these do."""
    if step.step.startswith("from_source("):
        whole = "from_tensor_slices(array[:]) if the array fits into memory"
        return f"leave num_parallel_calls out, or {whole}" if "num_parallel_calls=" in step.step else whole
    many = "map(batch=) a function of many elements"
    return f"leave num_parallel_calls out, or {many}" if "num_parallel_calls=" in step.step else many


def inside(step: StepStatistics) -> str:
    """Return which step's argument is meant, if that is a step of the datasets that `step` makes."""
    return f" in {step.inner} of its datasets" if step.inner else ""
