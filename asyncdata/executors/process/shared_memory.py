"""Segments: memory that two processes share, without a name that could outlive them."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from asyncdata.system import forks
from asyncdata.system.linux_only import MEMFD_CREATE

__all__ = ("Mapping", "SharedMemory", "descriptors", "make_private")

MAP_FIXED: Final = 0x10
"""Maps at the given address, in place of what is there: the same number on Linux and macOS."""


CLOSED_BY_EXEC: Final = 1
"""`MFD_CLOEXEC`."""

WRITTEN: Final = 1 << 26
"""Bytes that are written at a time: systems have a limit of 2 GB, and an interrupt must not wait for more."""


class Mapping(mmap.mmap):
    """This process's mapping of another process's memory, unmapped with its last view."""

    calls: tuple[Callable[[], object], ...] = ()

    def before_end(self, call: Callable[[], object]) -> None:
        """Have something called before this is unmapped; from a finalizer, in any thread."""
        self.calls = (*self.calls, call)

    def __del__(self) -> None:
        for call in self.calls:
            call()


class SharedMemory:
    """Shared memory of one process, which another attaches by `handle`; mapped as `map` in both.

    On Linux it is a memfd, which has no name, is not bounded by the size of /dev/shm, and is freed with its processes.
    Elsewhere, and where a sandbox refuses one, it is a temporary file, whose name is removed when the other side has
    attached it or the owner closes it.
    """

    __slots__ = ("__weakref__", "fd", "handle", "map", "size")

    def __init__(self, handle: str, fd: int, size: int) -> None:
        self.handle = handle
        self.fd = fd
        self.size = size
        self.map = mmap.mmap(fd, size)
        forks.register(self)

    def disown(self) -> None:
        """Release it in a forked child, and leave its name to the parent; the memory of live views stays."""
        if self.fd < 0:
            return
        try:
            self.map.close()
        except BufferError:
            make_private(ctypes.addressof(ctypes.c_ubyte.from_buffer(self.map)), self.size, self.fd)
        os.close(self.fd)
        self.fd = -1

    @staticmethod
    def create(size: int) -> SharedMemory:
        """Return a new segment of zeros."""
        fd = memory_file()
        handle = f"/proc/{os.getpid()}/fd/{fd}" if fd >= 0 else ""
        if not handle:
            fd, handle = tempfile.mkstemp(prefix="asyncdata-")
        try:
            os.ftruncate(fd, size)
            if not handle.startswith("/proc/"):
                reserve(fd, size, handle)
            return SharedMemory(handle, fd, size)
        except BaseException:
            os.close(fd)
            if not handle.startswith("/proc/"):
                forget(handle)
            raise

    def write(self, start: int, data: memoryview) -> None:
        """Copy bytes into it. Where the system can, the file is written and not its map, which costs a fault for each
        page; without the memory for it that is an error, and no signal that ends the process."""
        if not hasattr(os, "pwrite"):
            self.map[start : start + data.nbytes] = data
            return
        done = 0
        while done < data.nbytes:
            done += os.pwrite(self.fd, data[done : done + WRITTEN], start + done)

    @staticmethod
    def attach(handle: str, size: int, *, last: bool = True) -> mmap.mmap:
        """Map another process's segment; after the `last` one has, no name of it is left."""
        return SharedMemory.identified(handle, size, last=last)[0]

    @staticmethod
    def identified(handle: str, size: int, *, last: bool = True) -> tuple[Mapping, tuple[int, int]]:
        """Map another process's segment, and return which device and inode it is."""
        fd = os.open(handle, os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
        try:
            status = os.fstat(fd)
            return Mapping(fd, size), (status.st_dev, status.st_ino)
        finally:
            os.close(fd)
            if last and not handle.startswith("/proc/"):
                forget(handle)

    @staticmethod
    def attach_private(handle: str, size: int) -> mmap.mmap:
        """Map another process's segment for reading; what is written there no other process sees."""
        fd = os.open(handle, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
        try:
            return mmap.mmap(fd, size, access=mmap.ACCESS_COPY)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Release it; mappings of other processes and of live views stay."""
        if self.fd < 0:
            return
        with suppress(BufferError):  # a view is alive: the mapping goes with it
            self.map.close()
        os.close(self.fd)
        self.fd = -1
        if not self.handle.startswith("/proc/"):
            forget(self.handle)


def memory_file() -> int:
    """Return the descriptor of a new file in memory; -1 if the system has none, or refuses one."""
    try:
        return -1 if MEMFD_CREATE is None else MEMFD_CREATE(b"asyncdata", CLOSED_BY_EXEC)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):  # a temporary file would fail too, and not say why
            raise
        return -1


def reserve(fd: int, size: int, path: str) -> None:
    """Have the disk keep so many bytes for a file, where the system can: without them, a write to its map would be a
    signal that ends the process."""
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno != errno.ENOSPC:  # the file system cannot tell
            return
        where = os.path.dirname(path)
        error.add_note(
            f"results of worker processes are passed on in files of {where}, as this Python has no memfd: set TMPDIR "
            "to a folder with more space, or use fewer workers or smaller batches"
        )
        raise


def make_private(address: int, size: int, fd: int) -> None:
    """Map shared memory again, privately, at the same address: writes of this process are then visible to it alone."""
    libc = ctypes.PyDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    access, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | MAP_FIXED
    if libc.mmap(address, size, access, flags, fd, 0) != address:
        raise OSError(ctypes.get_errno(), "shared memory cannot be mapped privately before a fork")


def descriptors() -> dict[tuple[int, int], int]:
    """Return open descriptors by what they refer to: each mapping has one, which Python does not show."""
    found: dict[tuple[int, int], int] = {}
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):
            status = os.fstat(int(name))
            found[status.st_dev, status.st_ino] = int(name)
    return found


def forget(path: str) -> None:
    """Remove a file's name; where that is impossible while it is open, its owner does it in the end."""
    with suppress(OSError):
        Path(path).unlink()
