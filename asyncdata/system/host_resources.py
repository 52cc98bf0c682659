"""The cores and memory that this process may use, with the limits of its cgroups (containers)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from math import ceil, inf
from pathlib import Path
from typing import Final, TypeVar

__all__ = (
    "IDLE_TIME",
    "available_bytes",
    "idle_cores",
    "idle_seconds",
    "lock_is_held",
    "most_bytes",
    "quota",
    "usable_cores",
)

T = TypeVar("T")

ROOT: Final = Path("/")
UNKNOWN: Final = 4 << 30
"""Bytes of memory to assume if the system does not report them."""


def usable_cores() -> int:
    """Return how many cores this process may use, by its affinity and its cgroup's quota; at least one."""
    counted: Callable[[], int | None] | None = getattr(os, "process_cpu_count", None)  # Python 3.13
    if counted is not None:
        cores = counted() or 1
    else:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, ceil(quota()))) if quota() < inf else cores


def idle_seconds(root: Path = ROOT) -> float | None:
    """Return the total idle time, in seconds since boot, of the cores that this process may run on; `None` if the
    system does not report it."""
    mine = {f"cpu{core}" for core in os.sched_getaffinity(0)} if hasattr(os, "sched_getaffinity") else set[str]()
    rows = read(root / "proc/stat", lambda text: [line.split() for line in text.splitlines()]) or []
    found = [int(row[4]) + int(row[5]) for row in rows if row[0] in mine and len(row) > 5]
    return sum(found) / os.sysconf("SC_CLK_TCK") if found else None


class IdleTime:
    """The last reading of the cores' idle time, and when it was taken."""

    def __init__(self) -> None:
        self.looked = -inf
        self.seen: float | None = None

    def recent(self) -> tuple[float, float | None]:
        """Return the time and the value of a reading at most a tenth of a second old, as a reading takes 0.1 ms."""
        now = time.perf_counter()
        if now - self.looked > 0.1:
            self.looked, self.seen = now, idle_seconds()
        return self.looked, self.seen


IDLE_TIME: Final = IdleTime()


def idle_cores(begin: tuple[float, float | None], end: tuple[float, float | None]) -> float | None:
    """Return how many cores were idle between two readings; `None` if these are too close, or have no value."""
    (began, before), (ended, after) = begin, end
    if before is None or after is None or ended - began < 0.1:
        return None
    return max(0.0, (after - before) / (ended - began))


def lock_is_held() -> bool:
    """Return whether the interpreter's lock (GIL) is enabled.

    On a free-threaded interpreter, importing a module that needs the lock enables it, unless `PYTHON_GIL=0`.
    """
    return getattr(sys, "_is_gil_enabled", lambda: True)()


@cache
def quota(root: Path = ROOT) -> float:
    """Return the quota of the process's cgroups in cores, read once."""
    least = inf
    for folder in groups(root, "cpu"):
        words = read(folder / "cpu.max", str.split)
        if words is None:
            words = [read(folder / f"cpu.cfs_{name}_us", str.strip) or "" for name in ("quota", "period")]
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and words[1] != "0":  # else "max", or -1
            least = min(least, int(words[0]) / int(words[1]))
    return least


def available_bytes(root: Path = ROOT) -> int:
    """Return how many bytes of memory are available, in the machine and in the process's cgroups."""
    free = meminfo(root).get("MemAvailable", installed_bytes(root))
    for folder in groups(root, "memory"):
        free = min(free, limit_of(folder) - used_in(folder))
    return max(0, int(free))


def most_bytes(root: Path = ROOT) -> int:
    """Return how many bytes of memory this process could have if no other process used any."""
    return int(min([installed_bytes(root), *map(limit_of, groups(root, "memory"))]))


def installed_bytes(root: Path) -> int:
    """Return the machine's memory in bytes."""
    if "MemTotal" in (found := meminfo(root)):
        return found["MemTotal"]
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return UNKNOWN


def limit_of(folder: Path) -> float:
    """Return the memory limit of one cgroup in bytes."""
    limits = [read(folder / name, int) for name in ("memory.max", "memory.limit_in_bytes")]  # or "max"
    return min([limit for limit in limits if limit is not None], default=inf)


def used_in(folder: Path) -> int:
    """Return how many bytes one cgroup uses, without page cache that the kernel can reclaim."""
    used = [read(folder / name, int) for name in ("memory.current", "memory.usage_in_bytes")]
    found = table(folder / "memory.stat")
    reclaimable = [found.get(f"total_{name}", found.get(name, 0)) for name in ("inactive_file", "active_file")]
    return max(0, (used[0] or used[1] or 0) - sum(reclaimable))


def meminfo(root: Path) -> dict[str, int]:
    """Return the contents of /proc/meminfo, in bytes."""
    return {name.rstrip(":"): 1024 * kilobytes for name, kilobytes in table(root / "proc/meminfo").items()}


def groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's cgroups that a controller may limit, and of their ancestors.

    In a container the reported path may be the host's; the container's limits are then in the root folder.
    """
    for line in read(root / "proc/self/cgroup", str.splitlines) or []:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        tops = ["sys/fs/cgroup", "sys/fs/cgroup/unified"] if not controllers else [f"sys/fs/cgroup/{controllers}"]
        if controllers and controller not in controllers.split(","):
            continue
        for top in tops:
            folder = root / top
            yield folder
            for part in Path(path.lstrip("/")).parts:
                folder /= part
                if part == ".." or not folder.is_dir():
                    break
                yield folder


def table(path: Path) -> dict[str, int]:
    """Return the names and numbers in a file with one pair on each line."""
    lines = [line.split() for line in (read(path, str.splitlines) or [])]
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}


def read(path: Path, parse: Callable[[str], T]) -> T | None:
    """Return the parsed content of a small file; `None` if it cannot be read or parsed."""
    try:
        return parse(path.read_text())
    except (OSError, ValueError):
        return None
