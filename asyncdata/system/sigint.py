"""Ctrl-C during `next()`: it interrupts the waiting, not the bookkeeping."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from inspect import currentframe
from types import FrameType
from typing import Final, Self

__all__ = ("SIGNAL", "DeferredInterrupts", "DeferredSigint", "in_a_users_function")

SIGNAL: Final = import_module("_signal")
"""The C module under `signal`, whose own functions convert values to enums, which takes ten times as long."""

SIGINT: Final = int(signal.SIGINT)
DEFAULT: Final = signal.default_int_handler

OURS: Final = {"anyio", "asyncdata", "jax", "numpy", "sniffio", "torch", "uvloop", *sys.stdlib_module_names}


class DeferredInterrupts:
    """Defers a Ctrl-C until the code in the block reaches a safe point, unless a user's function runs, which it stops.

    `KeyboardInterrupt` is raised wherever the main thread is: after a block was taken and before it was delivered, or
    inside an event loop, a task group or a stage, which would be left inconsistent. So `asyncio.Runner` cancels its
    task instead. This does the same: it calls the callback given to `to_stop`, and the waiting code checks `came`. A
    second Ctrl-C is not deferred.

    Handlers of other signals may also raise at any time, even where `with` enters or leaves a context. So
    `DeferredSigint` is entered within this, and both restore the earlier handler.
    """

    __slots__ = ("applies", "caller", "came", "stop")

    def __init__(self) -> None:
        self.came = False
        self.stop: Callable[[], object] | None = None
        self.caller: FrameType | None = None
        self.applies = threading.get_ident() == threading.main_thread().ident and SIGNAL.getsignal(SIGINT) is DEFAULT

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.applies:
            self.restore()
            self.caller = None  # last, as without it every function counts as a user's
        self.check()

    def restore(self) -> None:
        """Restore the earlier handler."""
        if SIGNAL.getsignal(SIGINT) is self:  # a user's function may have set another one
            SIGNAL.signal(SIGINT, DEFAULT)

    def check(self) -> None:
        """Raise a deferred Ctrl-C."""
        if self.came:
            self.came = False
            raise KeyboardInterrupt

    def to_stop(self, stop: Callable[[], object]) -> None:
        """Set the callback that ends the waiting."""
        self.stop = stop
        if self.came:
            stop()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a Ctrl-C."""
        if self.came or in_a_users_function(frame, self.caller):
            self.came = False
            raise KeyboardInterrupt
        self.came = True
        if self.stop is not None:
            self.stop()


def in_a_users_function(frame: FrameType | None, caller: FrameType | None) -> bool:
    """Return whether code called by `caller` is running that is neither ours nor the standard library's."""
    while frame is not None and frame is not caller:
        module = str(frame.f_globals.get("__name__"))
        if module.partition(".")[0] not in OURS and not module.startswith("namedtuple_"):
            return True
        frame = frame.f_back
    return False


class DeferredSigint:
    """The context in which Ctrl-C is deferred, entered within that of its `DeferredInterrupts`."""

    __slots__ = ("interrupts",)

    def __init__(self, interrupts: DeferredInterrupts) -> None:
        self.interrupts = interrupts

    def __enter__(self) -> None:
        interrupts = self.interrupts
        if interrupts.applies:
            interrupts.caller = getattr(currentframe(), "f_back", None)  # a frame in a local variable would be a cycle
            SIGNAL.signal(SIGINT, interrupts)

    def __exit__(self, *_: object) -> None:
        if self.interrupts.applies:
            self.interrupts.restore()
