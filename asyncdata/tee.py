"""tee: several consumers of one iteration, none of which gets too far ahead of the others."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from operator import length_hint
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from asyncdata.elements.isolation import isolated
from asyncdata.errors import ClosedError
from asyncdata.iterator import DatasetIterator, ExclusiveUse, Reader, ended_by, next_within, ready_elements
from asyncdata.runtime.block import fail
from asyncdata.runtime.queue import LoopSignal, Signal, ThreadSignal
from asyncdata.statistics.bottleneck import Bottleneck
from asyncdata.statistics.statistics import Statistics
from asyncdata.system import forks
from asyncdata.system.closing import Closable
from asyncdata.system.sigint import DeferredInterrupts, DeferredSigint

__all__ = ("Consumer", "consumers")

T = TypeVar("T")


class PullResult(NamedTuple):
    """An error in an element's place and its traceback, or a message to a consumer; nothing comes after the `last`."""

    error: Exception | None = None
    trace: TracebackType | None = None
    last: bool = False


END: Final = PullResult(last=True)
PULL: Final = PullResult()
"""The consumer that gets this reads the next elements, for all."""
HERE: Final = PullResult()
"""The consumer has elements in its buffer."""
GONE: Final = PullResult()
"""The consumer that gets this was closed."""

RAISING: Final = (fail.__code__, Reader.fail.__code__)
"""A function that raises errors with the traceback that they had."""


class ConsumerBuffer:
    """The buffer of one consumer: the elements and errors that were read for it, in order.

    The consumer's thread takes elements out of `items` without a lock; all else happens under that of `TeeState`.
    """

    __slots__ = ("alone", "at_once", "errors", "items", "signal", "taken", "waiting")

    def __init__(self) -> None:
        self.taken: Iterator[Any] = iter(())
        """An element that is its own alone, until it is delivered: Ctrl-C may prevent that."""
        self.errors: Iterator[PullResult] = iter(())
        """An error in an element's place, likewise."""
        self.items: Iterator[Any] = iter(())
        """Elements that it takes without asking. Other consumers may take them back until then."""
        self.waiting: deque[Any] = deque()
        """Elements and errors after them, which it must ask for."""
        self.at_once = 1
        self.signal: Signal | None = None
        self.alone = ExclusiveUse()

    def __len__(self) -> int:
        return length_hint(self.items) + len(self.waiting)

    @property
    def has_item(self) -> bool:
        """Whether it can take an element or an error without asking."""
        return length_hint(self.items) + length_hint(self.taken) + length_hint(self.errors) > 0

    def take_one(self) -> PullResult:
        """Take the next item, so that it is no longer counted."""
        first = self.waiting.popleft()
        if type(first) is PullResult:
            self.errors = iter((first,))
        else:
            self.taken = iter((first,))
        return HERE

    def take_some(self) -> PullResult:
        """Take elements up to the next error, each time twice as many; an error alone."""
        waiting, some, most = self.waiting, list[Any](), self.at_once
        while waiting and type(waiting[0]) is not PullResult and len(some) < most:
            some.append(waiting.popleft())
        if not some:
            return self.take_one()
        if len(some) == most:
            self.at_once *= 2
        self.items = iter(some)
        return HERE

    def take_back(self) -> None:
        """Make it ask for each element again, as another consumer waits until it has fewer."""
        self.waiting.extendleft(reversed([*self.items]))  # in one step: the consumer may be taking one meanwhile
        self.at_once = 1

    def leave(self) -> None:
        """Deliver nothing more."""
        self.taken = self.errors = self.items = iter(())


