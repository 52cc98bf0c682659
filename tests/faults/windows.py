"""What Windows does and has not, on Linux: a program that imports this first runs as it would there.

Locks are `msvcrt`'s, for each handle and gone with it; what is open can be neither renamed nor removed.
"""

from __future__ import annotations

import asyncio  # noqa: F401  which would take what has a `msvcrt` for Windows itself, were it imported later
import errno
import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ("pretend",)

MISSING = ("fcntl", "pwd", "grp", "resource", "termios", "uvloop")
MISSING_CALLS = (
    "pread",
    "preadv",
    "pwrite",
    "pwritev",
    "posix_fadvise",
    "RWF_NOWAIT",
    "O_CLOEXEC",
    "O_DIRECTORY",
    "fork",
)


def pretend() -> None:
    """Make this process see what it would see on Windows."""
    flock = importlib.import_module("fcntl")
    for name in MISSING:
        sys.modules[name] = None  # type: ignore[assignment]
    for name in MISSING_CALLS:
        if hasattr(os, name):
            delattr(os, name)
    sys.modules["msvcrt"] = Msvcrt(flock)
    for name in ("replace", "rename", "unlink", "remove", "rmdir"):
        setattr(os, name, careful(getattr(os, name)))


class Msvcrt(ModuleType):
    """Locks of regions; as those here are of whole files, a region must be always the same."""

    LK_UNLCK, LK_LOCK, LK_NBLCK = 0, 1, 2

    def __init__(self, flock: Any) -> None:
        super().__init__("msvcrt")
        self.flock = flock
        self.regions: dict[int, tuple[int, int]] = {}

    def locking(self, descriptor: int, mode: int, size: int) -> None:
        """Lock or unlock `size` bytes from where the file stands."""
        region = (os.lseek(descriptor, 0, os.SEEK_CUR), size)
        if mode == self.LK_UNLCK:
            if self.regions.pop(descriptor, None) != region:
                raise PermissionError(errno.EACCES, "not locked")
            self.flock.flock(descriptor, self.flock.LOCK_UN)
            return
        assert mode == self.LK_NBLCK, "a lock that is waited for fails after ten seconds"
        try:
            self.flock.flock(descriptor, self.flock.LOCK_EX | self.flock.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "locked") from None
        self.regions[descriptor] = region


def careful(call: Any) -> Any:
    """Return a call that fails for what this process has open, or a folder that has."""

    def wrapped(path: Any, *args: Any, **named: Any) -> Any:
        for place in [path, *args[:1]]:
            if isinstance(place, (str, os.PathLike)) and any(beneath(one, place) for one in opened()):
                raise PermissionError(errno.EACCES, "it is being used", os.fspath(place))
        return call(path, *args, **named)

    return wrapped


def opened() -> list[Path]:
    """Return what this process has open."""
    links = [Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return [Path(os.readlink(link)) for link in links if link.is_symlink()]


def beneath(one: Path, place: Any) -> bool:
    return one.is_relative_to(Path(place).absolute())
