"""Forks: in a forked child, objects release the resources that they inherited and that belong to the parent."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import Final, Protocol

__all__ = ("IMPORTING", "ForkAware", "lock", "never_finalize", "register")


class ForkAware(Protocol):
    """An object that owns a resource of this process: a thread, a descriptor, a lock, shared memory."""

    def disown(self) -> None:
        """Release what belongs to the parent; called in a forked child, before any other code runs there.

        Only the thread that forked exists there. The method must not wait, and must not change anything that is shared
        with the parent: files, pipes, event loops, shared memory.
        """
        ...


OWNERS: Final[weakref.WeakSet[ForkAware]] = weakref.WeakSet()
LOCKS: Final[weakref.WeakSet[threading.Lock]] = weakref.WeakSet()
IMPORTING: Final = threading.Lock()
"""Held while a module is imported in a thread: a child forked meanwhile would wait for that import forever. A fork
takes it after all other locks, so that their holders may wait for it."""

FORKING: Final = threading.Lock()
HELD: Final[list[threading.Lock]] = []
"""The locks taken by the thread that forks."""


def register(owner: ForkAware) -> None:
    """Call `owner.disown()` in each child that this process forks, as long as the owner is alive."""
    OWNERS.add(owner)


def lock() -> threading.Lock:
    """Return a lock that no other thread holds during a fork, so that the data it guards is consistent in the child.

    Its holder must not fork, and must not wait for another lock of this kind except `IMPORTING`.
    """
    made = threading.Lock()
    LOCKS.add(made)
    return made


def never_finalize(value: object) -> None:
    """Never finalize an object: closing an event loop or a coroutine in a child would change what the parent uses."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


def before() -> None:
    """Take all locks."""
    FORKING.acquire()
    HELD[:] = [*LOCKS, IMPORTING]
    for held in HELD:
        held.acquire()


def after() -> None:
    """Release all locks."""
    for held in HELD:
        held.release()
    HELD.clear()
    FORKING.release()


def in_child() -> None:
    """Release all locks and the parent's resources."""
    after()
    for owner in list(OWNERS):
        owner.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=before, after_in_parent=after, after_in_child=in_child)
