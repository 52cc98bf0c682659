"""How busy the machine's GPUs are, and how much of their memory is in use."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Final, NamedTuple

__all__ = ("Gpu", "GpuMeter")

MOST: Final = 16
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
            return min(MOST, self.nvml.nvmlDeviceGetCount())
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
        used = [number for number in range(min(MOST, cuda.device_count())) if cuda.memory_reserved(number)]
        return tuple([gpu_of(cuda, number) for number in used])
    except RuntimeError:  # the GPU has failed: the program is told so by its own calls
        return ()


def gpu_of(cuda: Any, number: int) -> Gpu:
    """Return what PyTorch knows of a GPU."""
    free, total = cuda.mem_get_info(number)
    return Gpu(f"GPU {number}, {cuda.get_device_name(number)}", None, total - free, total)
