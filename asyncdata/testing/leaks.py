"""A check that nothing is left behind."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from asyncdata.engines.thread import new_loop

__all__ = ("LEAK_TIMEOUT", "leaves_nothing")

LEAK_TIMEOUT: Final = 10.0
"""Seconds within which all that a pipeline started must end; starting processes take seconds on a busy machine."""


@contextmanager
def leaves_nothing() -> Generator[None]:
    """Raise `AssertionError` if the body leaves a thread or file descriptor behind for longer than ten seconds.

    Tasks end with their loop: run the loop inside the body. Descriptors that a library opens at its first use and
    keeps, as obstore does for URLs, count too: use the library once before the body.

    >>> import asyncdata as ad
    >>> with leaves_nothing():
    ...     for element in ad.Dataset.range(10):
    ...         break
    """
    new_loop().close()  # libuv's descriptors for all loops are open before the check
    threads, descriptors = set(threading.enumerate()), open_descriptors()
    yield
    deadline = time.monotonic() + LEAK_TIMEOUT
    if set(threading.enumerate()) <= threads and not opened_since(descriptors):
        return
    gc.collect()
    left = [thread for thread in threading.enumerate() if thread not in threads]
    while any(thread.is_alive() for thread in left) and time.monotonic() < deadline:
        for thread in left:
            thread.join(0.1)
        gc.collect()  # what the threads held when it was called before
    alive = [thread.name for thread in left if thread.is_alive()]
    assert not alive, f"threads left behind: {alive}"
    if left:
        gc.collect()  # what those threads held
    opened = opened_since(descriptors)
    while (
        opened and time.monotonic() < deadline
    ):  # a descriptor that an earlier thread opens briefly is not left behind
        time.sleep(0.01)
        opened &= opened_since(descriptors)
    assert not opened, f"file descriptors left behind: {dict(opened)}"


def opened_since(descriptors: dict[str, str]) -> set[tuple[str, str]]:
    return set(open_descriptors().items()) - set(descriptors.items())


def open_descriptors() -> dict[str, str]:
    """Return what each open file descriptor points to, if the system shows it, without multiprocessing's own.

    With the first process multiprocessing starts a fork server and a resource tracker, and holds a pipe to each.
    """
    found: dict[str, str] = {}
    server: Any = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    tracker: Any = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    own = {str(getattr(server, "_forkserver_alive_fd", None)), str(getattr(tracker, "_fd", None))}
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        if name in own:
            continue
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # the descriptor of the listing itself
            continue
    return found
