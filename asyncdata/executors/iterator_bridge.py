"""Bridges: run a user's iterator where it belongs (a thread, an event loop) and hand its items to the engine."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from inspect import isfunction
from itertools import chain, islice, repeat
from operator import length_hint
from queue import SimpleQueue
from typing import Any, Final, Protocol, TypeAlias
from weakref import WeakSet

from asyncdata.elements.columns import ColumnBatch
from asyncdata.errors import ResumeError, StageError
from asyncdata.executors.function_call import INLINE_GROUP, ChunkSizer
from asyncdata.executors.scope import Scope
from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.queue import LoopSignal
from asyncdata.runtime.source_state import SourceSnapshot
from asyncdata.runtime.tickets import Ordinals
from asyncdata.system import forks

__all__ = ("END", "InlineBridge", "IteratorBridge", "LoopBridge", "Notify", "ThreadBridge")

END: Final = object()

QUICK: Final = 1e-4
SWIFT: Final = 4e-6
"""If items take no longer than this each, the reader waits for all requested ones: waking it costs more."""
GROUP: Final = 8

NO_MORE: Final = iter(())
"""Takes the place of an iterator from which nothing more may be taken."""

Notify: TypeAlias = Callable[[], str | ResumeError | None]
"""Returns the state of a source that has states, as JSON: `None` at its start, or why there is no state."""


class ReadyBuffer(Protocol):
    """Items that the other side has made, which the engine takes; true if one may be taken as it is."""

    def __len__(self) -> int: ...

    def append(self, item: Any, /) -> None:
        """Add an item; runs on the other side."""
        ...

    def read(self, group: Iterator[Any]) -> None:
        """Add each item of a group as soon as it is made; runs on the other side."""
        ...

    def take(self, limit: int) -> list[Any] | Block:
        """Return at most `limit` items; nothing if the other side has taken them back.

        A block has them in columns; its tickets are those of its reader to give.
        """
        ...


class Items(deque[Any]):
    """Items one by one."""

    def read(self, group: Iterator[Any]) -> None:
        # not `extend`, by which this would be locked on a free-threaded interpreter until the group is done
        any(map(self.append, group))

    def take(self, limit: int) -> list[Any]:
        return list[Any](map(deque[Any].popleft, repeat(self, min(limit, len(self)))))


class IteratorBridge(Protocol):
    """A source of the items of a user's iterator."""

    @property
    def begun(self) -> bool:
        """Whether the iterator could be made."""
        ...

    async def pull(self, limit: int) -> list[Any] | Block:
        """Return the items that are ready, at least one and at most `limit`; nothing at the end."""
        ...

    def snapshots_of(self, stop: int) -> list[SourceSnapshot]:
        """Return the states that the items before number `stop` go back to; none if the source has no states."""
        ...

    def stop(self) -> None:
        """End it; an item in progress may be finished."""
        ...


