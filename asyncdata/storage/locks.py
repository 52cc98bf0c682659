"""FileLock: only one process at a time writes the file at a path."""

from __future__ import annotations

import importlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, final

from asyncdata.errors import ClosedError, PlanError
from asyncdata.storage.regular_file import open_regular
from asyncdata.system import forks

__all__ = ("FileLock",)


@final
class FileLock:
    """The system's lock on `<path>.lock`, a file that exists while a process holds the lock, or after it was killed.

    The lock ends with its process, however that ends. A separate file is locked because Windows lets other processes
    neither read nor rename a locked file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(f"{path.name}.lock")
        self.flock, self.msvcrt = module("fcntl"), module("msvcrt")
        if self.flock is None and self.msvcrt is None:
            raise PlanError("storing elements in files needs a system that can lock files; this one cannot")
        self.inherited, self.descriptor = False, -1
        forks.register(self)  # before the descriptor is opened, through which a child would hold the lock
        self.descriptor = open_regular(self.path, os.O_RDWR | os.O_CREAT)

    @classmethod
    def take(cls, path: Path) -> Self | None:
        """Return the lock; `None` if another process, or another part of this one, holds it or has just released it."""
        lock = cls(path)
        try:
            if lock.locked() and lock.is_there():
                return lock
        except BaseException:
            lock.close()
            raise
        lock.close()
        return None

    def locked(self) -> bool:
        """Try to lock the file."""
        try:
            if self.flock is not None:
                self.flock.flock(self.descriptor, self.flock.LOCK_EX | self.flock.LOCK_NB)
            else:
                self.msvcrt.locking(self.descriptor, self.msvcrt.LK_NBLCK, 1)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def is_there(self) -> bool:
        """Return whether the file still has its name: the previous holder of the lock may have removed it."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self.descriptor))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close the descriptor, which releases the lock if this process holds it."""
        os.close(self.descriptor)
        self.descriptor = -1

    def disown(self) -> None:
        """Leave the lock to the parent: the system's lock lasts until each process has closed its descriptor."""
        if self.descriptor >= 0:
            self.close()
            self.inherited = True

    def check(self) -> None:
        """Raise in a forked child of the process that took the lock."""
        if self.inherited:
            raise ClosedError(
                f"{self.path.with_suffix('')}: the process that forked this one writes it, and only that one may"
            )

    def release(self) -> None:
        """Let others have it; more than once does nothing."""
        if self.descriptor < 0:
            return
        if self.flock is not None:
            self.path.unlink(missing_ok=True)
            self.close()
        else:  # an open file cannot be removed, neither here nor after another process has opened it
            self.msvcrt.locking(self.descriptor, self.msvcrt.LK_UNLCK, 1)
            self.close()
            with suppress(PermissionError):
                self.path.unlink(missing_ok=True)


def module(name: str) -> Any:
    """Return a module of the standard library, `None` if this system does not have it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
