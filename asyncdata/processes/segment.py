"""Segments: memory that two processes share, without a name that could outlive them."""

from __future__ import annotations

import mmap
import os
import tempfile
from contextlib import suppress
from pathlib import Path

__all__ = ("Segment",)


class Segment:
    """Shared memory of one process, which another attaches by `handle`; mapped as `map` in both.

    On Linux it is a memfd, which has no name, is not bounded by the size of /dev/shm, and is gone with its processes.
    Elsewhere it is a temporary file, whose name goes when the other side has attached it or the owner closes it.
    """

    __slots__ = ("fd", "handle", "map", "size")

    def __init__(self, handle: str, fd: int, size: int) -> None:
        self.handle = handle
        self.fd = fd
        self.size = size
        self.map = mmap.mmap(fd, size)

    @staticmethod
    def create(size: int) -> Segment:
        """Return a new segment of zeros."""
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("asyncdata", os.MFD_CLOEXEC)
            handle = f"/proc/{os.getpid()}/fd/{fd}"
        else:
            fd, handle = tempfile.mkstemp(prefix="asyncdata-")
        try:
            os.ftruncate(fd, size)
            return Segment(handle, fd, size)
        except BaseException:
            os.close(fd)
            raise

    @staticmethod
    def attach(handle: str, size: int, *, last: bool = True) -> mmap.mmap:
        """Map another process's segment; after the `last` one has, no name of it is left."""
        fd = os.open(handle, os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
        try:
            return mmap.mmap(fd, size)
        finally:
            os.close(fd)
            if last and not handle.startswith("/proc/"):
                forget(handle)

    def close(self) -> None:
        """Let go of it; what other processes or live views have mapped stays."""
        with suppress(BufferError):  # a view is alive: the mapping goes with it
            self.map.close()
        os.close(self.fd)
        if not self.handle.startswith("/proc/"):
            forget(self.handle)


def forget(path: str) -> None:
    """Remove a file's name; where that is impossible while it is open, its owner does it in the end."""
    with suppress(OSError):
        Path(path).unlink()
