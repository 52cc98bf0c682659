"""with_retries and with_timeout: call a function of elements again after an error, or give it up after a time."""

from __future__ import annotations

import asyncio
import faulthandler
import inspect
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial, update_wrapper
from operator import attrgetter
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX
from types import MethodType
from typing import Any, Final, ParamSpec, TypeVar, cast

from asyncdata.errors import PlanError, annotate
from asyncdata.runtime.retry_count import count_retry

__all__ = (
    "LEAVING",
    "MAINS",
    "WORKERS_ALONE",
    "Interrupted",
    "Leaving",
    "Retried",
    "Timed",
    "is_coroutine_function",
    "is_interrupted",
    "unwrapped",
    "waits_in_thread",
    "with_retries",
    "with_timeout",
)

MAINS: Final = ("__main__", "__mp_main__")
"""The module names of the user's script, also in a child of multiprocessing: no other process can import it."""

KILL_AFTER: Final = 5.0
"""Seconds after its time at which a function that no signal interrupts is ended with its process."""

WORKERS_ALONE: Final = (
    "a plain function runs in a thread, and a thread cannot be stopped: run it in worker processes with "
    "map(executor='process'), define it with `async def`, or set a timeout on what it waits for"
)

P = ParamSpec("P")
R = TypeVar("R")


def with_retries(
    fn: Callable[P, R], retries: int = 3, backoff: float = 0.1, on: tuple[type[Exception], ...] = (OSError,)
) -> Callable[P, R]:
    """Return `fn`, called again up to `retries` times where it raises one of `on`, for use wherever a function is.

    The first wait is of `backoff` seconds, each further one twice as long; then the error is raised, with a note. A
    coroutine function waits without blocking anything. A plain one waits in its thread: `map` and `filter` always call
    it in a thread, and `flat_map` and `interleave` refuse it. Leaving the pipeline ends the wait, and nothing is called
    again; a worker process continues to wait. `TimeoutError` is an `OSError`.

    >>> import asyncdata as ad
    >>> async def fetch(name):
    ...     tries.append(name)
    ...     if len(tries) < 3:
    ...         raise ConnectionResetError
    ...     return name.upper()
    >>> tries = []
    >>> list(ad.Dataset.from_iterable("a").map(ad.with_retries(fetch, backoff=0.001))), tries
    (['A'], ['a', 'a', 'a'])
    """
    if not callable(fn):
        raise PlanError(f"with_retries needs a function, got {fn!r:.80}")
    if type(retries) is not int or retries < 0:
        raise PlanError(f"with_retries(retries=) must be an integer of at least 0, got {retries!r}")
    check_seconds("with_retries", "backoff", backoff)
    kind = AwaitedAgain if is_coroutine_function(fn) else Retried
    return cast("Callable[P, R]", kind(fn, retries, backoff, on))


def with_timeout(fn: Callable[P, R], seconds: float) -> Callable[P, R]:
    """Return `fn`, which raises `TimeoutError` if it takes longer than `seconds`.

    A coroutine function is cancelled. A plain function is interrupted in the worker process that calls it, so it needs
    `map(executor="process")`: a thread cannot be stopped. Python code is interrupted by a signal, except on platforms
    without `signal.setitimer`. C code that does not return to Python ends with its process five seconds later, which
    prints its stack; after the second time it is a `WorkerCrashed` in the element's place.

    >>> import asyncio
    >>> import asyncdata as ad
    >>> async def sleep(seconds):
    ...     await asyncio.sleep(seconds)
    >>> list(ad.Dataset.from_iterable([0, 3600]).map(ad.with_timeout(sleep, 0.01)).ignore_errors())
    [None]
    """
    if not callable(fn):
        raise PlanError(f"with_timeout needs a function, got {fn!r:.80}")
    if is_interrupted(fn):
        raise PlanError(f"with_timeout: {fn!r:.80} has a timeout already")
    check_seconds("with_timeout", "seconds", seconds)
    kind = Timed if is_coroutine_function(fn) else Interrupted
    return cast("Callable[P, R]", kind(fn, seconds))


def is_coroutine_function(fn: Any) -> bool:
    """Return whether calling this makes a coroutine; also for an object with such a `__call__`, and partials of it."""
    called = innermost(fn)
    return inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(type(called).__call__)


def waits_in_thread(fn: Any) -> bool:
    """Return whether this is a plain function that may be tried again."""
    return type(innermost(fn)) is Retried


def is_interrupted(fn: Any) -> bool:
    """Return whether this is a plain function with a timeout, which only a worker process can enforce."""
    while isinstance(fn := innermost(fn), Wrapper):
        if type(fn) is Interrupted:
            return True
        fn = fn.func
    return False


def innermost(fn: Any) -> Any:
    """Return the function inside partials and methods of these wrappers."""
    while True:
        if isinstance(fn, partial):
            fn = cast("Any", fn).func
        elif isinstance(fn, MethodType) and isinstance(fn.__func__, Wrapper):
            fn = fn.__func__
        else:
            return fn


