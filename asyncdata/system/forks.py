"""Forks: in a forked child, objects release the resources that they inherited and that belong to the parent."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Final, Protocol

__all__ = ("IMPORTING", "lock", "never_finalize", "register")


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

PACKAGE: Final = Path(__file__).parents[1]
APART: Final = ("__main__", "cli", "demo", "testing", "torch")
"""What no running pipeline imports."""
COMPLETE: Final = threading.Event()
"""Set when all modules have been imported."""


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


def complete_imports(folder: Path = PACKAGE, package: str = "asyncdata") -> None:
    """Import all modules that a method imports when it is called: a child that is forked while another thread imports
    one would wait for that import forever."""
    for module in iter_modules([os.fspath(folder)]):
        name = f"{package}.{module.name}"
        if name.partition(".")[2] in APART:
            continue
        import_module(name)
        if module.ispkg:
            complete_imports(folder / module.name, name)


def before_beside_threads() -> None:
    """Import all modules before the first fork beside other threads."""
    if threading.active_count() > 1 and not COMPLETE.is_set():
        complete_imports()
        COMPLETE.set()


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
    # It registers what is done after a fork, which must not begin within one.
    import_module("concurrent.futures.thread")
    os.register_at_fork(before=before_beside_threads)  # what is registered last comes first
