"""A file that one process writes to until it is complete and gets its name; others see all of it or nothing."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final, Self

from asyncdata.runtime import forks
from asyncdata.storage.atomic_write import sync_folder
from asyncdata.storage.locks import FileLock

__all__ = ("AppendFile",)

FLAGS: Final = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class AppendFile:
    """Appends to `<path>.partial`, locked for this process, and at last renames it to `<path>`.

    What cannot be written whole is not written at all. Any thread may use it.
    """

    def __init__(self, path: Path, descriptor: int, lock: FileLock) -> None:
        self.path = path
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        self._lock = lock
        self._busy = Lock()
        forks.register(self)

    def disown(self) -> None:
        """Close the file in a forked child, which may not write to it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1
        self._busy = Lock()

    @property
    def inherited(self) -> bool:
        """Whether this is a forked child of the process that writes it."""
        return self._lock.inherited

    @staticmethod
    def partial(path: str | os.PathLike[str]) -> Path:
        """Return where a file lies until it is complete."""
        target = Path(path)
        return target.with_name(f"{target.name}.partial")

    @classmethod
    def open(cls, path: str | os.PathLike[str], head: bytes) -> Self | None:
        """Return the file that becomes `path`, begun anew with `head` unless it was begun already.

        `None` if another process, or another reader in this one, is writing it, or has just finished it.
        """
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock.take(cls.partial(target))
        if lock is None:
            return None
        try:
            if not cls.partial(target).exists() and not target.exists():
                begin(target, head)
            return cls(target, os.open(cls.partial(target), FLAGS), lock)
        except FileNotFoundError:  # somebody has finished it
            lock.release()
            return None
        except BaseException:
            lock.release()
            raise

    def append(self, data: bytes | memoryview) -> None:
        """Write all of `data` behind what is there; nothing of it if there is no room."""
        with self._busy:
            self._lock.check()
            done, view = 0, memoryview(data)
            try:
                os.lseek(self.descriptor, self.size, os.SEEK_SET)
                while done < len(view):
                    done += os.write(self.descriptor, view[done:])
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(self.descriptor, self.size)
                raise
            self.size += len(view)

    def truncate(self, size: int) -> None:
        """Drop what lies beyond `size` bytes."""
        with self._busy:
            self._lock.check()
            os.ftruncate(self.descriptor, size)
            self.size = size

    def publish(self) -> bool:
        """Give the file its name, once all of it is on the disk; return whether it has it.

        On Windows it cannot have it while somebody reads it, be it ourselves.
        """
        with self._busy:
            self._lock.check()
            os.fsync(self.descriptor)
            os.close(self.descriptor)
            self.descriptor = -1
            try:
                os.replace(self.partial(self.path), self.path)
            except PermissionError:
                self.descriptor = os.open(self.partial(self.path), FLAGS)
                return False
            sync_folder(self.path.parent)
            return True

    def close(self) -> None:
        """Let go of the file, when a thread that writes to it has done so; more than once does nothing."""
        with self._busy:
            if self.descriptor >= 0:
                os.close(self.descriptor)
            self.descriptor = -1
            self._lock.release()


def begin(target: Path, head: bytes) -> None:
    """Make the partial file with its head, unless somebody else is quicker: nobody sees it without."""
    partial = AppendFile.partial(target)
    fresh = partial.with_name(f".{partial.name}.{secrets.token_hex(4)}")
    try:
        fresh.write_bytes(head)
        with suppress(FileExistsError):
            os.link(fresh, partial)
    finally:
        fresh.unlink(missing_ok=True)
