"""DatasetIterator: one pass over a dataset, by `for` or `async for`."""

from __future__ import annotations

import asyncio
import logging
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import getitem, length_hint
from os import PathLike
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from asyncdata.elements.structure import spec_of
from asyncdata.elements.validation import check_flag
from asyncdata.engines.base import Engine, LoopEngine, RunSpec, TaskEngine
from asyncdata.engines.stall import Patience
from asyncdata.engines.thread import thread_engine
from asyncdata.errors import ClosedError, ConcurrentUseError, PlanError, StructureError
from asyncdata.graph.node import Node, UnseekableError, check_count, nodes_of, scaled
from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.planning.optimizer import Planner
from asyncdata.runtime.block import DELIVERED, Block, Failure, fail
from asyncdata.runtime.memory_budget import MemoryBudget
from asyncdata.runtime.meter import Meters
from asyncdata.runtime.queue import AT_EXIT
from asyncdata.runtime.tickets import END, FRESH, Position, Start
from asyncdata.states import ResumePoint, origin_of, place_of, state_header, state_of
from asyncdata.statistics.consumer import ConsumerTimes
from asyncdata.system import forks
from asyncdata.system.closing import Closable
from asyncdata.system.sigint import DeferredInterrupts, DeferredSigint
from asyncdata.system.standard_descriptors import take_standard_descriptors
from asyncdata.transforms.prefetch_to_device import PrefetchToDevice, split_at_device

if TYPE_CHECKING:
    from asyncdata.persistence.run_log import Occasion, RunLog
    from asyncdata.statistics.bottleneck import Bottleneck
    from asyncdata.statistics.statistics import Statistics

__all__ = (
    "DatasetIterator",
    "ExclusiveUse",
    "Reader",
    "ended_by",
    "further",
    "next_block",
    "next_within",
    "ready_elements",
    "state_before_latest",
)

T = TypeVar("T")

log = logging.getLogger("asyncdata")


class ExclusiveUse:
    """Allows one task or thread at a time to read an iterator."""

    __slots__ = ("readers",)

    def __init__(self) -> None:
        self.readers: dict[object, None] = {}
        """Threads and tasks that read or are about to; the first one may. Not a lock: a signal handler may raise when
        `with` has taken one, and it would be held forever."""

    def enter(self, reader: object) -> None:
        """Begin to read, or raise if another task or thread reads. The caller must remove itself afterwards in any
        case."""
        self.readers[reader] = None
        if [*self.readers][0] is not reader:  # noqa: RUF015  in one step: others come and go meanwhile
            raise ConcurrentUseError(
                "two tasks or threads read one iterator at once; give each its own with iter(dataset), or let one "
                "read and pass the elements on"
            )


class Held(NamedTuple):
    """The piece of a block that is being delivered: in one object, so that any thread sees what belongs together."""

    delivered: int
    """How many elements were delivered before it."""
    piece: Block | None
    items: Iterator[Any]
    failures: Iterator[Failure]
    """The failure of the piece, until it is raised."""

    @property
    def left(self) -> int:
        """How many elements of the piece are not delivered yet."""
        return length_hint(self.items) + length_hint(self.failures)


