"""Meters: what each step of a running pipeline has done, and for how long; kept by the block, not by the element."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import aclosing
from math import frexp
from typing import Any, Final, Protocol
from weakref import ref

from asyncdata.runtime.block import Block, Blocks, Failure
from asyncdata.runtime.host_resources import IDLE_TIME, idle_cores
from asyncdata.runtime.queue import BlockQueue
from asyncdata.runtime.spans import RECORDERS, record
from asyncdata.runtime.thread_usage import queued

__all__ = ("COST_BINS", "Meter", "Meters", "ThreadClock", "metered", "seconds_of_bin")

COST_BINS: Final = 256

LOOK: Final = 2e-6
SHARE: Final = 100
MOST_UNSEEN: Final = 255
MOST_CREDIT: Final = 0.1
"""To measure a pull costs about so many seconds, so not more than one part in so many of the time goes there; and of
so many pulls at least one is measured. No more than so many seconds are put by for later pulls."""


def cost_bin(seconds: float) -> int:
    """Return the place of what an element took in a histogram: four bins for a factor of two."""
    square = seconds * seconds
    return frexp(square * square)[1]


def seconds_of_bin(place: int) -> float:
    """Return what an element took that stands at a place in a histogram, about."""
    exponent = place if place < COST_BINS // 2 else place - COST_BINS
    return 2.0 ** ((exponent - 0.5) / 4)


def nothing() -> None:
    """Return that there is nothing."""


class Window(Protocol):
    """Elements in flight."""

    held: int
    """How many there are."""


class Finished(Protocol):
    """A group of elements that a worker is done with."""

    result: Block
    count: int
    """How many elements it was given, and has not left."""
    seconds: float
    cpu: float
    """The seconds that its thread computed; 0 if nobody knows."""
    here: bool
    """Whether it was worked on in the engine's thread."""
    ended: float
    """When it was done, in seconds of `time.perf_counter`; 0 if nobody knows."""
    lane: int
    """The thread, task or process that worked on it."""
    retries: int
    """How many of its calls were made again, if another process counts them."""


class ThreadClock:
    """The time of the thread that runs the stages of a pipeline: what of it was spent in some step."""

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
        """The number of the thread, and that of the system's, if it is the pipeline's alone and runs."""
        self.computed = self.queued = 0.0
        self.before = self.process = 0.0
        """What the whole process had computed when this began, and since, once it has ended."""
        self.idle: tuple[tuple[float, float | None], ...] = ()
        """What the cores of the machine had been idle for when this began, and when it ended."""

    def alone(self) -> None:
        """Take note that the running thread is the pipeline's alone."""
        self.thread, self.native = threading.get_ident(), threading.get_native_id()

    def begin(self, now: Callable[[], float] = time.perf_counter) -> None:
        """Begin to count, by a clock that tells seconds."""
        self.now = now
        self.before, self.idle = time.process_time(), (IDLE_TIME.recent(),)
        self.begun = now()

    def end(self) -> None:
        """Count no further."""
        self.process, self.idle = self.process_seconds, (*self.idle, IDLE_TIME.recent())
        self.ended = self.now()
        if self.thread:
            self.computed, self.queued, self.thread = time.thread_time(), queued(), 0

    @property
    def process_seconds(self) -> float:
        """For how long all threads of this process have computed since this began."""
        return self.process if self.ended or not self.begun else time.process_time() - self.before

    @property
    def idle_cores(self) -> float | None:
        """How many cores of the machine have had nothing to do since; `None` where nobody knows."""
        return idle_cores(self.idle[0], self.idle[1] if self.ended else IDLE_TIME.recent()) if self.idle else None

    @property
    def thread_seconds(self) -> float:
        """For how long the thread has computed; 0 if it is not the pipeline's alone, or the system does not say."""
        thread = self.thread
        if not thread or not hasattr(time, "pthread_getcpuclockid"):
            return self.computed
        return time.clock_gettime(time.pthread_getcpuclockid(thread))

    @property
    def queued_seconds(self) -> float:
        """For how long the thread could have run, had there been a core; 0 where `thread_seconds` is not known."""
        return queued(self.native) if self.thread else self.queued

    @property
    def seconds(self) -> float:
        """For how long the pipeline has run."""
        return (self.ended or self.now()) - self.begun if self.begun else 0.0


