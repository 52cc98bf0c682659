"""ThreadUsage: the CPU time of the current thread, as the system reports it."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import NamedTuple

try:
    from resource import RUSAGE_THREAD, getrusage
except ImportError:  # only Linux reports it per thread
    getrusage = None

C: ctypes.PyDLL | None = ctypes.PyDLL(None) if sys.platform.startswith("linux") else None
"""The C library, whose functions are called with the interpreter lock held."""

__all__ = ("ThreadUsage", "queued")


class ThreadUsage(NamedTuple):
    """A thread's CPU seconds, its seconds of waiting for a core, and its voluntary context switches."""

    cpu: float
    queued: float
    pauses: int

    @classmethod
    def now(cls) -> ThreadUsage:
        """Return the usage of this thread so far."""
        pauses = 0 if getrusage is None else getrusage(RUSAGE_THREAD).ru_nvcsw  # pyright: ignore[reportPossiblyUnboundVariable]
        return cls(time.thread_time(), queued(), pauses)

    def since(self, calls: int) -> ThreadUsage:
        """Return the usage since then, in `calls` calls; if the system reports none, each call counts as one switch."""
        now = ThreadUsage.now()
        return ThreadUsage(
            now.cpu - self.cpu, now.queued - self.queued, now.pauses - self.pauses if getrusage else calls
        )


def queued(thread: int | None = None) -> float:
    """Return the seconds that this thread, or the one with a native identifier, has waited for a core; 0 if the system
    does not report them."""
    where = "thread-self" if thread is None else f"self/task/{thread}"
    try:
        return int(read_held(f"/proc/{where}/schedstat").split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def read_held(path: str) -> bytes:
    """Read a small file of the kernel's without giving up the interpreter lock: beside a thread that computes in Python
    it takes 5 ms to get it back."""
    file = -1 if C is None else C.open(path.encode(), os.O_RDONLY | os.O_CLOEXEC)
    if C is None or file < 0:
        raise OSError(f"{path} cannot be opened")
    buffer = ctypes.create_string_buffer(128)
    count = C.read(file, buffer, len(buffer))
    C.close(file)
    return buffer.raw[: max(count, 0)]