class Reader:
    """The work of an iterator. A separate object, so that no traceback that passes here keeps the iterator alive.

    A signal handler may raise wherever a function begins, a call has returned or a loop repeats. So a block stays in
    the queue until it is stored here, and attributes that belong together are stored with no call between them. Other
    threads may take items, and ask for a state, at any time.
    """

    def __init__(self, planner: Planner, place: ResumePoint) -> None:
        self.planner = planner
        self.options = planner.options
        self.placement = self.options.placement or "thread"
        self.alone = ExclusiveUse()
        self.left_out: dict[int, list[range]] = {}
        """Which steps are left out, by the epoch."""
        self.begin(place)
        forks.register(self)

    def begin(self, place: ResumePoint) -> None:
        """Start at `place`, with nothing running yet."""
        plan, budget, waiting = self.planner.runs(place.plan), MemoryBudget(), deque[Block]()
        meters, seen = Meters(), ConsumerTimes()
        held = Held(place.delivered, None, iter(()), iter(()))
        path = self.options.record
        place, log = recorded(path, place) if path else (place, None)
        # no call from here on
        self.resume_point = place
        self.log = log
        self.user_plan, self.epoch, _, self.first, *_ = place
        self.plan, self.budget, self.meters, self.times = plan, budget, meters, seen
        self.engine: Engine | None = None
        """The engine to end."""
        self.host: Engine | None = None
        """The engine that runs the pipeline: the same one, except where elements are copied to a device."""
        self.running: Engine | None = None
        """The engine, once it has started."""
        self.taken = 0
        """How many items were taken from its queue."""
        self.waiting = waiting
        """The pieces of the block that was taken last which are not begun yet."""
        self.held = held
        self.items = held.items
        """Those of the piece, which are taken without a call. Stored after it: what is taken counts as delivered."""
        self.heading: dict[str, Any] | None = None
        self.skipped = 0
        """How many elements were left out."""
        self.exhausted = self.closed = self.forked = False

    def state(self, back: int = 0) -> dict[str, Any]:
        """Return the consumer's position, or with `back=1` the one before its latest element."""
        self.check_ours()
        held = self.held
        self.record(held, "state")
        given = 0 if held.piece is None else len(held.piece) - held.left - (0 if self.exhausted else back)
        return state_of(self.header, held.delivered + given, self.position(held, given))

    def position(self, held: Held, given: int) -> Position:
        """Return the position after so many elements of a piece were given."""
        if self.exhausted and not self.resume_point.plan.may_grow:
            return END
        return self.first.position_with_skip() if held.piece is None else held.piece.tickets.at(given)

    def record(self, held: Held, why: Occasion | None = None) -> None:
        """Note what was delivered of a piece in the log, if there is one, and write it if there is a reason to."""
        log = self.log
        if log is not None:
            given = 0 if held.piece is None else len(held.piece) - held.left
            if held.piece is not None:
                log.note(held.delivered, held.piece.tickets, given, held.piece.failed)
            position = partial(self.position, held, given) if why == "state" else None
            if why in ("left", "state") and held.delivered + given == self.length:
                why = "end"  # which a loop that counts does not ask for
            if why is not None or log.is_long():
                log.write(lambda: self.header, why or "more", position)

    @property
    def length(self) -> int:
        """How many elements the epoch has, if that is known."""
        return UNKNOWN_CARDINALITY if self.resume_point.resharded else self.user_plan.cardinality

    def origin(self) -> dict[str, Any]:
        """Return where the consumer's latest element came from."""
        self.check_ours()
        held = self.held
        given = 0 if held.piece is None else len(held.piece) - held.left
        if held.piece is None or not given:
            raise LookupError("no element was read yet: read one before you ask for its origin")
        (ticket,) = held.piece.tickets.encoded(given - 1, given)
        return origin_of(self.resume_point, self.header, held.delivered + given - 1, ticket)

    @property
    def header(self) -> dict[str, Any]:
        """The part that all states and origins of this run share."""
        if self.heading is None:
            self.heading = state_header(self.resume_point, self.options)
        return self.heading

    @property
    def left(self) -> int:
        """How many elements of the piece are not delivered yet."""
        return self.held.left

    def read(self, interrupts: DeferredInterrupts | None = None) -> None:
        """Hold the piece that has the next element, or its failure. The caller must take it from here: another thread
        may end the iterator meanwhile, or move it.

        `interrupts` is given by a caller that holds Ctrl-C back meanwhile.
        """
        self.load(interrupts, self.enter)

    async def read_async(self) -> None:
        """Hold the piece that has the next element, or its failure."""
        await self.load_async(self.enter)

    def peek(self) -> Any:
        """Return the next element without taking it."""
        return self.load(None, self.look)()

    async def peek_async(self) -> Any:
        """Return the next element without taking it."""
        return (await self.load_async(self.look))()

    def take(self, most: int) -> Block:
        """Return at most `most` elements as they are in their block, if none of them was read singly."""
        found = self.load(None, partial(self.cut, most))
        if found is not None:
            return found
        self.fail()
        raise AssertionError("elements of this piece were read one by one")

    def load(self, interrupts: DeferredInterrupts | None, use: Callable[[], T]) -> T:
        """Read the next element, and return what `use` makes of it while no other task or thread reads."""

        def loaded() -> T:
            self.check_open()
            while not self.left and not (self.has_piece() if self.left_out else self.waiting):
                self.receive(interrupts)
            return use()

        return self.exclusively(loaded)

    def exclusively(self, use: Callable[[], T]) -> T:
        """Return what `use` returns while no other task or thread reads."""
        me = object()
        try:
            self.alone.enter(me)
            return use()
        finally:
            self.alone.readers.pop(me, None)

    async def load_async(self, use: Callable[[], T]) -> T:
        """Read the next element, and return what `use` makes of it while no other task or thread reads."""
        me = object()
        try:
            self.alone.enter(me)
            self.check_open()
            while not self.left and not (self.has_piece() if self.left_out else self.waiting):
                await self.receive_async()
            return use()
        finally:
            self.alone.readers.pop(me, None)

    def look(self) -> Callable[[], Any]:
        """Return a function that returns the next element, or raises its failure, which will be raised again."""
        held = self.held
        piece, place = (held.piece, -length_hint(held.items)) if held.left else (self.waiting[0], 0)
        assert piece is not None
        return partial(fail, piece.items[0].error) if piece.failed else partial(getitem, piece.items, place)

    def enter(self) -> None:
        """Move to the next piece if all of this one is delivered."""
        held, waiting = self.held, self.waiting
        if held.left or not waiting:
            return
        self.record(held)
        piece = waiting[0]
        items, failures = ((), piece.items) if piece.failed else (piece.items, ())
        held = Held(self.counted(), piece, iter(items), iter(failures))
        # no call from here on
        if self.closed or self.waiting is not waiting:
            raise moved()
        self.held = held
        self.items = held.items
        del waiting[0]

    def has_piece(self) -> bool:
        """Return whether a piece waits; drop the steps before it that are left out, and end it before the next ones."""
        while self.waiting:
            waiting, held, delivered = self.waiting, self.held, self.counted()
            piece, (first, stop) = waiting[0], self.next_gap(delivered)
            size = min((stop if first == delivered else first) - delivered, len(piece))
            if piece.source_failures(len(piece)) or (first > delivered and size == len(piece)):
                return True
            rest, skipped = deque[Block](islice(waiting, 1, None)), self.skipped
            if size < len(piece):
                rest.appendleft(piece.slice(size, len(piece)))
            if first > delivered:
                rest.appendleft(piece.slice(0, size))
            else:
                self.record(held)
                if self.log is not None:
                    self.log.pass_over(delivered + size)
                held, skipped = Held(delivered, piece.slice(0, size), iter(()), iter(())), skipped + size
            # no call from here on
            if self.closed or self.waiting is not waiting:
                raise moved()
            self.held, self.waiting, self.skipped = held, rest, skipped
        return False

    def next_gap(self, step: int) -> tuple[int, int]:
        """Return the first step from `step` on that is left out, and where these steps end."""
        gaps = [
            (max(step, one.start), one.stop) for one in self.left_out.get(self.epoch, ()) if one.stop > step and one
        ]
        return min(gaps, default=(sys.maxsize, sys.maxsize))

    def skip_steps(self, steps: range) -> None:
        """Leave out steps of this epoch that are not delivered yet."""
        self.left_out.setdefault(self.epoch, []).append(steps)
        held, self.items = self.held, iter(())
        if held.piece is not None and held.left:
            given = len(held.piece) - held.left
            self.waiting.appendleft(held.piece.slice(given, len(held.piece)))
            self.held = Held(held.delivered, held.piece.slice(0, given), iter(()), iter(()))

    def cut(self, most: int) -> Block | None:
        """Take at most `most` elements of the next piece at once; `None` if it must be read one by one."""
        waiting = self.waiting
        if self.left or not waiting or waiting[0].failed:
            self.enter()
            return None
        self.record(self.held)
        piece, delivered = waiting[0], self.counted()
        rest = deque[Block]()
        if len(piece) > most:
            rest.append(piece.slice(most, len(piece)))
            piece = piece.slice(0, most)
        rest.extend(islice(waiting, 1, None))
        held = Held(delivered, piece, iter(()), iter(()))
        # no call from here on
        if self.closed or self.waiting is not waiting:
            raise moved()
        self.held, self.waiting = held, rest
        return piece

    def counted(self) -> int:
        """Return how many elements are delivered when all of the piece is."""
        held = self.held
        return held.delivered + (0 if held.piece is None else len(held.piece))

    def fail(self) -> None:
        """Raise the failure of the piece, if it is one and was not raised yet."""
        piece = self.held.piece
        error: BaseException = piece.items[0].error if piece is not None and piece.failed else DELIVERED
        if error is not DELIVERED:
            self.times.raises(error)
        try:
            # in one step, without a call: other threads may end or move the iterator, and a signal handler may raise
            for failure in () if self.closed else self.held.failures:
                error, failure.error = failure.error, DELIVERED
                raise error
        finally:
            del error

    def receive(self, interrupts: DeferredInterrupts | None) -> None:
        """Get the pieces of the next block; wait for it in a plain thread."""
        self.check_open()
        engine, block = self.running, None
        if engine is not None:
            engine.queue.release(self.taken)  # whose release a signal handler prevented
            block = engine.queue.first()
        if engine is not None and block is not None:
            self.accept(engine, block)
        elif interrupts is not None:
            self.wait(interrupts)
        else:
            with DeferredInterrupts() as own, DeferredSigint(own):
                self.wait(own)

    def wait(self, interrupts: DeferredInterrupts) -> None:
        """Get the pieces of the next block when it is there; it stays in the queue until then."""
        with self.times:
            engine = self.running or self.start(None)
            block = self.block_of(engine, interrupts)
        self.accept(engine, block)

    def block_of(self, engine: Engine, interrupts: DeferredInterrupts) -> Block:
        queue = engine.queue
        while (block := queue.first()) is None:
            if (queue.ended or queue.stopped) and not queue.blocks:
                fail(self.ending(engine, StopIteration()))
            queue.request_more()
            engine.wait(queue.may_read, interrupts, Patience(self.options.patience, self.report))
            interrupts.check()
            self.check_open()
        return block

    async def receive_async(self) -> None:
        """Get the pieces of the next block; wait for it on an event loop."""
        self.check_open()
        engine = self.running or self.start(asyncio.get_running_loop())
        queue = engine.queue
        queue.release(self.taken)  # whose release a signal handler prevented
        if queue.blocks:
            await asyncio.sleep(0)  # a pipeline that is always ahead must not block other tasks of the consumer's loop
        if (block := queue.first()) is None:
            with self.times:
                block = await self.block_of_async(engine)
        self.accept(engine, block)

    async def block_of_async(self, engine: Engine) -> Block:
        queue = engine.queue
        while (block := queue.first()) is None:
            if (queue.ended or queue.stopped) and not queue.blocks:
                fail(self.ending(engine, StopAsyncIteration()))
            queue.request_more()
            await engine.wait_async(queue.may_read, Patience(self.options.patience, self.report))
            self.check_open()
        return block

    def accept(self, engine: Engine, block: Block) -> None:
        """Get the pieces of the first block in the queue, and take it from the queue."""
        waiting, taken = deque(block.pieces()), self.taken + len(block)
        # no call from here on
        if self.running is not engine:
            raise moved()
        self.waiting, self.taken = waiting, taken
        engine.queue.release(taken)

    def check_open(self) -> None:
        """Raise if the iterator was closed."""
        self.check_ours()
        if self.closed:
            raise ClosedError("the iterator was closed; start a new one with iter(dataset)")

    def check_ours(self) -> None:
        """Raise in a forked child if the parent has begun to read."""
        if self.forked:
            raise ClosedError(
                "the iterator belongs to the process that forked this one; start a new one with iter(dataset), or "
                "resume from a state that was taken before the fork"
            )

    def disown(self) -> None:
        """Deliver nothing more in a forked child: the engine, and the elements read, are the parent's."""
        if self.engine is not None:
            self.forked = self.closed = True
            self.log = None
            if self.engine is not self.host:  # memory of a device cannot be released here
                forks.never_finalize((self.held, self.waiting))
            self.held = Held(self.held.delivered, None, iter(()), iter(()))
            self.items = self.held.items
            self.waiting = deque[Block]()
            self.engine = self.host = self.running = None
            self.alone = ExclusiveUse()

    def ending(self, engine: Engine, stop: Exception) -> BaseException:
        """Return the error that ended the pipeline, or `stop` at the end of the data.

        No frame holds the error, as that would hold the reader and a process.
        """
        self.check_open()
        error = engine.queue.failure()
        ended = error is None
        self.record(self.held, "end" if ended else "left")
        # no call from here on
        if self.running is not engine:
            return moved()
        self.exhausted = ended
        if error is not None and not self.times.ended:
            self.times.raises(error)
        self.times.end()
        return error or stop

    def start(self, loop: asyncio.AbstractEventLoop | None) -> Engine:
        """Start the pipeline in the placement of the options; its last prefetch fills the queue that is read here."""
        self.abandon()  # one whose start was interrupted by a signal handler
        take_standard_descriptors()
        if self.options.dashboard:
            from asyncdata.observe.dashboard_server import show

            show(self.options.dashboard, self.stats)
        plan, node = split_at_device(self.plan)
        copying = None if node is None else copies_to_device(node)
        run = RunSpec.of(plan, self.epoch, self.first, self.options.ram_budget, self.options.seed)
        self.budget, self.meters = run.budget, run.meters
        self.engine = self.host = engine = self.host_engine(run, loop)
        engine.start()  # only now that `close` can end it
        if copying is not None:
            self.engine = engine = copying(engine)
            engine.start()
        self.times.now = self.meters.clock.now
        here = self.placement != "process"
        self.planner.ran = partial(run_statistics, plan, run, self.times, self.placement) if here else None
        # no call from here on
        if self.engine is not engine:  # but for another thread's, which has moved the iterator meanwhile
            raise moved()
        self.running = engine
        if self.closed:  # by another thread, meanwhile
            engine.stop()
        return engine

    def report(self) -> bool:
        """Log which step is waited for, and where it is."""
        from asyncdata.engines.stall_report import stall_report

        if self.engine is not None:
            log.warning("%s", stall_report(self.times.waits, self.stats().steps, *self.engine.at_work()))
        return True

    def host_engine(self, run: RunSpec, loop: asyncio.AbstractEventLoop | None) -> Engine:
        if sys.platform != "linux":
            from asyncdata.system.linux_only import tell_what_is_off

            tell_what_is_off()
        if self.placement == "process":
            from asyncdata.process_engine.engine import ProcessEngine

            return ProcessEngine(split_at_device(self.user_plan)[0], self.options, run)
        if self.placement == "thread":
            return thread_engine(run, loop)
        return LoopEngine(run) if loop is None else TaskEngine(run)

    def stats(self) -> Statistics:
        """Return the statistics of the pipeline so far."""
        from asyncdata.devices.engine import DeviceEngine
        from asyncdata.engines.stats import stats_of
        from asyncdata.process_engine.engine import ProcessEngine
        from asyncdata.statistics.statistics import statistics_of

        found = self.host.stats() if isinstance(self.host, ProcessEngine) else None
        if found is None:
            found = stats_of(split_at_device(self.plan)[0], self.meters, self.budget)
        if isinstance(self.engine, DeviceEngine):
            found = self.engine.stats(found)
        stats = statistics_of(found, self.times, self.placement, self.given, self.condition, self.cardinality)
        return replace(stats, skipped=self.skipped, epoch=self.epoch)

    @property
    def cardinality(self) -> int:
        """How many elements this iterator gives in all; negative if that is unknown or infinite."""
        if self.resume_point.resharded:
            return UNKNOWN_CARDINALITY
        return scaled(
            self.user_plan.cardinality, lambda size: max(0, size - self.resume_point.delivered - self.skipped)
        )

    @property
    def condition(self) -> str:
        """The phase of the run, for `Statistics.state`."""
        engine = self.running
        if self.exhausted:
            return "ended"
        if self.closed or (engine is not None and engine.queue.stopped):
            return "closed"
        if engine is None:
            return "not begun"
        queue = engine.queue
        return "failed" if queue.error is not None and not (queue.blocks or self.waiting or self.left) else "running"

    @property
    def given(self) -> int:
        """How many elements the consumer got since it began to read."""
        held = self.held
        come = 0 if held.piece is None else held.delivered + len(held.piece) - held.left - self.resume_point.delivered
        return come - self.skipped

    def skip(self, count: int) -> None:
        """Skip `count` elements: those that are here, else by the plan's random access, else by reading."""
        held = self.held
        here = min(count, held.left)
        deque(islice(held.items, here), 0)
        lost = [failure for failure in islice(held.failures, here) if failure.of_source]
        if count > here:
            state = self.state()
            self.restart(further(self.resume_point, state["delivered"], state["position"], count - here))
        if lost:
            fail(lost[0].release())

    def set_weights(self, weights: Any) -> None:
        """Start again at the next element with other weights of a mixture; what was read ahead is made again."""
        from asyncdata.identity.mixtures import with_weights

        if self.user_plan.once:
            raise PlanError(
                "set_weights starts the pipeline again from the next element, and a source of this one is an iterator, "
                "which cannot be read again: give from_generator a function that makes it"
            )
        plan, state = with_weights(self.user_plan, weights), self.state()
        start = Start.of(state["position"])
        if start.skip:
            raise PlanError("set_weights right after skip() cannot know what was skipped: read one element first")
        self.restart(self.resume_point._replace(plan=plan, delivered=state["delivered"], start=start))

    def restart(self, place: ResumePoint) -> None:
        """End the pipeline, and start again at a place; a thread that reads meanwhile gets nothing of what it read."""
        self.record(self.held, "left")
        self.abandon()
        self.begin(place)

    def leave(self) -> None:
        """End the pipeline; nothing more is delivered."""
        nothing, waiting = iter(()), deque[Block]()
        # no call from here on: what other threads take is counted below
        self.closed, self.items = True, nothing
        self.times.end()
        held = self.held
        piece = None if held.piece is None else held.piece.slice(0, len(held.piece) - held.left)
        held = Held(held.delivered, piece, iter(()), iter(()))  # a state still shows what was delivered
        # no call from here on
        self.held, self.waiting = held, waiting
        try:
            self.record(held, "left")
        finally:
            self.abandon()

    def drop(self, reason: str | None = None) -> None:
        """End the pipeline of an iterator that nobody holds any more; from a finalizer, which asks no other process."""
        try:
            if self.log is not None and not self.forked:
                held = self.held
                if self.placement == "process" and held.piece is not None:
                    self.log.note(held.delivered, None, len(held.piece) - held.left, held.piece.failed)
                self.record(held, "left")
        finally:
            self.abandon(reason)

    def abandon(self, reason: str | None = None) -> None:
        """Ask the pipeline to end, and why; from any thread, also from a finalizer."""
        if self.engine is not None:
            self.engine.stop(reason)


