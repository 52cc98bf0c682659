"""How a user's function is called: over a list at once, in threads, or awaited; with failures in their places."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import sys
import threading
import time
import traceback
from asyncio import CancelledError
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import Executor, Future
from contextlib import suppress
from contextvars import copy_context
from copy import copy
from functools import partial
from itertools import islice, starmap
from math import inf
from pathlib import PurePath
from queue import Empty, SimpleQueue
from types import CoroutineType
from typing import Any, Final, NamedTuple, Self, TypeVar, cast

from asyncdata.errors import PlanError, annotate
from asyncdata.executors.function_wrappers import (
    WORKERS_ALONE,
    is_coroutine_function,
    is_interrupted,
    unwrapped,
    waits_in_thread,
)
from asyncdata.executors.global_random import key_of, seed_generators
from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.source_state import RestorableItem
from asyncdata.runtime.tickets import Numbered, Ticket, Tickets
from asyncdata.system import forks
from asyncdata.system.host_resources import usable_cores

__all__ = (
    "ENDLESS",
    "INLINE_GROUP",
    "LATE",
    "Call",
    "ChunkSizer",
    "Deadline",
    "DroppedError",
    "ElementIndex",
    "ElementNote",
    "PoolExecutor",
    "ThreadPool",
    "default_workers",
    "describe",
    "locate",
    "never",
    "noted",
)

log = logging.getLogger("asyncdata")

T = TypeVar("T")

LAG: Final = 0.1

OTHER_LOOP: Final = (
    "attached to a different loop",
    "bound to a different event loop",
    "Timeout context manager should be used inside a task",
)
"""Texts of errors about a client or a lock from another event loop, asyncio's own and aiohttp's."""

CURRENT: Final = (
    "the function runs on the pipeline's event loop, but uses an object that belongs to another loop: run the "
    'pipeline on your loop with `async for` and Options(placement="current"), or create the object in the function'
)

PACKAGE: Final = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
"""The folder of all code that is not the user's."""

INLINE_GROUP: Final = 1e-3
"""Seconds of work that become one block in the engine's thread. No ready element waits longer for others."""

MOST: Final = 4096

LATE: Final = 0.1
BETWEEN: Final = 1e-4
"""Seconds after which the rest of a group is given up; and seconds between two checks of the clock, if calls take as
long as before."""
LOOKS: Final = 8
"""The clock is checked at least so often in a group."""


class DroppedError(BaseException):
    """Ends the work on a group whose results are no longer wanted; never seen by users."""


def never() -> bool:
    """Return that a group is still wanted."""
    return False


class Deadline(NamedTuple):
    """How long calls may continue: after each `step` of them the time is compared with the `end`."""

    step: int
    end: float
    dropped: Callable[[], bool] = never
    """Whether the results are no longer wanted."""

    @property
    def over(self) -> bool:
        """Whether the end is past, by `time.perf_counter`; `DroppedError` if the results are no longer wanted."""
        self.check()
        return time.perf_counter() > self.end

    def check(self) -> None:
        """Raise `DroppedError` if the results are no longer wanted."""
        if self.dropped():
            raise DroppedError


ENDLESS: Final = Deadline(1 << 62, inf)

READ_ONLY: Final = (
    "the array is shared, with the source, a cache or other readers, or with other worker processes if the function "
    "holds it: change a `.copy()` of it"
)

NO_TERMINAL: Final = (
    "a debugger has no terminal in a worker process: while you debug, call the function in this one, with "
    "executor='inline' in map and without placement='process' in Options, or set PYTHONBREAKPOINT to a debugger that "
    "one connects to"
)

MOST_SHOWN: Final = 4
"""The most members of a batch that a message names."""


def name_of(fn: object) -> str:
    """Return the name of this function for messages."""
    return getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None) or describe_partial(fn)


def describe_partial(fn: object) -> str:
    inner = getattr(fn, "func", None)
    return type(fn).__name__ if inner is None else f"partial({name_of(inner)})"


def locate(fn: object) -> str:
    """Return ` at file:line` of a function's definition, empty when it has none in Python."""
    inner = unwrapped(fn)
    inner = getattr(inner, "func", inner)
    code = getattr(inner, "__code__", None) or getattr(cast("Any", type(inner)).__call__, "__code__", None)
    return "" if code is None else f" at {PurePath(code.co_filename).name}:{code.co_firstlineno}"


def short(fn: object) -> str:
    return name_of(fn).rpartition("<locals>.")[2]


