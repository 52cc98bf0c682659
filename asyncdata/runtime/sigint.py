"""Ctrl-C while an iterator is asked for more: it interrupts the waiting, not the bookkeeping."""

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
"""What `signal` is made of: its own functions turn all they see into enums, which takes ten times as long."""

SIGINT: Final = int(signal.SIGINT)
DEFAULT: Final = signal.default_int_handler

OURS: Final = {"anyio", "asyncdata", "jax", "numpy", "sniffio", "torch", "uvloop", *sys.stdlib_module_names}


class DeferredInterrupts:
    """Keeps a Ctrl-C until what runs in here has come to a good place, unless it is a user's function, which it stops.

    `KeyboardInterrupt` is raised wherever the main thread happens to be: where a block has been taken and not yet been
    given out, or in the midst of an event loop, of a task group or of a stage, which would be left half done. So
    `asyncio.Runner` cancels its task instead, and so does this: what is said with `to_stop` is called, and who waits
    looks at `came`. The second Ctrl-C is not kept.

    The handlers of other signals may raise here at any time as well, also where `with` enters or leaves something.
    So what keeps Ctrl-C is entered within this, and both put back the handler that was there before.
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
            self.put_back()
            self.caller = None  # not before: without it all are users' functions
        self.check()

    def put_back(self) -> None:
        """Have the handler that was there before."""
        if SIGNAL.getsignal(SIGINT) is self:  # a user's function may have said something else
            SIGNAL.signal(SIGINT, DEFAULT)

    def check(self) -> None:
        """Raise what was kept."""
        if self.came:
            self.came = False
            raise KeyboardInterrupt

    def to_stop(self, stop: Callable[[], object]) -> None:
        """Say what lets the waiting end."""
        self.stop = stop
        if self.came:
            stop()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take note of a Ctrl-C."""
        if self.came or in_a_users_function(frame, self.caller):
            self.came = False
            raise KeyboardInterrupt
        self.came = True
        if self.stop is not None:
            self.stop()


def in_a_users_function(frame: FrameType | None, caller: FrameType | None) -> bool:
    """Return whether code is running, on behalf of `caller`, that is neither ours nor the standard library's."""
    while frame is not None and frame is not caller:
        module = str(frame.f_globals.get("__name__"))
        if module.partition(".")[0] not in OURS and not module.startswith("namedtuple_"):
            return True
        frame = frame.f_back
    return False


class DeferredSigint:
    """The context in which Ctrl-C is kept, entered within that of its `DeferredInterrupts`."""

    __slots__ = ("interrupts",)

    def __init__(self, interrupts: DeferredInterrupts) -> None:
        self.interrupts = interrupts

    def __enter__(self) -> None:
        interrupts = self.interrupts
        if interrupts.applies:
            interrupts.caller = getattr(currentframe(), "f_back", None)  # a frame in a name of its own would be a cycle
            SIGNAL.signal(SIGINT, interrupts)

    def __exit__(self, *_: object) -> None:
        if self.interrupts.applies:
            self.interrupts.put_back()
