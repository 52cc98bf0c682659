"""Meters count the work and the times of each step of a running pipeline, per block, for its statistics.

`engines/stats.py` makes the numbers of `stats()`, of metrics and of the dashboard from them.

Reasons and measurements: docs/design.md, "Statistics".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing
from math import frexp
from typing import Any, Final, Protocol, TypeAlias
from weakref import ref

from asyncdata.runtime.block import Block, Blocks, Failure, is_left_out
from asyncdata.runtime.queue import BlockQueue
from asyncdata.runtime.spans import RECORDERS, record
from asyncdata.system.host_resources import IDLE_TIME, idle_cores
from asyncdata.system.thread_usage import queued

__all__ = ("COST_BINS", "Meter", "Meters", "ThreadClock", "metered", "seconds_of_bin")

COST_BINS: Final = 256

LOOK: Final = 2e-6
SHARE: Final = 100
MOST_UNSEEN: Final = 255
MOST_CREDIT: Final = 0.1
"""Measuring a pull costs about `LOOK` seconds, and at most one part in `SHARE` of the time is spent on it. At least one
of `MOST_UNSEEN` pulls is measured. At most `MOST_CREDIT` seconds are saved for later pulls."""

SHORT: Final = 0.1
"""A run of fewer seconds is not asked how long its thread had no core: to ask takes 0.03 ms."""


def cost_bin(seconds: float) -> int:
    """Return the histogram bin of an element's time: four bins for each factor of two."""
    square = seconds * seconds
    return frexp(square * square)[1]


def seconds_of_bin(place: int) -> float:
    """Return the approximate time of an element in a histogram bin."""
    exponent = place if place < COST_BINS // 2 else place - COST_BINS
    return 2.0 ** ((exponent - 0.5) / 4)


def nothing() -> None:
    """Return None."""


MixtureCounts: TypeAlias = tuple[Sequence[str], Sequence[int], Sequence[float], Mapping[int, Callable[[], int | None]]]


class Window(Protocol):
    """Elements in flight."""

    held: int
    """How many there are."""


class Finished(Protocol):
    """A group of elements that a worker has finished."""

    result: Block
    count: int
    """How many elements it was given and has processed."""
    seconds: float
    cpu: float
    """The CPU seconds of its thread; 0 if unknown."""
    away: float
    """Those of another process that worked on it; 0 if unknown."""
    inline: bool
    """Whether it ran in the engine's thread."""
    ended: float
    """When it was done, in seconds of `time.perf_counter`; 0 if unknown."""
    lane: int
    """The thread, task or process that worked on it."""
    retries: int
    """How many of its calls were retried, if another process counts them."""
    functions: dict[Any, float] | None
    """The seconds of each of several functions, if another process measured them."""


class ThreadClock:
    """The time of the thread that runs the stages of a pipeline, and how much of it was spent in steps."""

    __slots__ = (
        "accounted",
        "before",
        "begun",
        "computed",
        "ended",
        "idle",
        "looking",
        "native",
        "now",
        "process",
        "queued",
        "thread",
    )

    def __init__(self) -> None:
        self.now: Callable[[], float] = time.perf_counter
        self.accounted = 0.0
        self.looking = 0
        """How many pulls are being measured, so that those within them are measured too."""
        self.begun = self.ended = 0.0
        self.thread = self.native = 0
        """The thread's identifier and its native one, while it runs, if only this pipeline uses it."""
        self.computed = self.queued = 0.0
        self.before = self.process = 0.0
        """The process's CPU seconds at the beginning; after the end, the CPU seconds since."""
        self.idle: tuple[tuple[float, float | None], ...] = ()
        """The idle time of the machine's cores at the beginning and at the end."""

    def set_dedicated(self) -> None:
        """Record that only this pipeline uses the current thread."""
        self.thread, self.native = threading.get_ident(), threading.get_native_id()

    def begin(self, now: Callable[[], float] = time.perf_counter) -> None:
        """Start, with a clock in seconds."""
        self.now = now
        self.before, self.idle = time.process_time(), (IDLE_TIME.recent(),)
        self.begun = now()

    def end(self) -> None:
        """Stop."""
        self.process, self.idle = self.process_seconds, (*self.idle, IDLE_TIME.recent())
        self.ended = self.now()
        if self.thread:
            self.queued = queued() if self.ended - self.begun > SHORT else 0.0
            self.computed, self.thread = time.thread_time(), 0

    @property
    def process_seconds(self) -> float:
        """The CPU seconds of all threads of this process since the beginning."""
        return self.process if self.ended or not self.begun else time.process_time() - self.before

    @property
    def idle_cores(self) -> float | None:
        """How many cores of the machine have been idle since; `None` if unknown."""
        return idle_cores(self.idle[0], self.idle[1] if self.ended else IDLE_TIME.recent()) if self.idle else None

    @property
    def thread_seconds(self) -> float:
        """The CPU seconds of the thread; 0 if others use it too, or the system does not report them."""
        thread = self.thread
        if not thread or not hasattr(time, "pthread_getcpuclockid"):
            return self.computed
        return time.clock_gettime(time.pthread_getcpuclockid(thread))

    @property
    def queued_seconds(self) -> float:
        """The seconds that the thread waited for a core; 0 where `thread_seconds` is unknown."""
        return queued(self.native) if self.thread else self.queued

    @property
    def seconds(self) -> float:
        """The seconds that the pipeline has run."""
        return (self.ended or self.now()) - self.begun if self.begun else 0.0