class DatasetIterator(Closable, Generic[T]):
    """One pass over a dataset. The pipeline starts when the first element is requested.

    An element that failed raises its own exception, in its place; the next call gives the next element. Leaving the
    loop, dropping the iterator or closing it ends everything that the pipeline started.

    >>> import asyncdata as ad
    >>> with ad.Dataset.range(5).iterate() as numbers:
    ...     first, second = next(numbers), next(numbers)
    >>> first, second
    (0, 1)
    """

    def __init__(
        self,
        planner: Planner,
        place: ResumePoint,
        resume: Callable[[Mapping[str, Any], bool], ResumePoint] | None = None,
    ) -> None:
        self._reader, self._resume = Reader(planner, place), resume
        weakref.finalize(self, self._reader.drop, AT_EXIT)  # no one reads an iterator that was dropped

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        reader = self._reader
        for item in reader.items:
            return item
        try:
            while True:
                reader.read()
                for item in reader.items:  # here: a signal handler may raise when a function has returned it
                    return item
                reader.fail()
        finally:
            del self  # see Reader; not before, as this may be the only reference

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        reader = self._reader
        for item in reader.items:
            return item
        try:
            while True:
                await reader.read_async()
                for item in reader.items:  # here: a signal handler may raise when a function has returned it
                    return item
                reader.fail()
        finally:
            del self  # see Reader; not before, as this may be the only reference

    @property
    def epoch(self) -> int:
        """The number of this epoch of the dataset, from 0.

        >>> import asyncdata as ad
        >>> ds = ad.Dataset.range(3)
        >>> [ds.iterate().epoch for _ in range(3)]
        [0, 1, 2]
        """
        return self._reader.epoch

    def stats(self) -> Statistics:
        """Return the statistics of the pipeline so far: print them. At any time, from any thread, also after `close`.

        For each step it shows how many elements it gave and how many failed there, for how long its code ran and it
        waited for its input or for space in a queue, how many workers it has, how many elements are in its buffer, the
        time for one element, and what AUTOTUNE chose. For the pipeline it shows elements per second, and the share of
        its time that the consumer waited. All elements are counted; in quick steps only some blocks are timed. See
        `docs/observe.md`.

        `stats().tuned` are AUTOTUNE's choices, a dict for each step that it tunes. `where` says where a function is
        called: `"inline"` on the engine's thread, in `"thread"`s, `"task"`s or worker `"process"`es. `workers` is how
        many calls are made at once, `group` how many elements a worker gets at a time, and `why` the reason. `history`
        has the last choices, the current one last: `after` how many seconds each was made, the `pace` in elements a
        second that was measured under it, for which share of that time the reader `waited`, and which share of the
        calls' time was their `own` and not taken by other programs (the pace is divided by it). For an
        `interleave`, `workers` is how many inputs are read at once, `buffer` how many elements of each are read ahead
        at most, and `inner` the choice for a function of its datasets. For a `prefetch`, also for the one that is added
        at the end, there are `buffer`, its `bytes` of `Options(ram_budget=)`, and `why`.

        >>> import asyncdata as ad
        >>> with ad.Dataset.range(10_000).map(lambda x: x + 1, ad.AUTOTUNE).iterate() as elements:
        ...     _ = list(elements)
        ...     stats = elements.stats()
        >>> stats.elements, [step.items for step in stats.steps]
        (10000, [10000, 10000, 10000])
        >>> step, buffer = stats.tuned
        >>> step["where"] in ("inline", "thread", "process"), buffer["buffer"] >= 2
        (True, True)
        >>> first = step["history"][0]
        >>> first["where"], first["workers"], first["why"]
        ('thread', 1, 'trying one call at a time')
        """
        return self._reader.stats()

    def monitor(self) -> Callable[[], Statistics]:
        """Return a function that returns what `stats` does, and does not keep this iterator and its pipeline alive.

        It is for observers: `asyncdata.observe.dashboard`, a collector of metrics.

        >>> import asyncdata as ad
        >>> numbers = iter(ad.Dataset.range(3))
        >>> stats = numbers.monitor()
        >>> _ = next(numbers)
        >>> del numbers
        >>> stats().elements, stats().state
        (1, 'closed')
        """
        return self._reader.stats

    def bottleneck(self) -> Bottleneck:
        """Return which step limits the pipeline, judged by `stats`, and what to do: print it.

        If the input is not the problem, it says so. `gain` is how many times as fast the pipeline would be with the
        change, until another step is the limit.

        >>> import time
        >>> import asyncdata as ad
        >>> with ad.Dataset.range(30).iterate() as numbers:
        ...     for number in numbers:
        ...         time.sleep(0.02)  # training
        ...     found = numbers.bottleneck()
        >>> found.step
        'consumer'
        """
        from asyncdata.statistics.bottleneck import bottleneck_of

        return bottleneck_of(self.stats())

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last delivered element, as a dict that JSON can hold; also after `close`.

        A dataset that is built the same way resumes from it, in another process, with another placement or other
        parallelism: `dataset.iterate(state=...)`, or `load_state_dict`. Elements in flight are made again. They come in
        the same order, or exactly once each where the order is not fixed.

        >>> import asyncdata as ad
        >>> ds = ad.Dataset.range(10).map(lambda x: x * x).batch(2)
        >>> with ds.iterate() as batches:
        ...     _ = next(batches)
        ...     state = batches.state_dict()
        >>> next(ds.iterate(state=state))
        array([4, 9])
        """
        return self._reader.state()

    def origin(self) -> dict[str, Any]:
        """Return where the last delivered element came from, as a dict that JSON can hold; also after `close`.

        `Dataset.replay` gives that element again, and `Dataset.locate` names the records that it was made from. Its
        `step` is the element's number in this epoch, from 0. After an error it is the origin of the element that
        failed. `LookupError` if no element was read yet.

        >>> import asyncdata as ad
        >>> ds = ad.Dataset.range(100).shuffle(100, seed=1).batch(3)
        >>> with ds.iterate() as batches:
        ...     first, second = next(batches), next(batches)
        ...     origin = batches.origin()
        >>> origin["step"], next(ds.replay([origin])).tolist() == second.tolist()
        (1, True)
        """
        return self._reader.origin()

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Resume where the iterator that gave `state` was; `ResumeError` if it read another pipeline.

        The next iteration of the dataset is the epoch after that one. With `strict=False` it may have been a similar
        pipeline: see `Dataset.iterate`.

        >>> import asyncdata as ad
        >>> numbers = iter(ad.Dataset.range(5))
        >>> next(numbers), next(numbers)
        (0, 1)
        >>> state = numbers.state_dict()
        >>> list(numbers)
        [2, 3, 4]
        >>> numbers.load_state_dict(state)
        >>> list(numbers)
        [2, 3, 4]
        """
        strictly = check_flag("load_state_dict", "strict", strict)
        reader = self._reader
        resume = self._resume or partial(place_of, reader.user_plan, options=reader.options)
        place = resume(state, strictly)
        reader.restart(place)

    def peek(self) -> T:
        """Return the next element without taking it: `next` returns it again, and states do not change.

        Raises the element's error, and `StopIteration` if there is no next element.

        >>> import asyncdata as ad
        >>> with ad.Dataset.range(3).iterate() as numbers:
        ...     numbers.peek(), next(numbers)
        (0, 0)
        """
        reader = self._reader
        try:
            return reader.peek()
        finally:
            del self  # see Reader

    @property
    def element_spec(self) -> Any:
        """The structure of elements, as `Dataset.element_spec`: from the plan, else from the next element, as `peek`
        returns it.

        >>> import asyncdata as ad
        >>> with ad.Dataset.range(3).batch(2).iterate() as batches:
        ...     batches.element_spec
        TensorSpec(shape=(None,), dtype=int64)
        """
        known = self._reader.user_plan.signature
        try:
            return spec_of(self.peek()) if known is None else known
        except StopIteration:
            raise StructureError("there is no next element to describe") from None

    async def apeek(self) -> T:
        """Return the next element without taking it, as `peek` does; `StopAsyncIteration` if there is none.

        >>> import asyncio
        >>> import asyncdata as ad
        >>> async def look():
        ...     async with ad.Dataset.range(3).iterate() as numbers:
        ...         return await numbers.apeek(), await anext(numbers)
        >>> asyncio.run(look())
        (0, 0)
        """
        reader = self._reader
        try:
            return await reader.peek_async()
        finally:
            del self  # see Reader

    def skip(self, count: int) -> None:
        """Skip the next `count` elements, failed ones among them; past the end, all that are left.

        The failure of a source, such as a missing file, is not skipped: it is raised here, or by the next call of
        `next`.

        Where the plan can compute where an element is (ranges, slices, lists, `from_source`, records with an index, a
        `shuffle` of these without a buffer, and their maps, batches, shards and repetitions), skipped elements are
        neither read nor made, and a batch counts as full even if elements of it would have failed. Elsewhere, and if a
        file is missing or broken, they are read and dropped.

        >>> import asyncdata as ad
        >>> with ad.Dataset.range(10**9).shuffle(seed=1).batch(2).iterate() as batches:
        ...     batches.skip(400_000_000)
        ...     next(batches)
        array([163220656, 162465454])
        """
        self._reader.check_open()
        self._reader.exclusively(partial(self._reader.skip, check_count("skip", "count", count, 0)))

    def set_weights(self, weights: Mapping[str, float] | Sequence[float]) -> None:
        """Give the datasets of a `sample_from_datasets` other weights from the next element on.

        A dict by name if the datasets have names, else one number for each. Elements that were read ahead are drawn
        again, so the next element is the first that is drawn with the new weights, except those that a step after the
        mixture holds already, as a shuffle does. The weights are in the states from here on: a run that resumes from
        one continues with them, unless the weights in the program have changed as well. The next epoch begins with
        those of the program. In `placement="process"` the pipeline gets a new process.

        `PlanError` if the weights do not fit, or if a step after the mixture may read its input again (`cache`,
        `unbatch`, `rebatch`, `flat_map`, `scan`, `unique`).

        >>> import asyncdata as ad
        >>> parts = {"web": ad.Dataset.range(9), "code": ad.Dataset.range(90, 99)}
        >>> with ad.Dataset.sample_from_datasets(parts, {"web": 1, "code": 0}).iterate() as elements:
        ...     before = [next(elements) for _ in range(3)]
        ...     elements.set_weights({"web": 0, "code": 1})
        ...     before, [next(elements) for _ in range(3)]
        ([0, 1, 2], [90, 91, 92])
        """
        self._reader.check_open()
        self._reader.exclusively(partial(self._reader.set_weights, weights))

    def skip_steps(self, steps: range) -> None:
        """Leave out the steps with these numbers, from 0, of this epoch when they are reached; states count them.

        Call it again after a resume: what is left of the range is left out. The elements are made and dropped. The
        failure of a source is not left out. To leave out what is in them for good, on all ranks and in later epochs,
        see `Dataset.exclude`.

        >>> import asyncdata as ad
        >>> with ad.Dataset.range(8).batch(2).iterate() as batches:
        ...     batches.skip_steps(range(1, 3))
        ...     [batch.tolist() for batch in batches]
        [[0, 1], [6, 7]]
        """
        if type(steps) is not range or steps.step != 1 or steps.start < 0:
            raise PlanError(f"skip_steps() takes the numbers of steps, as range(100, 110), got {steps!r:.80}")
        self._reader.check_open()
        self._reader.exclusively(partial(self._reader.skip_steps, steps))

    def paused(self) -> AbstractContextManager[None]:
        """Pause `prefetch_to_device` until this is left: it copies nothing, and does not call the device.

        CUDA refuses to capture a graph while another thread does either. Copies in progress are awaited first. Request
        no element meanwhile. Without `prefetch_to_device` it does nothing.

        >>> import asyncdata as ad
        >>> from asyncdata.devices.simulated import Accelerator
        >>> with ad.Dataset.range(8).batch(4).prefetch_to_device(Accelerator()).iterate() as batches:
        ...     first = next(batches)
        ...     with batches.paused():
        ...         pass  # capture a graph
        """
        from asyncdata.devices.engine import DeviceEngine

        engine = self._reader.engine
        return engine.paused() if isinstance(engine, DeviceEngine) else nullcontext()

    def close(self) -> None:
        """End the pipeline and wait until it has ended, a second at most. May be called again.

        >>> import asyncdata as ad
        >>> numbers = iter(ad.Dataset.range(5))
        >>> next(numbers)
        0
        >>> numbers.close()  # `with ds.iterate() as numbers` does so by itself
        >>> numbers.stats().state
        'closed'
        """
        self._reader.leave()
        if self._reader.engine is not None:
            self._reader.engine.join()

    async def aclose(self) -> None:
        """End the pipeline and wait until it has ended, without blocking the event loop.

        >>> import asyncio
        >>> import asyncdata as ad
        >>> async def main():
        ...     numbers = ad.Dataset.range(3).iterate()
        ...     first = await anext(numbers)
        ...     await numbers.aclose()  # as the end of `async with` does
        ...     return first
        >>> asyncio.run(main())
        0
        """
        self._reader.leave()
        if self._reader.engine is not None:
            await self._reader.engine.join_async()

    def __repr__(self) -> str:
        reader = self._reader
        state = "closed" if reader.closed else "not begun" if reader.engine is None else "running"
        return f"<DatasetIterator of {reader.plan}, {state}>"


