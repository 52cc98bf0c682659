"""How much processor time and memory the machine, its GPUs, this process and its worker processes use."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, Final, NamedTuple

from asyncdata.system.optional_packages import require

__all__ = ("Gpu", "GpuMeter", "Usage", "UsageMeter", "Used")

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


MOST_GPUS: Final = 16
"""The most GPUs that are shown."""


class Gpu(NamedTuple):
    """What a GPU does, for all programs together."""

    name: str
    load: float | None
    """The share of the time in which it computed, from 0 to 1; `None` if unknown."""
    memory: int
    """Bytes of its memory that are in use."""
    all_memory: int


class GpuMeter:
    """Reads NVIDIA's library of management (NVML) by `pynvml`; without that, what PyTorch knows of the GPUs it uses.

    Neither starts a context on a GPU, which would take hundreds of megabytes of its memory. `read` and `close` are
    called in one thread after another.
    """

    def __init__(self) -> None:
        self.nvml: Any = None
        try:
            nvml: Any = importlib.import_module("pynvml")
            nvml.nvmlInit()
            self.nvml = nvml
        except Exception:  # noqa: BLE001  not installed, no driver, or another module of this name: there are no numbers
            return

    def read(self) -> tuple[Gpu, ...]:
        """Return the GPUs that tell something now."""
        if self.nvml is not None:
            return tuple([gpu for number in range(self.count()) if (gpu := self.gpu(number)) is not None])
        torch = sys.modules.get("torch")
        return () if torch is None else gpus_of(torch)

    def count(self) -> int:
        """Return how many GPUs the machine has."""
        try:
            return min(MOST_GPUS, self.nvml.nvmlDeviceGetCount())
        except self.nvml.NVMLError:  # as when the driver is being replaced
            return 0

    def gpu(self, number: int) -> Gpu | None:
        """Return what a GPU does; `None` if it is lost, or tells nothing of its memory."""
        nvml = self.nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(number)
            name, memory = nvml.nvmlDeviceGetName(handle), nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError:
            return None
        shown = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
        return Gpu(f"GPU {number}, {shown}", self.load(handle), int(memory.used), int(memory.total))

    def load(self, handle: Any) -> float | None:
        """Return how busy a GPU is; `None` if it does not tell, as one that is divided (MIG)."""
        try:
            return min(1.0, self.nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
        except self.nvml.NVMLError:
            return None

    def close(self) -> None:
        """Release the library; afterwards there are no numbers."""
        nvml, self.nvml = self.nvml, None
        if nvml is not None:
            try:
                nvml.nvmlShutdown()
            except nvml.NVMLError:
                return


def gpus_of(torch: Any) -> tuple[Gpu, ...]:
    """Return the GPUs on which this process has memory of PyTorch, by what that tells without waiting for a GPU."""
    cuda: Any = getattr(torch, "cuda", None)  # absent while another thread imports it
    try:
        if cuda is None or not cuda.is_initialized():
            return ()
        used = [number for number in range(min(MOST_GPUS, cuda.device_count())) if cuda.memory_reserved(number)]
        return tuple([gpu_of(cuda, number) for number in used])
    except RuntimeError:  # the GPU has failed: the program is told so by its own calls
        return ()


def gpu_of(cuda: Any, number: int) -> Gpu:
    """Return what PyTorch knows of a GPU."""
    free, total = cuda.mem_get_info(number)
    return Gpu(f"GPU {number}, {cuda.get_device_name(number)}", None, total - free, total)