class Meter:
    """The work and times of one step. One thread writes it, any thread may read it."""

    __slots__ = (
        "clock",
        "computed",
        "costs",
        "dropped",
        "each",
        "excluded",
        "failed",
        "full",
        "function_seconds",
        "functions",
        "inside",
        "items",
        "own",
        "pulled",
        "queue",
        "read",
        "retried",
        "shared",
        "since",
        "sources",
        "step",
        "weigh",
        "window",
        "worked",
        "workers",
    )

    def __init__(self, clock: ThreadClock, inside: Meter | None = None, step: object = "") -> None:
        self.clock = clock
        self.step = step
        """The step that is measured."""
        self.inside = inside
        """The meter of pipelines inside the step: their work counts for the step, their elements do not."""
        self.items = self.failed = self.excluded = 0
        self.dropped: tuple[str, ...] = ()
        """The texts of the last exceptions that it dropped."""
        self.own = 0.0
        """Seconds in the engine's thread, without those of the input."""
        self.pulled: float | None = None
        """Seconds that its reader has waited for it; `None` if these equal its own and its input's seconds."""
        self.worked = 0.0
        """Seconds in the step's threads, tasks and processes together."""
        self.computed = 0.0
        """How many of them are CPU seconds of threads."""
        self.workers = 0
        """The number of these threads, tasks and processes."""
        self.full = 0.0
        """Seconds that it was blocked because its reader did not take its output."""
        self.since = 0.0
        """Its own seconds that no block includes yet."""
        self.costs = [0] * COST_BINS
        self.each = 0.0
        """The approximate size of an element in bytes: the mean of samples, taken ever more rarely."""
        self.weigh = 0
        """The number of elements at which the next one is measured."""
        self.read = 0
        """How many bytes of files it has read."""
        self.retried: list[None] = [] if inside is None else inside.retried
        """One entry for each retried call or request."""
        self.functions: dict[str, str] = {}
        """Of pipelines inside a step: where their functions are called, and the first step that does so."""
        self.shared: dict[object, Any] = {}
        """Of pipelines inside a step: what all of them share of a function for which AUTOTUNE chooses."""
        self.function_seconds: dict[Any, float] = {}
        """The seconds of each function, by its place and name, where several are called in one pass: as shares, since
        only some passes are measured."""
        self.sources: MixtureCounts = ((), (), (), {})
        """Of a mixture: the names of its datasets, how many elements each has given, what these cost, and functions
        that return in which repetition some of them are."""
        self.queue: Callable[[], BlockQueue | None] = nothing
        self.window: Callable[[], Window | None] = nothing

    @property
    def within(self) -> Meter:
        """Return the meter of pipelines inside the step."""
        return self.inside or self

    def record(self, block: Block, items: int, seconds: float, count: int) -> None:
        """Record a block of `items` items that the engine's thread made of `count` elements, if of any.

        All in one function for speed, as a block may be a single element.
        """
        self.own += seconds
        self.clock.accounted += seconds
        if RECORDERS:
            record(self.step, "engine", seconds, items)
        if not count:
            self.since += seconds
            return
        if self.since:
            seconds, self.since = seconds + self.since, 0.0
        each = seconds / count
        each *= each
        self.costs[frexp(each * each)[1]] += 1  # as in `cost_bin`
        self.items += items
        if block.failed:
            self.failed += failures(block)
        elif self.items > self.weigh:
            self.weighed(block)

    def weighed(self, block: Block) -> None:
        """Measure the size of an element of a block, and again after half as many more elements."""
        self.weigh = self.items + self.items // 2
        if len(block):
            weight = block.weight
            self.each = (3 * self.each + weight) / 4 if self.each else float(weight)

    def timed(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """Yield blocks that are made on the engine's thread on demand."""
        begin = time.perf_counter()
        for block in blocks:
            self.record(block, len(block), time.perf_counter() - begin, len(block))
            yield block
            begin = time.perf_counter()

    def gave(self, block: Block, each: float) -> None:
        """Record a block whose elements took `each` seconds; 0 if they were ready at once, which nobody measured."""
        self.items += block.count
        if each:
            self.costs[cost_bin(each)] += 1
        if block.failed:
            self.failed += failures(block)
        elif self.items > self.weigh:
            self.weighed(block)

    def awaited(self, block: Block, seconds: float) -> None:
        """Record a block that was waited for."""
        self.worked += seconds
        if RECORDERS:
            record(self.step, "worker", seconds, len(block))
        self.workers = 1
        self.gave(block, seconds / max(1, len(block)))

    def collected(self, group: Finished) -> None:
        """Record the result of one of its workers."""
        if RECORDERS and group.ended:
            record(
                self.step, "engine" if group.inline else "worker", group.seconds, group.count, group.ended, group.lane
            )
        if group.inline:  # not within a measured pull
            self.own += group.seconds
        else:
            self.worked += group.seconds
            self.computed += group.cpu + group.away
            if group.retries:
                self.retried += [None] * group.retries
            if group.functions:
                self.divided(group, group.functions)
        if group.count:
            self.gave(group.result, group.seconds / group.count)

    def divided(self, group: Finished, functions: dict[Any, float]) -> None:
        """Record how long each function took of the work that another process did."""
        total, end = sum(functions.values()), group.ended - group.seconds
        for key, seconds in functions.items():
            self.function_seconds[key] = self.function_seconds.get(key, 0.0) + seconds
            if RECORDERS and total:  # one after the other, as the process calls them for many elements by turns
                end += (taken := group.seconds * seconds / total)
                record(key.name, "function", taken, group.count, end, group.lane)

    def waited(self, seconds: float) -> None:
        """Record that its reader has waited for it."""
        self.pulled = (self.pulled or 0.0) + seconds

    def buffers(self, queue: BlockQueue) -> None:
        """Record the queue between the step and its reader."""
        self.queue = ref(queue)
        queue.on_full = self.was_full

    def holds(self, window: Window) -> None:
        """Record the elements in flight between the step's input and its reader."""
        self.pulled = self.pulled or 0.0
        self.window = ref(window)

    def was_full(self, seconds: float) -> None:
        """Record that the step was blocked by a full buffer."""
        self.full += seconds


def failures(block: Block) -> int:
    """Return how many elements of a block have failed."""
    return sum([type(item) is Failure and not is_left_out(item) for item in block.items])


class Meters:
    """The meters of a run: one for each node of its plan, and one for the queue that its consumer reads."""

    def __init__(self, nodes: tuple[object, ...] = ()) -> None:
        self.clock = ThreadClock()
        self.output = Meter(self.clock, Meter(self.clock))
        self.steps: dict[object, Meter] = {
            node: Meter(self.clock, Meter(self.clock, step=node), node) for node in nodes
        }


async def metered(source: Blocks, meter: Meter, leaf: bool) -> Blocks:
    """Yield the blocks of a stage that does not measure itself: all are counted, some pulls are timed.

    A pull that is not timed counts as the shorter of the two last timed ones. A long pull allows more of the next pulls
    to be timed, as a step that sometimes waits, for example to open a file, may be fast in between.
    """
    unseen, clock, own, wall, credit = 0, meter.clock, 0.0, 0.0, 0.0
    async with aclosing(source):
        while True:
            pull = MeasuredPull(source, clock)
            block = await pull
            meter.own += pull.own + unseen * min(pull.own, own)
            meter.waited(pull.seconds + unseen * min(pull.seconds, wall))
            own, wall = pull.own, pull.seconds
            if RECORDERS:
                record(meter.step, "engine", wall, 0 if block is None else len(block))
            if block is None:
                return
            meter.gave(block, (wall if leaf else own) / block.count)
            yield block
            block = None
            unseen, credit = 0, min(credit + wall / SHARE - LOOK, MOST_CREDIT)
            if credit >= 0 or clock.looking or RECORDERS:
                continue
            most, credit = min(MOST_UNSEEN, int(SHARE * LOOK / max(wall, 1e-9))), 0.0
            async for block in source:
                meter.items += block.count
                if block.failed:
                    meter.failed += failures(block)
                yield block
                block = None  # noqa: PLW2901  a delivered block is not kept alive
                unseen += 1
                if unseen >= most or clock.looking or RECORDERS:
                    break
            else:
                return


class MeasuredPull:
    """Awaits the next block of a stage, and measures how long that took and how long the stage's own code ran."""

    __slots__ = ("clock", "own", "seconds", "source")

    def __init__(self, source: Blocks, clock: ThreadClock) -> None:
        self.source = source
        self.clock = clock
        self.own = self.seconds = 0.0

    def __await__(self) -> Generator[Any, Any, Block | None]:
        pull: Any = self.source.__anext__()
        step, value, begin = pull.send, None, self.clock.now()
        try:
            while True:
                try:
                    waits_for = self.timed(step, value)
                except StopIteration as stop:
                    return stop.value
                except StopAsyncIteration:
                    return None
                try:
                    step, value = pull.send, (yield waits_for)
                except GeneratorExit:
                    pull.close()
                    raise
                except BaseException as error:  # thrown into the stage, as `yield from` does
                    step, value = pull.throw, error
        finally:
            self.seconds = self.clock.now() - begin

    def timed(self, step: Callable[[Any], Any], value: Any) -> Any:
        """Let the stage run until it waits or has a block."""
        clock = self.clock
        clock.looking += 1
        before, begin = clock.accounted, clock.now()
        try:
            return step(value)
        finally:
            clock.looking -= 1
            spent = clock.now() - begin - (clock.accounted - before)
            clock.accounted += spent
            self.own += spent
