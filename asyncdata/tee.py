"""tee: several consumers of one iteration, none of which runs too far ahead of the others."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from asyncdata.errors import ClosedError
from asyncdata.iterator import DatasetIterator, Reader, ended_by, next_within
from asyncdata.runtime.block import fail
from asyncdata.runtime.interrupts import Interrupts
from asyncdata.runtime.queue import LoopSignal, Signal, ThreadSignal

__all__ = ("Consumer", "consumers")

T = TypeVar("T")


class Outcome(NamedTuple):
    """An element, or the error in its place and its traceback; nothing comes after the `last` one."""

    value: Any = None
    error: Exception | None = None
    trace: TracebackType | None = None
    last: bool = False


END: Final = Outcome(last=True)
PULL: Final = Outcome()
"""Whoever is told this is to read the next element, for all."""
GONE: Final = Outcome()
"""Whoever is told this was closed."""

RAISING: Final = (fail.__code__, Reader.first_item.__code__)
"""What raises errors with the traceback that they had."""


class Shared:
    """What the consumers have in common: the iterator, what each has not taken yet, and who waits.

    One consumer at a time reads an element, for all of them, when nobody holds too many.
    """

    def __init__(self, iterator: DatasetIterator[Any], count: int, size: int) -> None:
        self.iterator = iterator
        self.size = size
        self.lock = threading.Lock()
        self.waiting: dict[int, deque[Outcome]] = {number: deque() for number in range(count)}
        self.signals: dict[int, Signal] = {}
        self.gone: deque[int] = deque()
        self.pulling = False
        self.ended: Outcome | None = None

    def look(self, number: int) -> Outcome | None:
        """Return the next element of a consumer, or what it is to do; `None` to wait."""
        with self.lock:
            self.let_go()
            if number not in self.waiting:
                return GONE
            mine = self.waiting[number]
            if mine:
                outcome = mine.popleft()
            elif self.ended is not None:
                return self.ended
            elif self.pulling or any(len(other) >= self.size for other in self.waiting.values()):
                return None
            else:
                self.pulling = True
                return PULL
        self.wake()
        return outcome

    def may_look(self, number: int) -> bool:
        """Tell whether waiting is over."""
        if self.waiting.get(number, True) or self.ended or self.gone:
            return True
        return not self.pulling and all(len(other) < self.size for other in [*self.waiting.values()])

    def give(self, outcome: Outcome | None) -> None:
        """Hand out what was read; `None` if nothing was, as whoever read it has been cancelled."""
        with self.lock:
            self.let_go()
            self.pulling = False
            if outcome is not None and outcome.last:
                self.ended = outcome
            elif outcome is not None:
                for other in self.waiting.values():
                    other.append(outcome)
        self.wake()

    def wake(self) -> None:
        """Let all look again."""
        for signal in [*self.signals.values()]:
            signal.notify()

    def leave(self, number: int) -> bool:
        """Let a consumer go; return whether it was the last one."""
        self.forget(number)
        with self.lock:
            self.let_go()
            return not self.waiting

    def forget(self, number: int) -> None:
        """Take note that a consumer is gone; also from a finalizer, which may not take the lock."""
        self.gone.append(number)
        self.wake()

    def let_go(self) -> None:
        """Hold nothing for consumers that are gone."""
        while self.gone:
            self.waiting.pop(self.gone.popleft(), None)


class Consumer(Generic[T]):
    """One of several consumers of an iteration: read it with `for` or `async for`, once. See `Dataset.tee`."""

    def __init__(self, shared: Shared, number: int) -> None:
        self._shared = shared
        self._number = number
        self._taken: deque[Outcome] = deque()  # what Ctrl-C kept from being given out
        weakref.finalize(self, shared.forget, number)

    def __iter__(self) -> Self:
        return self

    def __aiter__(self) -> Self:
        return self

    def __next__(self) -> T:
        shared, number, taken, outcome = self._shared, self._number, self._taken, None
        try:
            with Interrupts() as interrupts:
                while not taken and (outcome := shared.look(number)) is not GONE:
                    if outcome is PULL:
                        pull(shared, interrupts)
                    elif outcome is None:
                        signal = shared.signals.setdefault(number, ThreadSignal())
                        thread_wait(signal, partial(shared.may_look, number), interrupts)
                    else:
                        taken.append(outcome)
            return delivered(taken, StopIteration)
        finally:
            del self, shared, taken, outcome  # a traceback may keep this frame

    async def __anext__(self) -> T:
        shared, number, taken, outcome = self._shared, self._number, self._taken, None
        try:
            while not taken and (outcome := shared.look(number)) is not GONE:
                if outcome is PULL:
                    await pull_async(shared)
                elif outcome is None:
                    await loop_wait(signal_of(shared, number), partial(shared.may_look, number))
                else:
                    taken.append(outcome)
            return delivered(taken, StopAsyncIteration)
        finally:
            del self, shared, taken, outcome  # a traceback may keep this frame

    def close(self) -> None:
        """Read no more. The others go on; the last one to be closed ends the pipeline."""
        self._taken = deque()
        if self._shared.leave(self._number):
            self._shared.iterator.close()

    async def aclose(self) -> None:
        """Read no more, as `close` does, without blocking the event loop."""
        self._taken = deque()
        if self._shared.leave(self._number):
            await self._shared.iterator.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def pull(shared: Shared, interrupts: Interrupts) -> None:
    """Read an element for all consumers; one that is interrupted meanwhile leaves it to the others."""
    outcome: Outcome | None = None
    try:
        outcome = Outcome(next_within(shared.iterator, interrupts))
    except StopIteration:
        outcome = END
    except Exception as error:  # noqa: BLE001  it belongs to all consumers
        outcome = failed(shared, error)
    finally:
        shared.give(outcome)
        del shared, outcome  # a traceback may keep this frame


async def pull_async(shared: Shared) -> None:
    """Read an element for all consumers; one that is cancelled meanwhile leaves it to the others."""
    outcome: Outcome | None = None
    try:
        outcome = Outcome(await anext(shared.iterator))
    except StopAsyncIteration:
        outcome = END
    except Exception as error:  # noqa: BLE001  it belongs to all consumers
        outcome = failed(shared, error)
    finally:
        shared.give(outcome)
        del shared, outcome  # a traceback may keep this frame


def failed(shared: Shared, error: Exception) -> Outcome:
    """Return an error with the traceback that it had before it was raised here, whose frames know a consumer."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in RAISING:
        trace = trace.tb_next
    return Outcome(None, error, trace and trace.tb_next, ended_by(shared.iterator, error))


