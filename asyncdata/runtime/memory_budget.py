"""The budget of a running pipeline: how many bytes its buffers that tune themselves may hold together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

from asyncdata.runtime.host_resources import available_bytes

__all__ = ("MemoryBudget", "Reservation")

LITTLE: Final = 16 << 20
"""Bytes that a pipeline may hold without asking how many are available, which takes as long as to start a small one."""


class MemoryBudget:
    """So many bytes; half of what is available when the first of them matter, if nobody said how many."""

    def __init__(self, total: int | None = None) -> None:
        self.given = total
        self.taken = 0
        self.freed: deque[int] = deque()
        self.buffers: WeakKeyDictionary[object, Callable[[], dict[str, Any]]] = WeakKeyDictionary()
        """What the buffers of steps tell of themselves."""
        self.lock = threading.Lock()

    @property
    def total(self) -> int:
        """How many bytes there are."""
        if self.given is None:
            self.given = available_bytes() // 2
        return self.given

    @property
    def held(self) -> int:
        """How many bytes the buffers may hold that are there now."""
        return max(0, self.taken - sum([*self.freed]))

    def share(self, copies: int = 1) -> Reservation:
        """Return what a new buffer has of it, which may hold everything so many times over."""
        return Reservation(self, copies)

    def grant(self, share: Reservation, wanted: int, least: int) -> None:
        """Let a share have so many bytes instead of those that it has, or what is left, but no less than `least`."""
        with self.lock:
            while self.freed:
                self.taken -= self.freed.popleft()
            self.taken -= share.bytes
            if self.given is not None or self.taken + wanted > LITTLE:
                wanted = min(wanted, self.total - self.taken)
            share.bytes = max(least, wanted)
            self.taken += share.bytes


class Reservation:
    """What one buffer has of the budget, as long as the buffer is there."""

    __slots__ = ("budget", "bytes", "copies")

    def __init__(self, budget: MemoryBudget, copies: int) -> None:
        self.budget = budget
        self.copies = copies
        self.bytes = 0

    def claim(self, wanted: int, least: int = 0) -> int:
        """Have so many bytes, or what is left of the budget, but no less than `least`; return how many there are.

        Up to half of them may be more than wanted. From any thread: the reader of the last buffer is in another one
        than those of all others.
        """
        wanted, least = wanted * self.copies, least * self.copies
        if not self.bytes <= 2 * wanted <= 2 * self.bytes:
            self.budget.grant(self, wanted, least)
        return self.bytes // self.copies

    def __del__(self) -> None:
        """Give it back without the lock, which whoever is interrupted by this may hold."""
        with suppress(AttributeError):  # a signal handler has raised before it was made
            self.budget.freed.append(self.bytes)
