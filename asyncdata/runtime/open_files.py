"""OpenFiles: closes files for a while if too many are open; else the source closes its file (`sources/parsed_files`).

A source closes the file that it opened by `aclosing`, however reading ends: `FileStream` in `storage/local`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, Protocol

__all__ = ("OpenFiles",)

WITHOUT_LIMIT: Final = 1 << 16
"""How many descriptors a process may have where the system does not say."""


class Suspendable(Protocol):
    """A file that is opened again when it is read."""

    def suspend(self) -> bool:
        """Close the file until it is read again; return whether that was possible."""
        ...


class OpenFiles:
    """The files that a pipeline has open: at most half as many as the process may have descriptors.

    Only the thread of the stages adds files, and suspends them.
    """

    def __init__(self) -> None:
        self.most = 0
        self.files: dict[Suspendable, None] = {}

    def use(self, file: Suspendable) -> None:
        """Record that a file is about to be read; close others if there are too many."""
        if self.files.pop(file, self) is self:
            self.most = self.most or most_descriptors() // 2
            if len(self.files) >= self.most:
                self.suspend_oldest()
        self.files[file] = None

    def suspend_oldest(self) -> None:
        """Close the file that was read longest ago of those that no thread is reading."""
        for file in [*self.files]:
            if file.suspend():
                self.files.pop(file, None)
                return

    def forget(self, file: Suspendable) -> None:
        """Record that a file was closed; from any thread."""
        self.files.pop(file, None)


def most_descriptors() -> int:
    """Return how many descriptors this process may have at the same time."""
    try:
        limits = import_module("resource")
    except ImportError:
        return WITHOUT_LIMIT
    soft: int = limits.getrlimit(limits.RLIMIT_NOFILE)[0]
    return WITHOUT_LIMIT if soft == limits.RLIM_INFINITY else soft
