"""How much processor time and memory the machine, its GPUs, this process and its worker processes use."""

from __future__ import annotations

import os
from typing import Any, Final, NamedTuple

from asyncdata.observe.gpus import Gpu, GpuMeter
from asyncdata.system.optional_packages import require

__all__ = ("Usage", "UsageMeter", "Used")

MOST: Final = 64
"""The most worker processes that are shown."""


class Used(NamedTuple):
    """What one process uses."""

    pid: int
    name: str
    cores: float
    """How many cores it has kept busy since the last reading."""
    memory: int
    """Bytes in memory, including those that it shares with others."""


class Usage(NamedTuple):
    """What the machine and some of its processes use."""

    cores: float
    """How many cores of the machine are busy."""
    all_cores: int
    memory: int
    all_memory: int
    processes: tuple[Used, ...]
    """This process and those that it has started."""
    gpus: tuple[Gpu, ...] = ()


class UsageMeter:
    """Reads the usage; each reading tells of the time since the one before."""

    def __init__(self, what: str, extra: str) -> None:
        self.psutil = require("psutil", what, extra)
        self.gpus = GpuMeter()
        self.known: dict[int, tuple[Any, str]] = {}
        self.read()

    def read(self) -> Usage | None:
        """Return the usage now; `None` where the system does not tell it."""
        try:
            return self.usage()
        except (self.psutil.Error, OSError):
            return None

    def usage(self) -> Usage:
        psutil = self.psutil
        own = psutil.Process(os.getpid())
        found = {process.pid: process for process in [own, *own.children(recursive=True)[:MOST]]}
        self.known = {pid: self.known.get(pid) or (process, self.name(process)) for pid, process in found.items()}
        all_cores, memory = psutil.cpu_count() or 1, psutil.virtual_memory()
        processes = [one for pid in self.known if (one := self.used(pid)) is not None]
        busy = psutil.cpu_percent() * all_cores / 100
        return Usage(busy, all_cores, memory.total - memory.available, memory.total, tuple(processes), self.gpus.read())

    def close(self) -> None:
        """Release what the meter of GPUs uses."""
        self.gpus.close()

    def name(self, process: Any) -> str:
        """Return what a process is: a fork server's children have its command line."""
        try:
            command = process.cmdline()
            if process.pid == os.getpid():
                return "this program"
            if any("multiprocessing.spawn" in word for word in command):
                return "worker process"
            if any("multiprocessing.forkserver" in word for word in command):
                return "worker process" if process.parent().cmdline() == command else "fork server"
            if any("multiprocessing.resource_tracker" in word for word in command):
                return "resource tracker"
            return process.name()
        except (self.psutil.Error, AttributeError):  # it has ended, or its parent has
            return "process"

    def used(self, pid: int) -> Used | None:
        """Return what a process uses; `None` if it has ended or may not be read."""
        process, name = self.known[pid]
        try:
            return Used(pid, name, process.cpu_percent() / 100, process.memory_info().rss)
        except self.psutil.Error:
            return None
