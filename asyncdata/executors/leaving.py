"""How threads that wait hear that their pipeline is left."""

from __future__ import annotations

import time
from contextvars import ContextVar
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX
from typing import Final

__all__ = ("LEAVING", "Leaving", "left_within")


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
