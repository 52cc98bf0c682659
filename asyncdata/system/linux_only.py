"""What only Linux speeds up: on other systems it is left out, which the log says once."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Final

from asyncdata.system import thread_usage

__all__ = ("MEMFD_CREATE", "tell_what_is_off")

log = logging.getLogger("asyncdata")

MEMFD_CREATE: Final[Callable[[bytes, int], int] | None] = getattr(
    os, "memfd_create", getattr(thread_usage.C, "memfd_create", None)
)
"""Makes a file in memory; returns its descriptor, fails or returns -1. A Python that was built with an old C library,
as uv's and conda's were for long, has no such function, though the system's C library has it."""

PARTS: Final = {
    "files that are in memory already are read without a thread": hasattr(os, "RWF_NOWAIT"),
    "the system is asked to read ahead": hasattr(os, "posix_fadvise"),
    "worker processes share memory without files": MEMFD_CREATE is not None,
    "they see at once that the program was killed": hasattr(os, "pidfd_open"),
    "stats() and AUTOTUNE know how long a thread had no core": thread_usage.C is not None,
}
"""What is done where the system has a call for it."""


@cache
def tell_what_is_off() -> None:
    """Log what this system has not, once in each process. Elements, their order, errors and states are the same."""
    absent = [words for words, present in PARTS.items() if not present]
    if absent:
        log.info("slower on %s, as only Linux has the calls for it: %s", sys.platform, "; ".join(absent))
