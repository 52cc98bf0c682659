"""MemoryBudget: how many bytes the self-tuning buffers of a running pipeline may hold together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from asyncdata.system.host_resources import available_bytes

__all__ = ("MemoryBudget", "Reservation")

LITTLE: Final = 16 << 20
"""Bytes that a pipeline may hold before it asks how many are available, which takes as long as starting a pipeline."""


class MemoryBudget:
    """A number of bytes; by default half of the memory that is available when the pipeline first needs much.

    Buffers of several threads share it, under `lock`; a finalizer, which may not take that, adds to `freed`.
    """

    def __init__(self, total: int | None = None) -> None:
        self.given = total
        self.taken = 0
        self.freed: deque[int] = deque()
        self.buffers: WeakKeyDictionary[object, Callable[[], dict[str, Any]]] = WeakKeyDictionary()
        """Functions that return the statistics of steps' buffers."""
        self.lock = threading.Lock()

    @property
    def total(self) -> int:
        """The size of the budget in bytes."""
        if self.given is None:
            self.given = available_bytes() // 2
        return self.given

    @property
    def held(self) -> int:
        """How many bytes the existing buffers may hold."""
        return max(0, self.taken - sum([*self.freed]))

    def share(self, copies: int = 1) -> Reservation:
        """Return a reservation for a new buffer, which may hold `copies` copies of each element."""
        return Reservation(self, copies)

    def grant(self, share: Reservation, wanted: int, least: int) -> None:
        """Change a reservation to `wanted` bytes, or to what is left, but at least to `least`."""
        with self.lock:
            while self.freed:
                self.taken -= self.freed.popleft()
            self.taken -= share.bytes
            if self.given is not None or self.taken + wanted > LITTLE:
                wanted = min(wanted, self.total - self.taken)
            share.bytes = max(least, wanted)
            self.taken += share.bytes


class Reservation:
    """The part of the budget that one buffer has, as long as the buffer exists."""

    __slots__ = ("budget", "bytes", "copies")

    def __init__(self, budget: MemoryBudget, copies: int) -> None:
        self.budget = budget
        self.copies = copies
        self.bytes = 0

    def claim(self, wanted: int, least: int = 0) -> int:
        """Reserve `wanted` bytes, or what is left of the budget, but at least `least`; return how many are reserved.

        Up to half of them may be more than wanted. Thread-safe, as the last buffer's reader is in another thread than
        the others.
        """
        wanted, least = wanted * self.copies, least * self.copies
        if not self.bytes <= 2 * wanted <= 2 * self.bytes:
            self.budget.grant(self, wanted, least)
        return self.bytes // self.copies

    def __del__(self) -> None:
        """Return it without taking the lock, which the interrupted code may hold."""
        budget = getattr(self, "budget", None)
        if budget is not None:  # else a signal handler has raised during `__init__`
            budget.freed.append(getattr(self, "bytes", 0))
