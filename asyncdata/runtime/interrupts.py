"""Ctrl-C while a private event loop runs in the main thread: it interrupts the waiting, not the loop's own work."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final, Self

__all__ = ("Interrupts",)

OURS: Final = {"anyio", "asyncdata", "numpy", "sniffio", *sys.stdlib_module_names}


class Interrupts:
    """Keeps a Ctrl-C until the loop has stopped, unless a user's function is running, which it interrupts.

    `KeyboardInterrupt` is raised wherever the main thread happens to be: in the midst of the loop, of a task group's
    bookkeeping or of a stage, which would be left half done. So `asyncio.Runner` cancels its task instead, and so does
    this: what is said with `to_stop` is called on the loop. The second Ctrl-C is not kept.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.came = False
        self.stop: Callable[[], object] | None = None
        self.kept = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )

    def __enter__(self) -> Self:
        if self.kept:
            signal.signal(signal.SIGINT, self)
        return self

    def __exit__(self, *_: object) -> None:
        if self.kept:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self.came:
            raise KeyboardInterrupt

    def to_stop(self, stop: Callable[[], object]) -> None:
        """Say what lets the loop stop."""
        self.stop = stop
        if self.came:
            stop()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take note of a Ctrl-C."""
        if self.came or in_a_users_function(frame):
            self.came = False
            raise KeyboardInterrupt
        self.came = True
        if self.stop is not None:
            self.loop.call_soon_threadsafe(self.stop)


def in_a_users_function(frame: FrameType | None) -> bool:
    """Tell whether code is running that is neither ours nor the standard library's, called by the loop."""
    while frame is not None and frame.f_globals.get("__name__") != "asyncdata.runtime.bridge":
        module = str(frame.f_globals.get("__name__"))
        if module.partition(".")[0] not in OURS and not module.startswith("namedtuple_"):
            return True
        frame = frame.f_back
    return False
