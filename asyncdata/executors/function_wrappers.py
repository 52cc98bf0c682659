"""What wrappers of users' functions have in common, and how the function in them is found."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial, update_wrapper
from operator import attrgetter
from types import MethodType
from typing import Any, Final, cast

__all__ = (
    "MAINS",
    "WORKERS_ALONE",
    "Wrapper",
    "is_coroutine_function",
    "is_interrupted",
    "unwrapped",
    "waits_in_thread",
)

MAINS: Final = ("__main__", "__mp_main__")
"""The module names of the user's script, also in a child of multiprocessing: no other process can import it."""

WORKERS_ALONE: Final = (
    "a plain function runs in a thread, and a thread cannot be stopped: run it in worker processes with "
    "map(executor='process'), define it with `async def`, or set a timeout on what it waits for"
)


class Wrapper:
    """A wrapper that calls a function and behaves like it: its names, as a method of a class, and when pickled."""

    waits_in_thread = False
    """Whether it is a plain function that may be tried again."""
    is_interrupted = False
    """Whether it is a plain function with a timeout."""

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


def is_coroutine_function(fn: Any) -> bool:
    """Return whether calling this makes a coroutine; also for an object with such a `__call__`, and partials of it."""
    called = innermost(fn)
    return inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(type(called).__call__)


def waits_in_thread(fn: Any) -> bool:
    """Return whether this is a plain function that may be tried again."""
    called = innermost(fn)
    return isinstance(called, Wrapper) and called.waits_in_thread


def is_interrupted(fn: Any) -> bool:
    """Return whether this is a plain function with a timeout, which only a worker process can enforce."""
    while isinstance(fn := innermost(fn), Wrapper):
        if fn.is_interrupted:
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