def signal_of(shared: Shared, number: int) -> Signal:
    """Return what wakes a consumer on the loop that runs; it may have been begun on another one."""
    loop = asyncio.get_running_loop()
    signal = shared.signals.setdefault(number, LoopSignal(loop, threadsafe=True))
    if isinstance(signal, LoopSignal) and signal.loop is not loop:
        signal = shared.signals[number] = LoopSignal(loop, threadsafe=True)
    return signal


def thread_wait(signal: Signal, ready: Callable[[], object], interrupts: Interrupts) -> None:
    """Wait until `ready()`, or until Ctrl-C."""
    if not isinstance(signal, ThreadSignal):
        raise TypeError("this consumer was begun with `async for`: go on with it")
    interrupts.to_stop(partial(signal.gate.put, None))
    signal.until(lambda: ready() or interrupts.came)
    interrupts.check()


async def loop_wait(signal: Signal, ready: Callable[[], object]) -> None:
    if not isinstance(signal, LoopSignal):
        raise TypeError("this consumer was begun with `for`: go on with it")
    await signal.until(ready)


def delivered(taken: deque[Outcome], stop: type[Exception]) -> Any:
    """Return the element that was taken, or raise the error in its place.

    When it has left `taken` nothing may be called: Ctrl-C could come when that has returned, and the element be lost.
    """
    outcome = None
    try:
        for outcome in iter(taken.popleft, None) if taken else ():
            if outcome is END:
                raise stop
            if outcome.error is None:
                return outcome.value
            outcome.error.__traceback__ = outcome.trace  # without the frames of those that it was raised to before
            raise outcome.error
        raise ClosedError("this consumer was closed; begin anew with tee()")
    finally:
        del taken, outcome  # a traceback may keep this frame


def consumers(iterator: DatasetIterator[T], count: int, size: int) -> tuple[Consumer[T], ...]:
    """Return consumers of an iterator that are at most `size` elements apart."""
    shared = Shared(iterator, count, size)
    return tuple([Consumer[T](shared, number) for number in range(count)])
