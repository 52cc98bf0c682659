"""Defers handlers of signals other than Ctrl-C while our event loop runs in the main thread."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from inspect import currentframe
from types import FrameType
from typing import Any, Final

from asyncdata.system.sigint import SIGNAL, in_a_users_function

__all__ = ("DeferredHandlers", "start_thread")

NAMES: Final = ("SIGALRM", "SIGVTALRM", "SIGPROF", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCHLD")
NUMBERS: Final = tuple([int(getattr(signal, name)) for name in NAMES if hasattr(signal, name)])
"""Signals for which programs set handlers."""

Handler = Callable[[int, FrameType | None], Any]


class DeferredHandlers:
    """Calls the handlers of signals after the loop has stopped; at once if a user's function runs in it.

    An exception from a handler would be raised inside the loop: asyncio drops exceptions from callbacks, and the task
    to be resumed would wait forever. So this calls `stop`, and calls the handler after the loop has ended.
    """

    __slots__ = ("before", "caller", "came", "stop")

    def __init__(self, stop: Callable[[], object] = int) -> None:
        self.before: dict[int, Handler] = {}
        self.came: list[int] = []
        self.caller: FrameType | None = None
        self.stop = stop

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self.caller = getattr(currentframe(), "f_back", None)  # a cycle until the context is left
        try:
            for number in NUMBERS:
                handler = SIGNAL.getsignal(number)
                if callable(handler):
                    self.before[number] = handler
                    SIGNAL.signal(number, self)
        except BaseException:  # from a handler that was not replaced yet
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        handlers = self.before.copy()
        try:
            self.restore()
        finally:
            self.caller = None
        self.handle(handlers, 0)

    def handle(self, handlers: dict[int, Handler], place: int) -> None:
        """Call the handlers of the received signals from this one on, even if one of them raises."""
        if place < len(self.came):
            try:
                handlers[self.came[place]](self.came[place], None)
            finally:
                self.handle(handlers, place + 1)

    def restore(self) -> None:
        """Restore the earlier handlers; one of them may raise meanwhile."""
        try:
            while self.before:
                number = next(iter(self.before))
                if SIGNAL.getsignal(number) is self:  # a user's function may have set another one
                    SIGNAL.signal(number, self.before[number])
                del self.before[number]
        finally:
            if self.before:
                self.restore()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Record a signal, or handle it at once."""
        if in_a_users_function(frame, self.caller):
            self.before[number](number, frame)
        elif number not in self.came:
            self.came.append(number)
            self.stop()


def start_thread(thread: threading.Thread) -> None:
    """Start a thread; what a signal's handler raises meanwhile comes out as it is.

    Where it is raised right after the thread began, `threading` raises a `KeyError` instead, up to Python 3.14.
    """
    try:
        thread.start()
    except KeyError as error:
        raise error.__context__ or error from None