class TeeState:
    """The shared part of the consumers: the iterator, the items that each has not taken yet, and who waits.

    One consumer at a time reads for all: as many elements as are ready and as fit into the slowest consumer's buffer.
    Consumers may be in several threads, so what changes is under `lock`; `gone` and `wake` need none.
    """

    def __init__(self, iterator: DatasetIterator[Any], count: int, size: int) -> None:
        self.iterator = iterator
        self.size = size
        self.lock = threading.Lock()
        self.consumers = {number: ConsumerBuffer() for number in range(count)}
        self.gone: deque[int] = deque()
        self.space = size
        self.pulling = self.starved = False
        self.ended: PullResult | None = None
        forks.register(self)

    def disown(self) -> None:
        """Drop all in a forked child, where the iterator raises that it is the parent's."""
        self.lock = threading.Lock()
        self.pulling = self.starved = False
        for consumer in self.consumers.values():
            consumer.leave()
            consumer.waiting.clear()
            consumer.signal = None
            consumer.alone = ExclusiveUse()

    def look(self, number: int) -> PullResult | None:
        """Return the next item for a consumer that has taken all of its items; `None` to wait."""
        with self.lock:
            self.let_go()
            consumer = self.consumers.get(number)
            if consumer is None:
                return GONE
            if not consumer.waiting:
                return self.ended or self.pulled()
            outcome = consumer.take_one() if self.starved else consumer.take_some()
            self.starved = self.starved and not self.has_space()
        self.wake()
        return outcome

    def pulled(self) -> PullResult | None:
        """Let a consumer read if no other does and the buffers have space; if not, the slowest must report what it
        takes."""
        if self.pulling:
            return None
        for consumer in self.consumers.values():
            if len(consumer) >= self.size:
                self.starved = True
                consumer.take_back()
        self.space = self.size - max(map(len, self.consumers.values()))
        if self.space < 1:
            return None
        self.starved, self.pulling = False, True
        return PULL

    def may_look(self, number: int) -> bool:
        """Return whether waiting is over."""
        consumer = self.consumers.get(number)
        if consumer is None or consumer.waiting or self.ended or self.gone:
            return True
        return not self.pulling and self.has_space()

    def has_space(self) -> bool:
        """Return whether every consumer's buffer has space."""
        return all(len(consumer) < self.size for consumer in [*self.consumers.values()])

    def give(self, read: list[Any]) -> None:
        """Hand out the elements that were read; nothing if the consumer that read was cancelled."""
        with self.lock:
            self.let_go()
            self.pulling = False
            if read and type(read[-1]) is PullResult and read[-1].last:
                self.ended = read.pop()
            for consumer in self.consumers.values():
                consumer.waiting.extend(read if read and type(read[0]) is PullResult else isolated(read))
        self.wake()

    def wake(self) -> None:
        for consumer in [*self.consumers.values()]:
            if consumer.signal is not None:
                consumer.signal.notify()

    def leave(self, number: int) -> bool:
        """Remove a consumer; return whether it was the last one."""
        self.forget(number)
        with self.lock:
            self.let_go()
            return not self.consumers

    def forget(self, number: int) -> None:
        """Record that a consumer is gone; also from a finalizer, which may not take the lock."""
        self.gone.append(number)
        self.wake()

    def let_go(self) -> None:
        """Drop the buffers of consumers that are gone."""
        while self.gone:
            self.consumers.pop(self.gone.popleft(), None)


class Consumer(Closable, Generic[T]):
    """One of several consumers of an iteration: read it with `for` or `async for`, once. See `Dataset.tee`."""

    def __init__(self, shared: TeeState, number: int) -> None:
        self._shared = shared
        self._number = number
        self._consumer = shared.consumers[number]
        weakref.finalize(self, shared.forget, number).atexit = False  # at exit the iterator says why it ends

    def __iter__(self) -> Self:
        return self

    def __aiter__(self) -> Self:
        return self

    def __next__(self) -> T:
        consumer = self._consumer
        for item in consumer.items:
            return item
        shared, number, outcome = self._shared, self._number, HERE
        try:
            while True:
                outcome = settled(shared, number, consumer)
                # nothing is called once an item is taken: Ctrl-C could come when the call has returned, and lose it
                for item in consumer.items:
                    return item
                for item in consumer.taken:
                    return item
                raise_error(consumer, outcome, StopIteration)
        finally:
            del self, shared, consumer, outcome  # a traceback may hold this frame

    async def __anext__(self) -> T:
        consumer = self._consumer
        for item in consumer.items:
            return item
        shared, number, outcome = self._shared, self._number, HERE
        try:
            while True:
                outcome = await settled_async(shared, number, consumer)
                # nothing is called once an item is taken: Ctrl-C could come when the call has returned, and lose it
                for item in consumer.items:
                    return item
                for item in consumer.taken:
                    return item
                raise_error(consumer, outcome, StopAsyncIteration)
        finally:
            del self, shared, consumer, outcome  # a traceback may hold this frame

    def stats(self) -> Statistics:
        """Return the statistics of the pipeline that all consumers read: see `DatasetIterator.stats`."""
        return self._shared.iterator.stats()

    def monitor(self) -> Callable[[], Statistics]:
        """Return a function that returns the statistics, for observers: see `DatasetIterator.monitor`."""
        return self._shared.iterator.monitor()

    def bottleneck(self) -> Bottleneck:
        """Return which step limits the pipeline, and what to do: see `DatasetIterator.bottleneck`."""
        return self._shared.iterator.bottleneck()

    def close(self) -> None:
        """Stop reading. The others continue; the last one to be closed ends the pipeline."""
        self._consumer.leave()
        if self._shared.leave(self._number):
            self._shared.iterator.close()

    async def aclose(self) -> None:
        """Stop reading, as `close` does, without blocking the event loop."""
        self._consumer.leave()
        if self._shared.leave(self._number):
            await self._shared.iterator.aclose()