def describe(ticket: Ticket) -> str:
    """Return how an error message names the element with this ticket."""
    if not isinstance(ticket, Tickets):
        place = ticket.channel_place if isinstance(ticket, RestorableItem) else None
        where = "" if place is None else f" (item {place[2]} of the request at byte {place[1]} of the channel)"
        return f"element {shown(ticket)}{where}"
    first, last = shown(ticket[0]), shown(ticket[len(ticket) - 1])
    return f"elements {first} to {last}" if len(ticket) > 1 else f"element {first}"


def shown(ticket: Ticket) -> str:
    """Return the text for a ticket in a message: a batch by its members, of many only the first and the last."""
    if isinstance(ticket, Tickets):
        if len(ticket) > MOST_SHOWN:
            return f"[{shown(ticket[0])}, ..., {shown(ticket[len(ticket) - 1])}]"
        return f"[{', '.join(map(shown, ticket))}]"
    if isinstance(ticket, Numbered):
        return str(ticket.number)
    if not isinstance(ticket, tuple):
        return str(ticket)
    parts = cast("tuple[Any, ...]", ticket)
    if isinstance(parts[0], int) and parts[0] < 0:  # of a cache
        return shown(parts[1])
    return f"({', '.join(map(shown, parts))})"


class ElementIndex:
    """The ticket of an element where a worker process has it: its place in a group.

    `ticket` is the true one, plain, where a function's random numbers depend on it.
    """

    __slots__ = ("number", "ticket")

    def __init__(self, number: int, ticket: Ticket = None) -> None:
        self.number = number
        self.ticket = ticket


class ElementNote(str):
    """A note on an element of which only the place is known; a later step replaces it by the element's name."""

    __slots__ = ()

    def naming(self, ticket: Ticket) -> str:
        """Return the note with the element's name."""
        return f"{self}, {describe(ticket)}"


def noted(error: BaseException, label: str, ticket: Ticket, of_source: bool = False) -> Failure:
    """Return `error` as a failure, with a note that names the stage and the element.

    An error that would end a consumer's loop silently, such as `StopIteration`, becomes the cause of another.
    """
    if isinstance(error, (StopIteration, StopAsyncIteration)):
        cause, error = error, RuntimeError(f"a function raised {type(error).__name__}, which would end the loop")
        error.__cause__ = cause
    if type(error).__name__ == "BdbQuit" and is_worker_process():
        annotate(error, NO_TERMINAL)
    note = ElementNote(f"in {label}") if isinstance(ticket, ElementIndex) else f"in {label}, {describe(ticket)}"
    annotate(error, note)
    return Failure(error, of_source)


def is_worker_process() -> bool:
    """Return whether another process has started this one through multiprocessing."""
    process: Any = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


