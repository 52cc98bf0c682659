"""ThreadUsage: what the running thread has had of its core, as the system reports it."""

from __future__ import annotations

import time
from typing import NamedTuple

try:
    from resource import RUSAGE_THREAD, getrusage
except ImportError:  # only Linux says it of a thread
    getrusage = None

__all__ = ("ThreadUsage", "queued")


class ThreadUsage(NamedTuple):
    """Seconds that a thread computed, those that it could have with a core, and how often it gave it up by itself."""

    cpu: float
    queued: float
    pauses: int

    @classmethod
    def now(cls) -> ThreadUsage:
        """Return what this thread has had so far."""
        pauses = 0 if getrusage is None else getrusage(RUSAGE_THREAD).ru_nvcsw  # pyright: ignore[reportPossiblyUnboundVariable]
        return cls(time.thread_time(), queued(), pauses)

    def since(self, calls: int) -> ThreadUsage:
        """Return what it has had since, making so many calls; where the system does not say, each of them paused."""
        now = ThreadUsage.now()
        return ThreadUsage(
            now.cpu - self.cpu, now.queued - self.queued, now.pauses - self.pauses if getrusage else calls
        )


def queued(thread: int | None = None) -> float:
    """Return the seconds that this thread, or the one with a number of the system's, could have run, had there been a
    core; 0 where the system does not say."""
    where = "thread-self" if thread is None else f"self/task/{thread}"
    try:
        with open(f"/proc/{where}/schedstat", "rb", buffering=0) as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
