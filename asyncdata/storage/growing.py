"""A file that one process writes to until it is whole and gets its name; others see all of it or nothing."""

from __future__ import annotations

import importlib
import os
import secrets
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, Self

from asyncdata.errors import PlanError
from asyncdata.storage.files import sync_folder

__all__ = ("GrowingFile", "lock")


class GrowingFile:
    """Appends to `<path>.partial`, locked for this process, and at last renames it to `<path>`.

    The lock is the system's: a process that ends, however it does, holds it no more. What cannot be written whole is
    not written at all. Any thread may use it.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        self._busy = Lock()

    @staticmethod
    def partial(path: str | os.PathLike[str]) -> Path:
        """Return where a file lies until it is whole."""
        target = Path(path)
        return target.with_name(f"{target.name}.partial")

    @classmethod
    def open(cls, path: str | os.PathLike[str], head: bytes) -> Self | None:
        """Return the file that becomes `path`, begun anew with `head` unless it was begun already.

        `None` if another process, or another reader in this one, is writing it, or has just finished it.
        """
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not cls.partial(target).exists() and not target.exists():
            begin(target, head)
        try:
            descriptor = os.open(cls.partial(target), os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
        except FileNotFoundError:
            return None
        if lock(descriptor) and is_still(cls.partial(target), descriptor):
            return cls(target, descriptor)
        os.close(descriptor)
        return None

    def append(self, data: bytes) -> None:
        """Write all of `data` behind what is there; nothing of it if there is no room."""
        with self._busy:
            done, view = 0, memoryview(data)
            try:
                while done < len(view):
                    done += os.pwrite(self.descriptor, view[done:], self.size + done)
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(self.descriptor, self.size)
                raise
            self.size += len(view)

    def truncate(self, size: int) -> None:
        """Drop what lies beyond `size` bytes."""
        with self._busy:
            os.ftruncate(self.descriptor, size)
            self.size = size

    def publish(self) -> None:
        """Give the file its name, once all of it is on the disk."""
        with self._busy:
            os.fsync(self.descriptor)
            os.replace(self.partial(self.path), self.path)
            sync_folder(self.path.parent)

    def close(self) -> None:
        """Let go of the file, when a thread that writes to it has done so; more than once does nothing."""
        with self._busy:
            if self.descriptor >= 0:
                os.close(self.descriptor)
            self.descriptor = -1


def begin(target: Path, head: bytes) -> None:
    """Make the partial file with its head, unless somebody else is quicker: nobody sees it without."""
    partial = GrowingFile.partial(target)
    fresh = partial.with_name(f".{partial.name}.{secrets.token_hex(4)}")
    try:
        fresh.write_bytes(head)
        with suppress(FileExistsError):
            os.link(fresh, partial)
    finally:
        fresh.unlink(missing_ok=True)


def lock(descriptor: int) -> bool:
    """Lock a file until it is closed; False if it is locked already."""
    try:
        system: Any = importlib.import_module("fcntl")
    except ImportError:
        raise PlanError("elements are kept in files only where the system has flock, which this one has not") from None
    try:
        system.flock(descriptor, system.LOCK_EX | system.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_still(path: Path, descriptor: int) -> bool:
    """Tell whether a file still has this name: who had the lock before may have renamed it."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