def moved() -> ClosedError:
    """Return the error for a thread that reads while another one closes or moves the iterator."""
    return ClosedError(
        "another thread called close or load_state_dict while this one read; after load_state_dict, the next call "
        "reads from there"
    )


def recorded(path: str | PathLike[str], place: ResumePoint) -> tuple[ResumePoint, RunLog]:
    """Return the place where a run begins that has an id, unless it goes on with one that has none; and its log."""
    from asyncdata.persistence.run_id import run_id
    from asyncdata.persistence.run_log import RunLog

    if not place.run and not place.delivered and not place.resharded and place.start == FRESH:
        place = place._replace(run=[run_id()])
    return place, RunLog.of(path, place)


def copies_to_device(node: PrefetchToDevice) -> Callable[[Engine], Engine]:
    """Return how an engine becomes one whose elements are copied to the device of a node."""
    from asyncdata.devices.choice import device_for
    from asyncdata.devices.engine import DeviceEngine

    device = device_for(node.device)
    return lambda engine: DeviceEngine(engine, device, node)


def run_statistics(plan: Node, run: RunSpec, times: ConsumerTimes, placement: str) -> Statistics:
    """Return the statistics of a run, whose iterator may be gone."""
    from asyncdata.engines.stats import stats_of
    from asyncdata.statistics.statistics import statistics_of

    found = stats_of(plan, run.meters, run.budget)
    *steps, last = found.steps
    if last.inputs and not last.items:  # its buffer is gone
        last = last._replace(items=steps[last.inputs[0]].items)
    return statistics_of(found._replace(steps=(*steps, last)), times, placement, last.items, "ended")


