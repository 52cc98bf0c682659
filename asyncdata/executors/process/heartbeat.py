"""Heartbeats: where each worker writes which element it works on, so that this is known of one that has died, and where
it reads which groups are no longer wanted.

Reasons and measurements: docs/design.md, "Worker processes".
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

import numpy as np

from asyncdata.executors.process.shared_memory import SharedMemory

__all__ = ("NOTHING", "Heartbeats", "WorkerPosition")

CELLS: Final = 1 << 14
"""Each worker has a cell by its number; two live workers share one only if their numbers are 16,384 apart. So has each
group."""

FIELDS: Final = 3


class WorkerPosition(NamedTuple):
    """The current group of a worker, 0 if none, and the place in it, if it works one by one."""

    group: int
    element: int


NOTHING: Final = WorkerPosition(0, 0)


class Heartbeats:
    """Cells in shared memory: the group and place of a worker, and a group that was dropped."""

    def __init__(self, segment: SharedMemory | None = None, handle: str = "") -> None:
        self.segment = segment
        size = CELLS * FIELDS * 8
        memory = SharedMemory.attach(handle, size, last=False) if segment is None else segment.map
        self.cells = np.frombuffer(memory, np.int64).reshape(CELLS, FIELDS)

    @staticmethod
    def create() -> Heartbeats:
        """Return no heartbeats yet."""
        return Heartbeats(SharedMemory.create(CELLS * FIELDS * 8))

    def read(self, pid: int) -> WorkerPosition:
        """Return the last group and place of a worker."""
        group, place = self.cells[pid % CELLS, :2].tolist()
        return WorkerPosition(group, place)

    def clear(self) -> None:
        """Forget all."""
        self.cells[:] = 0

    def write(self, group: int, place: int = 0) -> None:
        """Record the current group and place of this process."""
        cell = self.cells[os.getpid() % CELLS]
        cell[1] = place
        cell[0] = group

    def drop(self, group: int) -> None:
        """Record that the results of a group are no longer wanted."""
        self.cells[group % CELLS, 2] = group

    def is_dropped(self, group: int) -> bool:
        """Return whether the results of a group are no longer wanted."""
        return bool(self.cells[group % CELLS, 2] == group)

    def close(self) -> None:
        """Release it."""
        del self.cells
        if self.segment is not None:
            self.segment.close()