class Meter:
    """What one step has done. One thread writes it, any may read it."""

    __slots__ = (
        "clock",
        "computed",
        "costs",
        "each",
        "failed",
        "full",
        "inside",
        "items",
        "own",
        "pulled",
        "queue",
        "read",
        "retried",
        "since",
        "step",
        "weigh",
        "window",
        "worked",
        "workers",
    )

    def __init__(self, clock: ThreadClock, inside: Meter | None = None, step: object = "") -> None:
        self.clock = clock
        self.step = step
        """Whose it is."""
        self.inside = inside
        """That of pipelines inside the step: their work is the step's, their elements are not. They have none."""
        self.items = self.failed = 0
        self.own = 0.0
        """Seconds of the engine's thread, those of the input not counted."""
        self.pulled: float | None = None
        """Seconds that its reader has waited for it; `None` where these are its own and those of its input."""
        self.worked = 0.0
        """Seconds in threads, tasks and processes of its own, all together."""
        self.computed = 0.0
        """How many of them the threads computed."""
        self.workers = 0
        """How many of these there are."""
        self.full = 0.0
        """Seconds in which it could not go on as nobody took what it had made."""
        self.since = 0.0
        """Those of its own that no block shows yet."""
        self.costs = [0] * COST_BINS
        self.each = 0.0
        """About how many bytes an element occupies: the mean of some, of ever fewer."""
        self.weigh = 0
        """At how many elements the next one is weighed."""
        self.read = 0
        """How many bytes of files it was given."""
        self.retried: list[None] = [] if inside is None else inside.retried
        """One for each call or request that was made again."""
        self.queue: Callable[[], BlockQueue | None] = nothing
        self.window: Callable[[], Window | None] = nothing

    @property
    def within(self) -> Meter:
        """Return the meter of what runs inside the step."""
        return self.inside or self

    def made(self, block: Block, items: int, seconds: float, count: int) -> None:
        """Take note of a block of so many items that was made on the engine's thread of so many elements, if of any.

        All in one function, as a block may be a single element.
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
        self.costs[frexp(each * each)[1]] += 1  # as `cost_bin` has it
        self.items += items
        if block.failed:
            self.failed += failures(block)
        elif self.items > self.weigh:
            self.weighed(block)

    def weighed(self, block: Block) -> None:
        """Take note of what an element of a block occupies, and look again when there have been half as many more."""
        self.weigh = self.items + self.items // 2
        if len(block):
            weight = block.weight
            self.each = (3 * self.each + weight) / 4 if self.each else float(weight)

    def timed(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """Yield blocks that are made on the engine's thread when they are asked for."""
        begin = time.perf_counter()
        for block in blocks:
            self.made(block, len(block), time.perf_counter() - begin, len(block))
            yield block
            begin = time.perf_counter()

    def gave(self, block: Block, each: float) -> None:
        """Take note of a block, of which each element took so many seconds."""
        self.items += len(block)
        self.costs[cost_bin(each)] += 1
        if block.failed:
            self.failed += failures(block)
        elif self.items > self.weigh:
            self.weighed(block)

    def awaited(self, block: Block, seconds: float) -> None:
        """Take note of a block that was waited for."""
        self.worked += seconds
        if RECORDERS:
            record(self.step, "worker", seconds, len(block))
        self.workers = 1
        self.gave(block, seconds / max(1, len(block)))

    def collected(self, group: Finished) -> None:
        """Take note of what one of its workers made."""
        if RECORDERS and group.ended:
            record(self.step, "engine" if group.here else "worker", group.seconds, group.count, group.ended, group.lane)
        if group.here:  # not within a pull that is measured
            self.own += group.seconds
        else:
            self.worked += group.seconds
            self.computed += group.cpu
            if group.retries:
                self.retried += [None] * group.retries
        if group.count:
            self.gave(group.result, group.seconds / group.count)

    def waited(self, seconds: float) -> None:
        """Take note that its reader has waited for it."""
        self.pulled = (self.pulled or 0.0) + seconds

    def buffers(self, queue: BlockQueue) -> None:
        """Take note of the queue that lies between the step and its reader."""
        self.queue = ref(queue)
        queue.on_full = self.was_full

    def holds(self, window: Window) -> None:
        """Take note of the elements in flight that lie between the step's input and its reader."""
        self.pulled = self.pulled or 0.0
        self.window = ref(window)

    def was_full(self, seconds: float) -> None:
        """Take note that there was no room."""
        self.full += seconds


def failures(block: Block) -> int:
    """Return how many elements of a block have failed."""
    return sum([type(item) is Failure for item in block.items])


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

    For those that were not, the shorter one of two that were stands. What took long pays for measuring those that
    follow, as a step that waits at times, such as to open a file, may be quick in between.
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
            meter.gave(block, (wall if leaf else own) / len(block))
            yield block
            block = None
            unseen, credit = 0, min(credit + wall / SHARE - LOOK, MOST_CREDIT)
            if credit >= 0 or clock.looking or RECORDERS:
                continue
            most, credit = min(MOST_UNSEEN, int(SHARE * LOOK / max(wall, 1e-9))), 0.0
            async for block in source:
                meter.items += len(block)
                if block.failed:
                    meter.failed += failures(block)
                yield block
                block = None  # noqa: PLW2901  what was given out is not held
                unseen += 1
                if unseen >= most or clock.looking or RECORDERS:
                    break
            else:
                return


class MeasuredPull:
    """Waits for the next block of a stage: how long that took, and how long its own code ran meanwhile."""

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
                except BaseException as error:  # handed to the stage, as `yield from` does
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