class Call:
    """A user's function, its name for messages, and the ways to run it over elements."""

    __slots__ = (
        *("__weakref__", "fn", "gives", "is_async", "key", "label", "name", "number"),
        *("shown", "shrinks", "spread", "untouched", "waits"),
    )

    keyed = False
    """Whether its result depends on the element's ticket."""

    is_predicate = False
    """Whether its result only decides if the element stays."""

    many_at_once = False
    """Whether many elements cost less each than few, so that a group may take longer."""

    def __init__(self, kind: str, fn: Callable[..., Any], *, spread: bool = True) -> None:
        if not callable(fn):
            raise PlanError(f"{kind} needs a function, got {fn!r:.80}")
        self.fn = fn
        self.spread = spread
        self.name = self.shown = f"{kind}({short(fn)})"  # the name is part of states, and `shown` of plans
        self.label = self.name + locate(fn)
        self.waits = waits_in_thread(fn)
        self.untouched: tuple[str | int, ...] = ()  # fields that the user declared it does not change
        self.shrinks = False  # whether the user declared that it makes elements smaller
        self.gives: Any = None  # the signature of its results, where that is known
        self.number = 0  # of maps before it
        self.key = b""  # from which global generators are seeded before each element
        self.is_async = is_coroutine_function(fn)
        if kind != "map" and is_interrupted(fn):
            raise PlanError(f"{self.name}: {WORKERS_ALONE}")

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What distinguishes this call from others, besides the function and the name."""
        return ()

    def prompt(self) -> Self:
        """Return the function for where it is called on the loop; `PlanError` if it waits there."""
        if self.waits:
            raise PlanError(
                f"{self.name} would block the pipeline while it waits for its next try: with_retries needs a "
                "coroutine function here; define it with `async def`"
            )
        return self

    def at(self, epoch: tuple[Any, ...]) -> Call:
        return self

    def reseeding(self, key: bytes) -> Self:
        """Return the function as it is called if global generators are seeded before each element."""
        other = copy(self)
        other.key = key
        return other

    def seeding(self, items: Iterator[Any], tickets: Tickets) -> Iterator[Any]:
        """Yield items, each after global generators were seeded for it; a batch has no ticket of its own."""
        for place, item in enumerate(items):
            index = tickets[place]
            if isinstance(index, ElementIndex) and index.ticket is not None:
                seed_generators(key_of(self.key, index.ticket))
            yield item
            del item

    def call_one(self, item: Any) -> Any:
        """Call the function on one element; a tuple is unpacked into arguments."""
        return self.fn(*item) if self.spread and type(item) is tuple else self.fn(item)

    def over(self, items: Any, kinds: set[type]) -> Any:
        """Return a C-level iterator of the function's results over `items`."""
        if not self.spread or tuple not in kinds:
            return map(self.fn, items)
        return starmap(self.fn, items) if len(kinds) == 1 else map(self.call_one, items)

    def run(self, block: Block, term: Deadline = ENDLESS) -> Block:
        """Call the function on each good item of `block`; an error takes the item's place.

        If that takes longer than the term, the last items are left out.
        """
        if block.failed:
            return self.run_pieces(block, term)
        items, tickets, step = block.items, block.tickets, term.step
        kinds, rest = set(map(type, items)), iter(items)
        rest = self.seeding(rest, tickets) if self.key else rest
        results: list[Any] = []
        failed = False
        while (goal := min(len(results) + step, len(items))) > len(results):
            while len(results) < goal:
                try:
                    some = rest if goal == len(items) else islice(rest, goal - len(results))
                    results.extend(self.over(some, kinds))
                except (Exception, CancelledError) as error:
                    results.append(self.failure(error, tickets[len(results)]))
                    failed = True
                    continue
                if len(results) < goal:  # a StopIteration from the function ended the loop in C
                    results.append(self.failure(StopIteration(), tickets[len(results)]))
                    failed = True
            if goal < len(items) and term.over:
                tickets = tickets.slice(0, goal)
                break
        if type(results[-1]) is CoroutineType:
            return self.refuse(results, tickets)
        return Block(results, tickets, failed)

    def run_pieces(self, block: Block, term: Deadline) -> Block:
        """Call the function on a block in which items have failed before."""
        done: list[Block] = []
        for piece in block.pieces():
            done.append(piece if piece.failed else self.run(piece, term))
            if term.over:
                break
        return Block.join(done)

    def each(self, items: Iterator[Any], tickets: Tickets) -> Iterator[Any]:
        """Yield the function's result on one item after the other, or the failure in its place."""
        place = 0
        for item in self.seeding(items, tickets) if self.key else items:
            try:
                result = item if type(item) is Failure else self.call_one(item)
            except (Exception, CancelledError) as error:
                result = self.failure(error, tickets[place])
            if type(result) is CoroutineType:
                result.close()
                result = self.failure(self.not_awaited(), tickets[place])
            yield result
            del item, result  # the next result may use the same memory
            place += 1  # noqa: SIM113 - its tuple would hold the item

    def not_awaited(self) -> TypeError:
        """Return the error of a plain function that returned a coroutine."""
        partial = "or give functools.partial(...) of a coroutine function instead of a lambda"
        return TypeError(f"{self.name} returned a coroutine: define the function with `async def`, {partial}")

    def refuse(self, results: list[Any], tickets: Tickets) -> Block:
        """Turn coroutines that will not be awaited into failures."""
        for place, result in enumerate(results):
            if type(result) is CoroutineType:
                result.close()
                results[place] = self.failure(self.not_awaited(), tickets[place])
        return Block(results, tickets, True)

    async def run_async(self, item: Any, ticket: Ticket) -> Any:
        """Await the function on one element; return the result, or a `Failure` in its place."""
        try:
            result = self.call_one(item)
            return await WatchedCall(result, self.label, ticket) if inspect.iscoroutine(result) else await result
        except CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return self.failure(error, ticket)
        except Exception as error:
            return self.failure(error, ticket)

    def failure(self, error: BaseException, ticket: Ticket) -> Failure:
        """Return `error` as this function's failure on the element with `ticket`."""
        failure = noted(error, self.label, ticket)
        if self.spread and type(error) is TypeError and "positional argument" in str(error) and not entered(error):
            annotate(error, "a tuple is unpacked into arguments; any other element is one argument")
            annotate(error, "to return several values, a function must return a tuple: a list is one value")
        if isinstance(error, RuntimeError) and any(words in str(error) for words in OTHER_LOOP):
            annotate(error, CURRENT)
        if isinstance(error, ValueError) and "read-only" in str(error):
            annotate(error, READ_ONLY)
        return failure


