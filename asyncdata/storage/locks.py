"""FileLock: one process at a time has what is written at a path."""

from __future__ import annotations

import importlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, final

from asyncdata.errors import ClosedError, PlanError
from asyncdata.runtime import forks

__all__ = ("FileLock",)


@final
class FileLock:
    """The system's lock on `<path>.lock`, a file that is there while somebody has it, or after he was killed.

    A process that ends, however it does, has it no more. It is a file of its own, since on Windows others can neither
    read nor rename what is locked.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(f"{path.name}.lock")
        self.flock, self.msvcrt = module("fcntl"), module("msvcrt")
        if self.flock is None and self.msvcrt is None:
            raise PlanError("storing elements in files needs a system that can lock files, which this one cannot")
        self.inherited, self.descriptor = False, -1
        forks.register(self)  # before there is a descriptor, which a child would hold the lock with
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0))

    @classmethod
    def take(cls, path: Path) -> Self | None:
        """Return the lock; `None` if another process, or another part of this one, has it or has just let go of it."""
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
        """Return whether the file still has its name: who had the lock before has removed it."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self.descriptor))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close the descriptor, and with it let go of the lock if this process has it."""
        os.close(self.descriptor)
        self.descriptor = -1

    def disown(self) -> None:
        """Keep the lock the parent's alone: the system's lasts until each process has closed its descriptor."""
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
        else:  # what is open cannot be removed: not here, and not by us if somebody else has it by now
            self.msvcrt.locking(self.descriptor, self.msvcrt.LK_UNLCK, 1)
            self.close()
            with suppress(PermissionError):
                self.path.unlink(missing_ok=True)


def module(name: str) -> Any:
    """Return a module of the standard library, `None` where this system has it not."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