class InlineBridge:
    """Runs an iterator that never waits in the engine's own thread, so that no thread has to be woken for its items.

    It reads groups of at most `largest` items and of about a millisecond; several in that time if items come quickly.
    `columns_of` puts a group into columns, or raises. It has no states.
    """

    def __init__(
        self, make: Callable[[], Iterable[Any]], columns_of: Callable[[list[Any]], ColumnBatch], largest: int
    ) -> None:
        self.make = make
        self.columns_of = columns_of
        self.largest = largest
        self.pace = ChunkSizer(INLINE_GROUP)
        self.iterable: Iterable[Any] = ()
        self.items: Iterator[Any] | None = None
        self.odd: list[Any] = []
        """Items that are not in columns: the last one failed, or the failed one must be found among them."""
        self.over = False

    @property
    def begun(self) -> bool:
        return self.items is not None

    async def pull(self, limit: int) -> list[Any] | Block:
        parts: list[ColumnBatch] = []
        left, end = limit, time.perf_counter() + INLINE_GROUP
        while left > 0 and not self.odd and (part := self.read(size := min(left, self.pace.group, self.largest))):
            parts.append(part)
            left -= len(part)
            if size < self.largest or time.perf_counter() > end:
                break
        if parts:
            return Block.of_columns(parts, Ordinals(0, limit - left))
        found, self.odd = self.odd[:limit], self.odd[limit:]
        return found

    def read(self, size: int) -> ColumnBatch | None:
        """Return one group of at most so many items in columns; none if there are none, or if they do not fit into
        columns."""
        if self.over:
            return None
        found: list[Any] = []
        begin = time.perf_counter()
        try:
            found.extend(islice(self.started(), size))
        except BaseException as error:  # becomes an element's failure
            self.over = not self.begun
            self.odd = [*found, Failure(error, True)]
            return None
        self.over = len(found) < size
        if not found:
            return None
        try:
            return self.columns_of(found)
        except Exception:  # the item is named later
            self.odd = found
            return None
        finally:
            self.pace.measured(len(found), time.perf_counter() - begin)

    def started(self) -> Iterator[Any]:
        """Return the iterator, which is made when it is first needed."""
        if self.items is None:
            self.iterable = self.make()
            self.items = iter(self.iterable)
        return self.items

    def snapshots_of(self, stop: int) -> list[SourceSnapshot]:
        return []

    def stop(self) -> None:
        self.over = True
        close(self.iterable)


def items_of(iterable: Iterable[Any]) -> Iterator[Any]:
    """Return an iterator of an iterable; of an iterator without calling its `__iter__`, which may begin anew."""
    if isinstance(iterable, Iterator) and isfunction(getattr(type(iterable), "__iter__", None)):
        return map(next, repeat(iterable))
    return iter(iterable)


def close(iterable: Iterable[Any]) -> None:
    """Close the iterator, if it can be closed."""
    end = getattr(iterable, "close", None)
    if end is not None:
        with suppress(Exception):  # the user's generator refuses to end: the pipeline has ended and cannot report it
            end()


class ThreadRequests:
    """The engine's side of an iterator elsewhere: it requests no more than its reader does, and takes what is ready.

    A source that has states is asked for one before the first item of each request, and after each failure, which need
    not happen again. That is done where it runs, between two items, and the state arrives before the next item.
    """

    def __init__(self, scope: Scope, first: int, ready: ReadyBuffer | None = None, failures: int = 0) -> None:
        self.ready: ReadyBuffer = Items() if ready is None else ready
        self.failures = failures
        self.loop = scope.loop
        self.signal = LoopSignal(scope.loop, threadsafe=True)
        self.patience = 0.0
        """Seconds that the engine waits for a group of items; none while single ones are long in coming."""
        self.enough = 1  # items to be woken for
        self.ordered = 0
        self.over = False
        self.ended = False  # on the other side
        self.begun = False
        self.read_state: Notify | None = None
        self.number: int = first  # of the next item, on the other side
        self.new_snapshots: deque[SourceSnapshot] = deque()
        self.snapshots: list[SourceSnapshot] = []

    def order(self, count: int) -> None:
        """Ask the other side for `count` more items."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the other side; it may finish an item in progress."""
        raise NotImplementedError

    async def pull(self, limit: int) -> list[Any] | Block:
        if self.over:
            return []
        missing = limit - self.ordered
        if missing > 0:
            self.ordered += missing
            self.order(missing)
        if not self.ready:
            await self.arrival(limit)
        while not (items := self.ready.take(limit)):
            await self.signal.until(self.arrived)
        self.ordered -= len(items)
        if isinstance(items, list) and items[-1] is END:
            self.over = True
            items.pop()
        return items

    async def arrival(self, limit: int) -> None:
        """Wait for an item, or for a group of them while they come quickly."""
        since = time.perf_counter()
        if not self.patience or limit == 1:
            await self.signal.until(self.arrived)
            self.patience = 2 * INLINE_GROUP if time.perf_counter() - since < QUICK else 0
            return
        self.enough = limit
        timer = self.loop.call_later(self.patience, self.look)
        try:
            await self.signal.until(self.arrived)
        finally:
            timer.cancel()
            self.enough = 1
        self.patience = patience(len(self.ready), limit, time.perf_counter() - since)

    def arrived(self) -> bool:
        """Return whether there are enough items; if not, a reader is about to wait for them."""
        missing = self.enough - len(self.ready)
        if missing <= 0:
            return True
        self.request_soon(missing)
        return False

    def request_soon(self, missing: int) -> None:
        """Ask the other side to hand over as soon as it has made so many more items."""

    def look(self) -> None:
        """Be content with any item from now on."""
        self.enough = 1
        self.signal.fire()

    def snapshots_of(self, stop: int) -> list[SourceSnapshot]:
        while self.new_snapshots and self.new_snapshots[0].number <= stop:
            self.snapshots.append(self.new_snapshots.popleft())
        found = self.snapshots
        self.snapshots = found[-1:]
        return found

    def ask(self, number: int, failed: bool = False) -> None:
        """Ask the source for its state before item `number`, and behind one that `failed`; runs on the other side."""
        self.failures += failed
        if self.read_state is not None:
            self.new_snapshots.append(SourceSnapshot(number, self.read_state(), self.failures))

    def hand(self, item: Any) -> None:
        """Hand an item to the engine; runs on the other side."""
        self.ready.append(item)
        if item is END:
            self.ended = True
            self.enough = 1
        if self.signal.armed and len(self.ready) >= self.enough:
            self.signal.notify()