def entered(error: BaseException) -> bool:
    """Return whether an error comes from within a function, and not from the call of it here."""
    frames = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    return not all(path.startswith(PACKAGE) for path in frames)


class WatchedCall:
    """A coroutine whose every step is timed: one that blocks its event loop is named in a warning."""

    __slots__ = ("coroutine", "label", "ticket")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], label: str, ticket: Ticket) -> None:
        self.coroutine = coroutine
        self.label = label
        self.ticket = ticket

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[Any], Any] = self.coroutine.send
        value: Any = None
        while True:
            begin = time.perf_counter()
            try:
                waits_for = step(value)
            except StopIteration as stop:
                return stop.value
            finally:
                self.check(time.perf_counter() - begin)
            try:
                step, value = self.coroutine.send, (yield waits_for)
            except GeneratorExit:
                self.coroutine.close()
                raise
            except BaseException as error:  # handed to the coroutine, as `yield from` does
                step, value = self.coroutine.throw, error

    def check(self, seconds: float) -> None:
        """Warn if one step held the loop for too long."""
        if seconds > LAG:
            advice = "await instead of blocking, or give a plain function and executor='thread'"
            log.warning(
                "in %s, %s: blocked the event loop for %.2f s; %s", self.label, describe(self.ticket), seconds, advice
            )


class ChunkSizer:
    """How many elements make a group of about `target` seconds of work: learned as it runs, growing from one."""

    __slots__ = ("each", "group", "most", "target")

    def __init__(self, target: float, most: int = MOST) -> None:
        self.target = target
        self.most = most
        self.group = 1
        self.each = inf
        """Seconds that an element took in the last group."""

    def term(self, dropped: Callable[[], bool] = never) -> Deadline:
        """Return how long a group that begins now may take; nothing of it is wanted once it is `dropped`."""
        each = self.each  # which other threads change
        step = int(BETWEEN / each) if each > 0 else MOST
        return Deadline(max(1, min(step, self.group // LOOKS)), time.perf_counter() + LATE, dropped)

    def measured(self, count: int, seconds: float) -> None:
        """Adapt to a group of `count` elements that took `seconds`."""
        self.each = seconds / count
        fits = int(self.target * count / seconds) if seconds > 0 else self.most
        self.group = max(1, min(fits, self.group * 2, self.most))


class ThreadPool:
    """Threads that take jobs from one queue, started as they are needed.

    Not `concurrent.futures`: its threads are joined when the interpreter exits, so that a user's function which never
    returns would hang it, and an empty job costs it 12 microseconds against 0.2 here.
    """

    def __init__(self, start: Callable[[Callable[[], None], str], None], count: int, name: str) -> None:
        self.start = start
        self.count = count
        self.name = name
        self.jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.stopped = False
        self.running = 0
        self.submitted = 0
        self.finished = 0
        self.counting = threading.Lock()  # of what several threads have finished

    def submit(self, job: Callable[[], None]) -> None:
        """Queue a job, which may not raise; after `stop` it is dropped."""
        if self.stopped:
            return
        self.submitted += 1
        self.jobs.put(job)
        if self.running < self.count and self.submitted - self.finished > self.running:
            if not self.running:
                forks.register(self)
            self.running += 1
            self.start(self.work, f"{self.name}-{self.running}")

    def disown(self) -> None:
        """Let a thread whose job has forked end in the child."""
        self.stop()

    def work(self) -> None:
        """Run jobs until the end."""
        while (job := self.jobs.get()) is not None:
            job()
            with self.counting:
                self.finished += 1
            job = None

    def stop(self) -> None:
        """End every thread once its current job is done; jobs that have not started are dropped."""
        self.stopped = True
        with suppress(Empty):
            while True:
                self.jobs.get_nowait()
        self.finish()

    def resize(self, count: int) -> None:
        """Have at most so many threads, from when the jobs before are done."""
        self.count = count
        for _ in range(self.running - count):
            self.jobs.put(None)
        self.running = min(self.running, count)

    def finish(self) -> None:
        """Let every thread end once the jobs before are done."""
        for _ in range(self.running):
            self.jobs.put(None)


class PoolExecutor(Executor):
    """The threads of a pool as an executor of `concurrent.futures`, for aiofiles; the pool's owner ends them."""

    def __init__(self, threads: ThreadPool) -> None:
        self.threads = threads

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call a function in one of the threads, in the context of the caller."""
        future: Future[T] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.threads.submit(partial(copy_context().run, job))
        return future


def default_workers() -> int:
    """Return how many workers AUTOTUNE starts: as many as the standard thread pool does."""
    return min(32, usable_cores() + 4)