def further(place: ResumePoint, delivered: int, position: Position, count: int) -> ResumePoint:
    """Return the place `count` elements after the one where `delivered` elements have been delivered."""
    start = Start.of({"skip": count, "from": position})
    if not place.resharded:
        with suppress(UnseekableError):
            found = Start.of(place.plan.seek(delivered + count))
            if not any(node.source_fails for node in nodes_of(place.plan)):
                start = found
    return place._replace(delivered=delivered + count, start=start)


def next_block(iterator: DatasetIterator[Any], most: int) -> Block | None:
    """Return at most `most` elements as they are in their block, `None` at the end; raises an element's error.

    For readers that read blocks alone: elements that `next` has read are not among them.
    """
    reader = iterator._reader  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    try:
        return reader.take(most)
    except StopIteration:
        if not reader.exhausted:  # an element's
            raise
        return None


def state_before_latest(iterator: DatasetIterator[Any]) -> dict[str, Any]:
    """Return the state before the last delivered element; at the end of the data, the state at the end."""
    return iterator._reader.state(back=1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def next_within(iterator: DatasetIterator[T], interrupts: DeferredInterrupts) -> T:
    """Return the next element, as `next` does, for a caller that holds Ctrl-C back until it has stored the element."""
    reader = iterator._reader  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    del iterator  # see Reader
    while True:
        for item in reader.items:
            return item
        reader.read(interrupts)
        if not length_hint(reader.items):
            reader.fail()


def ready_elements(iterator: DatasetIterator[T], most: int) -> list[T]:
    """Return at most `most` of the next elements, as far as `next` would return them without waiting."""
    return [*islice(iterator._reader.items, most)]  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def ended_by(iterator: DatasetIterator[Any], error: BaseException) -> bool:
    """Return whether an iterator's error is not an element's error: it would be raised again forever."""
    engine = iterator._reader.engine  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return engine is None or engine.queue.error is error
