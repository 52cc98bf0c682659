"""Which worker processes there are, from the kernel's own tables."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ("alive", "children_of", "workers")


def children_of(pid: int) -> list[int]:
    """All processes below one; any of them may end meanwhile, and its tasks with it."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                for child in map(int, (task / "children").read_text().split()):
                    found += [child, *children_of(child)]
    return found


def workers(pid: int | None = None) -> list[int]:
    """The processes that the fork server of a process has made."""
    return [child for child in children_of(pid or os.getpid()) if parent(child) != (pid or os.getpid())]


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