def patience(came: int, limit: int, seconds: float) -> float:
    """Return how long to wait for a group, given the last group's items and seconds."""
    if came < min(GROUP, limit):
        return 0
    shortest = 2 * INLINE_GROUP  # uvloop's timers come up to a millisecond too early
    return max(shortest, 2 * seconds * limit / came) if seconds < SWIFT * came else shortest


STARTING: Final = forks.lock()
RUNS: Final[dict[int, WeakSet[ThreadBridge]]] = {}
"""Those whose threads may still run, by the identity of their source; only with the lock."""


class ThreadBridge(ThreadRequests):
    """Runs a plain iterator in a thread of its own, so that one that blocks stalls nothing else; where there are many,
    several have a thread.

    A run of the same `source` that was stopped may be at its last item still, and sources such as the streams of
    Hugging Face hold one state for all their runs: so the thread first waits for the end of that run.

    Items are read in groups of about a millisecond by a loop in C, which takes a permit for each. Without permits it
    ends: so a reader gets an item at once and does not wait for the rest of a group.
    """

    largest = 4096
    """How many items a group may have."""

    def __init__(
        self,
        scope: Scope,
        make: Callable[[], tuple[Iterable[Any], Notify | None]],
        name: str,
        first: int,
        ready: ReadyBuffer | None = None,
        source: object = None,
        failures: int = 0,
    ) -> None:
        super().__init__(scope, first, ready, failures)
        self.make = make
        self.source = source
        self.finished = threading.Event()
        self.orders: SimpleQueue[int | None] = SimpleQueue()
        self.pace = ChunkSizer(INLINE_GROUP)
        self.permits: list[Iterator[Any]] = []
        self.stopped = [] if source is None else self.stopped_runs()
        self.iterable: Iterable[Any] = ()
        self.items: Iterator[Any] | None = None
        self.release: Callable[[], None] | None = None
        self.turns: Callable[[Callable[[], None]], None] | None = None
        """Has the thread that this shares with others do something."""
        forks.register(self)
        sharing = scope.sharing
        if sharing is None or sharing.claim(1):
            self.release = None if sharing is None else partial(sharing.release, 1)
            scope.owned.start(self.run, name)
        else:
            thread, context = sharing.next_single(), scope.owned.context()
            self.turns = lambda do: thread.submit(partial(context.run, do))

    def stopped_runs(self) -> list[ThreadBridge]:
        """Return the runs of the source that were stopped and may be at their last item."""
        with STARTING:
            runs = RUNS.setdefault(id(self.source), WeakSet())
            stopped = [other for other in runs if other.over]
            runs.add(self)
        return stopped

    def order(self, count: int) -> None:
        self.orders.put(count)
        if self.turns is not None:
            self.turns(self.take_turn)

    def request_soon(self, missing: int) -> None:
        if missing < len(self.permits) - 1:  # else the group ends by then
            self.break_off()

    def break_off(self) -> None:
        """End the group after the item that is being made."""
        permits = self.permits
        permits[:] = [NO_MORE] * len(permits)

    def disown(self) -> None:
        """Let the thread end in a child that its iterator has forked."""
        self.over = True
        self.break_off()
        self.orders.put(None)
        self.finished = threading.Event()  # its lock may be held by a thread that the child does not have
        self.finished.set()

    def stop(self) -> None:
        self.over = True
        self.break_off()
        self.orders.put(None)
        if self.turns is not None:
            self.turns(self.end)
        elif self.release is not None:
            self.release()
            self.release = None

    def run(self) -> None:
        """Serve requests until it ends or is stopped."""
        try:
            if (items := self.started()) is not None:
                while not self.ended and not self.over and (count := self.orders.get()) is not None:
                    self.serve(items, count)
        finally:
            self.end()

    def take_turn(self) -> None:
        """Serve one request, in a thread that has others to serve."""
        count = self.orders.get()
        if count is None or self.over or self.ended or (items := self.started()) is None:
            return
        self.serve(items, count)
        if self.ended:
            self.end()

    def started(self) -> Iterator[Any] | None:
        """Make the iterator if there is none, after the runs that were stopped; `None` if that fails."""
        if self.items is None:
            for other in self.stopped:
                other.finished.wait()
            self.stopped.clear()
            try:
                self.iterable, self.read_state = self.make()
                self.items = chain(items_of(self.iterable), self.ending())
            except BaseException as error:  # becomes an element's failure
                self.hand(Failure(error, True))
                self.hand(END)
                return None
            self.begun = True
        return self.items

    def end(self) -> None:
        """Close the iterator."""
        self.permits.clear()
        iterable, self.iterable, self.items = self.iterable, (), None
        try:
            close(iterable)
        finally:
            self.finished.set()
            if self.source is not None:
                self.forget()

    def forget(self) -> None:
        """Record that this run has ended."""
        with STARTING:
            runs = RUNS.get(id(self.source), WeakSet())
            runs.discard(self)
            if not runs:
                RUNS.pop(id(self.source), None)

    def ending(self) -> Iterator[Any]:
        """Yield the failure after the last item, if there is one."""
        self.ended = True
        self.enough = 1
        yield END

    def serve(self, items: Iterator[Any], count: int) -> None:
        """Hand over `count` items, failures included, or as many as there are and the end."""
        left, last = count, self.number + count
        self.ask(self.number)
        while left and not self.ended and not self.over:
            size = min(left, self.pace.group, self.largest)
            permits = iter(self.permitted(items, size))
            begin = time.perf_counter()
            try:
                self.ready.read(map(next, permits))
            except BaseException as error:  # becomes an element's failure
                left -= size + 1 - length_hint(permits)
                self.ask(last - left, failed=True)
                self.hand(Failure(error, True))
                continue
            if used := size - length_hint(permits):
                left -= used
                self.pace.measured(used, time.perf_counter() - begin)
            if self.signal.armed and len(self.ready) >= self.enough:
                self.signal.notify()
        self.number = last

    def permitted(self, items: Iterator[Any], size: int) -> list[Iterator[Any]]:
        """Return the permits for a group, and one that ends it: no more than the reader waits for.

        The reader's demand is checked last: a reader that begins to wait or leaves later takes the permits away.
        """
        self.permits = permits = [items] * (size + 1)
        permits[size] = NO_MORE
        if self.over:
            permits[0] = NO_MORE
        elif self.signal.armed and (missing := max(1, self.enough - len(self.ready))) < size:
            permits[missing] = NO_MORE
        return permits


