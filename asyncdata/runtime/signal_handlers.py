"""Handlers of signals other than Ctrl-C, while an event loop of ours runs in the main thread."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from inspect import currentframe
from types import FrameType
from typing import Any, Final

from asyncdata.runtime.sigint import SIGNAL, in_a_users_function

__all__ = ("DeferredHandlers",)

NAMES: Final = ("SIGALRM", "SIGVTALRM", "SIGPROF", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCHLD")
NUMBERS: Final = tuple([int(getattr(signal, name)) for name in NAMES if hasattr(signal, name)])
"""Signals that programs have handlers for."""

Handler = Callable[[int, FrameType | None], Any]


class DeferredHandlers:
    """Calls the handlers of signals once the loop has stopped; at once where a user's function runs in it.

    What a handler raises would be raised in the midst of the loop: asyncio drops what is raised in its callbacks, and
    the task that was to go on waits forever. So the loop is told to `stop`, and the handler is called on leaving.
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
        self.caller = getattr(currentframe(), "f_back", None)  # a cycle until it is left
        try:
            for number in NUMBERS:
                handler = SIGNAL.getsignal(number)
                if callable(handler):
                    self.before[number] = handler
                    SIGNAL.signal(number, self)
        except BaseException:  # of a handler that was not replaced yet
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        handlers = self.before.copy()
        try:
            self.put_back()
        finally:
            self.caller = None
        self.handle(handlers, 0)

    def handle(self, handlers: dict[int, Handler], place: int) -> None:
        """Call the handlers of the signals that came from this one on, also where one of them raises."""
        if place < len(self.came):
            try:
                handlers[self.came[place]](self.came[place], None)
            finally:
                self.handle(handlers, place + 1)

    def put_back(self) -> None:
        """Have the handlers that were there before; one of them may raise meanwhile."""
        try:
            while self.before:
                number = next(iter(self.before))
                if SIGNAL.getsignal(number) is self:  # a user's function may have said something else
                    SIGNAL.signal(number, self.before[number])
                del self.before[number]
        finally:
            if self.before:
                self.put_back()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Take note of a signal, or have it handled."""
        if in_a_users_function(frame, self.caller):
            self.before[number](number, frame)
        elif number not in self.came:
            self.came.append(number)
            self.stop()
