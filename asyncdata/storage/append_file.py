"""AppendFile: a file that one process appends to; it gets its name when complete, so readers never see part of it."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final, Self

from asyncdata.storage.atomic_write import sync_folder
from asyncdata.storage.locks import FileLock
from asyncdata.system import forks

__all__ = ("AppendFile",)

FLAGS: Final = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class AppendFile:
    """Appends to `<path>.partial`, locked by this process, and renames it to `<path>` when it is complete.

    An append writes all of its data or none. Thread-safe.
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
        """Return the path of a file until it is complete."""
        target = Path(path)
        return target.with_name(f"{target.name}.partial")

    @classmethod
    def open(cls, path: str | os.PathLike[str], head: bytes) -> Self | None:
        """Return the partial file of `path`, created with `head` unless it exists.

        `None` if another process, or another reader in this one, is writing it, or has just finished it.
        """
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock.take(cls.partial(target))
        if lock is None:
            return None
        try:
            if not cls.partial(target).exists() and not target.exists():
                cls.begin(target, head)
            return cls(target, os.open(cls.partial(target), FLAGS), lock)
        except FileNotFoundError:  # another process has completed it
            lock.release()
            return None
        except BaseException:
            lock.release()
            raise

    @classmethod
    def begin(cls, path: str | os.PathLike[str], head: bytes) -> None:
        """Create the partial file with its head atomically, unless another process has created it."""
        partial = cls.partial(path)
        fresh = partial.with_name(f".{partial.name}.{secrets.token_hex(4)}")
        try:
            fresh.write_bytes(head)
            with suppress(FileExistsError):
                os.link(fresh, partial)
        finally:
            fresh.unlink(missing_ok=True)

    def append(self, data: bytes | memoryview) -> None:
        """Append all of `data`; none of it if the disk is full."""
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
        """Cut the file to `size` bytes."""
        with self._busy:
            self._lock.check()
            os.ftruncate(self.descriptor, size)
            self.size = size

    def publish(self) -> bool:
        """Flush the file to the disk and rename it to its final name; return whether that succeeded.

        On Windows it fails while any process, this one included, reads the file.
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
        """Close the file after waiting for a thread that writes to it. Idempotent."""
        with self._busy:
            if self.descriptor >= 0:
                os.close(self.descriptor)
            self.descriptor = -1
            self._lock.release()