def settled(shared: TeeState, number: int, consumer: ConsumerBuffer) -> PullResult:
    """Wait until a consumer has an item to take, `HERE`, or gets a message; read for all if it is its turn."""
    me = object()
    try:
        consumer.alone.enter(me)
        with DeferredInterrupts() as interrupts, DeferredSigint(interrupts):
            while not consumer.has_item:
                outcome = shared.look(number)
                if outcome is PULL:
                    pull(shared, interrupts)
                elif outcome is None:
                    thread_wait(consumer, partial(shared.may_look, number), interrupts)
                else:
                    return outcome
        return HERE
    finally:
        consumer.alone.readers.pop(me, None)


async def settled_async(shared: TeeState, number: int, consumer: ConsumerBuffer) -> PullResult:
    """Wait until a consumer has an item to take, `HERE`, or gets a message; read for all if it is its turn."""
    me = object()
    try:
        consumer.alone.enter(me)
        while not consumer.has_item:
            outcome = shared.look(number)
            if outcome is PULL:
                await pull_async(shared)
            elif outcome is None:
                await loop_wait(consumer, partial(shared.may_look, number))
            else:
                return outcome
        return HERE
    finally:
        consumer.alone.readers.pop(me, None)


def pull(shared: TeeState, interrupts: DeferredInterrupts) -> None:
    """Read for all consumers; if this one is interrupted meanwhile, another continues."""
    read: list[Any] = []
    try:
        read = [next_within(shared.iterator, interrupts), *ready_elements(shared.iterator, shared.space - 1)]
    except StopIteration:
        read = [END]
    except Exception as error:  # noqa: BLE001  it belongs to all consumers
        read = [failed(shared, error)]
    finally:
        shared.give(read)
        del shared, read  # a traceback may hold this frame


async def pull_async(shared: TeeState) -> None:
    """Read for all consumers; if this one is cancelled meanwhile, another continues."""
    read: list[Any] = []
    try:
        read = [await anext(shared.iterator), *ready_elements(shared.iterator, shared.space - 1)]
    except StopAsyncIteration:
        read = [END]
    except Exception as error:  # noqa: BLE001  it belongs to all consumers
        read = [failed(shared, error)]
    finally:
        shared.give(read)
        del shared, read  # a traceback may hold this frame


def failed(shared: TeeState, error: Exception) -> PullResult:
    """Return an error with the traceback from before it was raised here, as those frames hold a consumer."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in RAISING:
        trace = trace.tb_next
    return PullResult(error, trace and trace.tb_next, ended_by(shared.iterator, error))


def thread_wait(consumer: ConsumerBuffer, ready: Callable[[], object], interrupts: DeferredInterrupts) -> None:
    """Wait until `ready()`, or until Ctrl-C."""
    if consumer.signal is None:
        consumer.signal = ThreadSignal()
    if not isinstance(consumer.signal, ThreadSignal):
        raise TypeError("this consumer was started with `async for`: continue with it")
    interrupts.to_stop(partial(consumer.signal.gate.put, None))
    consumer.signal.until(lambda: ready() or interrupts.came)
    interrupts.check()


async def loop_wait(consumer: ConsumerBuffer, ready: Callable[[], object]) -> None:
    """Wait until `ready()` on the running loop; the consumer may have been started on another one."""
    loop = asyncio.get_running_loop()
    if consumer.signal is None or (isinstance(consumer.signal, LoopSignal) and consumer.signal.loop is not loop):
        consumer.signal = LoopSignal(loop, threadsafe=True)
    if not isinstance(consumer.signal, LoopSignal):
        raise TypeError("this consumer was started with `for`: continue with it")
    await consumer.signal.until(ready)


def raise_error(consumer: ConsumerBuffer, outcome: PullResult, stop: type[Exception]) -> None:
    """Raise what a consumer has in place of an element, if another thread did not take it.

    After it is taken nothing may be called, as with elements.
    """
    try:
        for outcome in consumer.errors:  # noqa: B007, PLR1704
            break
        if outcome is HERE:
            return
        if outcome is END:
            raise stop
        if outcome.error is None:
            raise ClosedError("this consumer was closed; start again with tee()")
        outcome.error.__traceback__ = outcome.trace  # without the frames of those that it was raised to before
        raise outcome.error
    finally:
        del consumer, outcome  # a traceback may hold this frame


def consumers(iterator: DatasetIterator[T], count: int, size: int) -> tuple[Consumer[T], ...]:
    """Return consumers of an iterator that are at most `size` elements apart."""
    shared = TeeState(iterator, count, size)
    return tuple([Consumer[T](shared, number) for number in range(count)])
