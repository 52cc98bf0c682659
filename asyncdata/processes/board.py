"""The board: where each worker says what it is at, so that it is known of one that has died."""

from __future__ import annotations

import os
from typing import Final, NamedTuple

import numpy as np

from asyncdata.processes.segment import Segment

__all__ = ("NOTHING", "Board", "Mark")

CELLS: Final = 1 << 14
"""Workers have a cell each by their number; two that live at once and share one would need numbers 16,384 apart."""


class Mark(NamedTuple):
    """The group that a worker is at, 0 if none, and the place in it, if it goes one by one."""

    group: int
    place: int


NOTHING: Final = Mark(0, 0)


class Board:
    """Cells in shared memory: one for each worker."""

    def __init__(self, segment: Segment | None = None, handle: str = "") -> None:
        self.segment = segment
        size = CELLS * 16
        memory = Segment.attach(handle, size, last=False) if segment is None else segment.map
        self.cells = np.frombuffer(memory, np.int64).reshape(CELLS, 2)

    @staticmethod
    def create() -> Board:
        """Return an empty board."""
        return Board(Segment.create(CELLS * 16))

    def read(self, pid: int) -> Mark:
        """Return what a worker was at."""
        group, place = self.cells[pid % CELLS].tolist()
        return Mark(group, place)

    def clear(self) -> None:
        """Forget all."""
        self.cells[:] = 0

    def write(self, group: int, place: int = 0) -> None:
        """Say what this process is at."""
        cell = self.cells[os.getpid() % CELLS]
        cell[1] = place
        cell[0] = group

    def close(self) -> None:
        """Let go of it."""
        del self.cells
        if self.segment is not None:
            self.segment.close()
