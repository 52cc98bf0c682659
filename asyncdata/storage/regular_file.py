"""Opening files in folders where others may write: regular files alone, and no links."""

from __future__ import annotations

import os
import stat
from typing import Final

from asyncdata.errors import DataLossError

__all__ = ("is_regular", "open_regular", "read_regular")

SAFE: Final = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
"""Flags by which links are refused, pipes do not block, and the descriptor is not inherited."""


def open_regular(path: str | os.PathLike[str], flags: int) -> int:
    """Return a descriptor of a regular file; one that is made may be read and written by whom the umask allows.

    `DataLossError` for a link, a pipe, a device or a folder at that path, and for a file to be written that has another
    name elsewhere: somebody else put it there.
    """
    if not is_regular(path):
        raise foreign(path)
    descriptor = os.open(path, flags | SAFE, 0o666)
    status = os.fstat(descriptor)
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    if not stat.S_ISREG(status.st_mode) or (writes and status.st_nlink > 1):
        os.close(descriptor)
        raise foreign(path)
    return descriptor


def is_regular(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a regular file at a path, or nothing."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return True


def foreign(path: str | os.PathLike[str]) -> DataLossError:
    """Return the error for a path at which there is something else."""
    return DataLossError(f"{os.fspath(path)} is a link, a pipe, a device or a folder, and should be a file: remove it")


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a regular file."""
    with open(open_regular(path, os.O_RDONLY), "rb") as file:
        return file.read()