class LoopBridge(ThreadRequests):
    """Runs an async iterator as a task of the loop that it belongs to, which need not be the engine's.

    `asks_after` returns whether to ask for a state after an item, as an older one might not lead to the same items.
    """

    def __init__(
        self,
        scope: Scope,
        loop: asyncio.AbstractEventLoop,
        make: Callable[[], tuple[AsyncIterator[Any], Notify | None]],
        first: int,
        asks_after: Callable[[Any], bool] | None = None,
        failures: int = 0,
    ) -> None:
        super().__init__(scope, first, failures=failures)
        self.make = make
        self.asks_after = asks_after
        self.scope = scope
        self.consumer_loop = loop
        self.same = loop is scope.loop
        self.quota = 0
        self.fresh = False
        self.task: asyncio.Task[None] | None = None
        self.signal = LoopSignal(scope.loop, threadsafe=not self.same)
        self.orders = LoopSignal(loop)
        self.run_on_consumer_loop(self.begin)

    def run_on_consumer_loop(self, call: Callable[..., None], *args: Any) -> None:
        """Run a plain call on the iterator's loop."""
        if self.same:
            call(*args)
            return
        try:
            self.consumer_loop.call_soon_threadsafe(call, *args)
        except RuntimeError:  # that loop was closed, and its iterator with it
            if not self.over and not self.ended:
                self.fail(StageError("the event loop that the async iterable belongs to has been closed"))

    def fail(self, error: BaseException) -> None:
        """Hand over the failure of the source, which ends it."""
        self.hand(Failure(error, True))
        self.hand(END)

    def begin(self) -> None:
        """Start the task; the error of a task factory of the loop's takes the place of all items."""
        running = self.run()
        try:
            self.task = self.consumer_loop.create_task(running)
        except Exception as error:
            running.close()
            self.fail(error)
        else:
            self.scope.owned.adopt(self.task)

    def order(self, count: int) -> None:
        self.run_on_consumer_loop(self.add, count)

    def add(self, count: int) -> None:
        self.quota += count
        self.fresh = True
        self.orders.notify()

    def stop(self) -> None:
        self.over = True
        self.run_on_consumer_loop(self.cancel)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def allowed(self) -> bool:
        return self.quota > 0

    async def run(self) -> None:
        """Serve orders until the iterator ends; it is closed where it ran."""
        iterator: AsyncIterator[Any] | None = None
        try:
            iterator, self.read_state = self.make()
            self.begun = True
            while True:
                await self.orders.until(self.allowed)
                self.quota -= 1
                if self.fresh:
                    self.fresh = False
                    self.ask(self.number)
                if not await self.step(iterator):
                    break
        except BaseException as error:
            if not self.over:  # not by `stop`: the iterator's own doing, or its loop is being shut down
                self.fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            close = getattr(iterator, "aclose", None)
            if close is not None:
                with suppress(Exception):  # as with a plain generator
                    await close()

    async def step(self, iterator: AsyncIterator[Any]) -> bool:
        """Hand over one item, or the failure in its place; return whether there may be more."""
        item: Any
        try:
            item = await anext(iterator)
        except StopAsyncIteration:
            self.hand(END)
            return False
        except Exception as error:
            item = Failure(error, True)
            self.ask(self.number + 1, failed=True)
        self.number += 1
        if self.asks_after is not None and self.asks_after(iterator):
            self.ask(self.number)
        self.hand(item)
        return True
