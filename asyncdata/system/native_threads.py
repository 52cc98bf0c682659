"""The threads of this process that a fork must not leave behind."""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

__all__ = ("unexpected_threads",)

TASKS: Final = Path("/proc/self/task")
FORKED: Final = "jemalloc_bg_thd"
"""The name of jemalloc's threads, which know about forks."""
COUNTS: Final = [
    f"{prefix}openblas_get_num_threads{suffix}" for prefix in ("", "scipy_") for suffix in ("", "64_", "_64")
]


def unexpected_threads() -> int:
    """Return how many threads there are beside this one, those of OpenBLAS and of jemalloc, which know about forks."""
    names: list[str] = []
    for task in TASKS.iterdir():
        with suppress(OSError):  # it has ended
            names.append((task / "comm").read_text().strip())
    own = threading.active_count()
    return own - 1 + max(0, len(names) - own - names.count(FORKED) - threads_of_openblas())


def threads_of_openblas() -> int:
    """Return how many threads all copies of OpenBLAS in this process have started: that of the caller is one more."""
    lines = Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines()
    paths = {line.split(maxsplit=5)[-1] for line in lines if "openblas" in os.path.basename(line)}
    found = 0
    for path in paths:
        library: Any = ctypes.CDLL(path)
        counts = [getattr(library, name)() for name in COUNTS if hasattr(library, name)]
        found += max(counts, default=1) - 1
    return found
