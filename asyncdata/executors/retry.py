"""with_retries and with_timeout: call a function of elements again after an error, or give it up after a time."""

from __future__ import annotations

import asyncio
import faulthandler
import signal
import threading
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar, cast

from asyncdata.errors import PlanError, annotate
from asyncdata.executors.function_wrappers import WORKERS_ALONE, Wrapper, is_coroutine_function, is_interrupted
from asyncdata.executors.leaving import left_within
from asyncdata.runtime.retry_count import count_retry

__all__ = ("Interrupted", "Retried", "Timed", "with_retries", "with_timeout")

KILL_AFTER: Final = 5.0
"""Seconds after its time at which a function that no signal interrupts is ended with its process."""

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


def check_seconds(function: str, name: str, value: Any) -> None:
    if not isinstance(value, (int, float)) or not value >= 0:
        raise PlanError(f"{function}({name}=) must be a number of seconds, got {value!r}")


class Retried(Wrapper):
    """A plain function that is called again where it fails, after a wait in the thread that calls it."""

    waits_in_thread = True

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

    waits_in_thread = False

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

    is_interrupted = True

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