def unwrapped(fn: Any) -> Any:
    """Return the user's function inside any number of these wrappers and partials."""
    while isinstance(fn := innermost(fn), Wrapper):
        fn = fn.func
    return fn


def check_seconds(function: str, name: str, value: Any) -> None:
    if not isinstance(value, (int, float)) or not value >= 0:
        raise PlanError(f"{function}({name}=) must be a number of seconds, got {value!r}")


class Leaving:
    """Wakes waiting threads when their pipeline is left. It has no lock, as a finalizer may call it."""

    def __init__(self) -> None:
        self.gate: SimpleQueue[None] = SimpleQueue()

    def say(self) -> None:
        """Wake all waiting threads."""
        self.gate.put(None)

    def within(self, seconds: float) -> bool:
        """Wait so long, or until the pipeline is left; return whether it was."""
        try:
            self.gate.get(timeout=min(seconds, TIMEOUT_MAX))
        except Empty:
            return False
        self.gate.put(None)  # for the others
        return True


LEAVING: Final[ContextVar[Leaving | None]] = ContextVar("LEAVING", default=None)
"""The signal that a context's pipeline was left."""


def left_within(seconds: float) -> bool:
    """Wait so long, or until the pipeline is left that this thread works for; return whether it was."""
    leaving = LEAVING.get()
    if leaving is not None:
        return leaving.within(seconds)
    time.sleep(seconds)
    return False


class Wrapper:
    """A wrapper that calls a function and behaves like it: its names, as a method of a class, and when pickled."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        update_wrapper(self, fn, updated=())  # a callable object may have attributes with the same names
        self.func = fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def __set_name__(self, owner: type, name: str) -> None:
        self.__name__ = name  # by which pickle finds a method, which need not be its function's

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Return it bound as its function would be; itself if that is not bound."""
        bind = getattr(type(self.func), "__get__", None)
        bound: Any = None if bind is None else bind(self.func, instance, owner)
        return MethodType(self, bound.__self__) if getattr(bound, "__func__", None) is self.func else self

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Return the name by which another process finds it in its function's place; else its parts."""
        module, name = getattr(self, "__module__", ""), getattr(self, "__qualname__", "")
        with suppress(KeyError, AttributeError):  # not there by that name
            if module not in MAINS and attrgetter(name)(sys.modules[module]) is self:
                return name
        return super().__reduce_ex__(protocol)


class Retried(Wrapper):
    """A plain function that is called again where it fails, after a wait in the thread that calls it."""

    def __init__(self, fn: Callable[..., Any], retries: int, backoff: float, on: tuple[type[Exception], ...]) -> None:
        super().__init__(fn)
        self.retries = retries
        self.backoff = backoff
        self.on = on

    def is_last(self, number: int, error: Exception) -> bool:
        """Return whether a try, counted from 0, is the last; its error gets a note."""
        if number == self.retries:
            annotate(error, f"after {self.retries} retries")
        return number == self.retries

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        number = 0
        while True:
            try:
                return self.func(*args, **kwargs)
            except self.on as error:
                if self.is_last(number, error) or left_within(self.backoff * 2**number):
                    raise
                count_retry()
            number += 1


class AwaitedAgain(Retried):
    """A coroutine function that is awaited again where it fails, after a wait on its loop."""

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        number = 0
        while True:
            try:
                return await self.func(*args, **kwargs)
            except self.on as error:
                if self.is_last(number, error):
                    raise
                await asyncio.sleep(self.backoff * 2**number)
                count_retry()
            number += 1


class Timed(Wrapper):
    """A coroutine function with a timeout."""

    def __init__(self, fn: Callable[..., Any], seconds: float) -> None:
        super().__init__(fn)
        self.seconds = seconds

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        limit = asyncio.timeout(self.seconds)
        try:
            async with limit:
                return await self.func(*args, **kwargs)
        except TimeoutError:
            if limit.expired():
                raise TimeoutError(f"it took longer than {self.seconds} s") from None
            raise


class Interrupted(Wrapper):
    """A plain function with a timeout, in the main thread of a worker process."""

    def __init__(self, fn: Callable[..., Any], seconds: float) -> None:
        super().__init__(fn)
        self.seconds = seconds

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(f"with_timeout: {WORKERS_ALONE}")
        faulthandler.dump_traceback_later(self.seconds + KILL_AFTER, exit=True, file=2)
        try:
            return self.interrupted(*args, **kwargs)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def interrupted(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, with an alarm that raises in it."""
        if not hasattr(signal, "setitimer"):
            return self.func(*args, **kwargs)
        before = signal.signal(signal.SIGALRM, self.expire)
        try:
            signal.setitimer(signal.ITIMER_REAL, max(self.seconds, 1e-6))
            return self.func(*args, **kwargs)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def expire(self, number: int, frame: object) -> None:
        """Raise in the function."""
        raise TimeoutError(f"it took longer than {self.seconds} s")
