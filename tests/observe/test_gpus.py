"""What the dashboard tells of GPUs, by a stand-in for NVML that obeys its rules, and by the real one."""

# ruff: noqa: N802

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.observe.dashboard_page import rendered
from asyncdata.observe.history import History, View
from asyncdata.observe.processes import Gpu, GpuMeter, Usage

GB = 1 << 30


class NVMLError(Exception):
    pass


class Nvml:
    """NVML: each `nvmlInit` needs its `nvmlShutdown`, and nothing else may be called outside of the two; a divided GPU
    tells no load, a lost one nothing."""

    NVMLError = NVMLError

    def __init__(self, *gpus: dict[str, Any], driver: bool = True) -> None:
        self.gpus, self.driver, self.users = gpus, driver, 0

    def nvmlInit(self) -> None:
        if not self.driver:
            raise NVMLError("Driver Not Loaded")
        self.users += 1

    def nvmlShutdown(self) -> None:
        self.begun()
        self.users -= 1

    def begun(self) -> None:
        if not self.users:
            raise NVMLError("Uninitialized")

    def nvmlDeviceGetCount(self) -> int:
        self.begun()
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> Any:
        self.begun()
        if not 0 <= number < len(self.gpus):
            raise NVMLError("Invalid Argument")
        return self.gpus[number]

    def asked(self, handle: Any, what: str) -> Any:
        self.begun()
        if "lost" in handle:
            raise NVMLError("GPU is lost")
        if what not in handle:
            raise NVMLError("Not Supported")
        return handle[what]

    def nvmlDeviceGetName(self, handle: Any) -> Any:
        return self.asked(handle, "name")

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:
        total, used = self.asked(handle, "memory")
        return SimpleNamespace(total=total, used=used, free=total - used)

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        return SimpleNamespace(gpu=self.asked(handle, "load"), memory=0)


H200 = {"name": "NVIDIA H200", "memory": (140 * GB, 35 * GB), "load": 63}


def test_memory_and_load_are_read_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    divided = {"name": b"NVIDIA A100", "memory": (40 * GB, GB)}
    nvml = Nvml(H200, {"lost": True}, divided)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    meter, other = GpuMeter(), GpuMeter()
    told = (Gpu("GPU 0, NVIDIA H200", 0.63, 35 * GB, 140 * GB), Gpu("GPU 2, NVIDIA A100", None, GB, 40 * GB))
    assert meter.read() == other.read() == told
    other.close()
    assert (meter.read(), other.read()) == (told, ())
    meter.close()
    meter.close()
    assert (nvml.users, meter.read()) == (0, ())


def test_a_driver_that_goes_away_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml(H200)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    meter = GpuMeter()
    nvml.nvmlShutdown()  # of somebody else
    assert meter.read() == ()
    meter.close()


@pytest.mark.parametrize("module", [None, SimpleNamespace(), Nvml(driver=False)])
def test_without_nvml_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert GpuMeter().read() == ()


@pytest.mark.parametrize("begun", [False, True])
def test_pytorch_tells_the_memory_of_the_gpus_that_it_uses(monkeypatch: pytest.MonkeyPatch, begun: bool) -> None:
    def mem_get_info(number: int) -> tuple[int, int]:
        assert number == 1, "this would start a context on a GPU that the program does not use"
        return 10 * GB, 16 * GB

    cuda = SimpleNamespace(
        is_initialized=lambda: begun,
        device_count=lambda: 2,
        memory_reserved=lambda number: number * GB,
        mem_get_info=mem_get_info,
        get_device_name=lambda number: "Tesla T4",
    )
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert GpuMeter().read() == ((Gpu("GPU 1, Tesla T4", None, 6 * GB, 16 * GB),) if begun else ())
    cuda.mem_get_info = no_gpu
    assert GpuMeter().read() == ()


def no_gpu(_: int) -> Any:
    raise RuntimeError("CUDA error: unspecified launch failure")


@pytest.mark.dashboard
def test_the_real_package_has_these_names_and_says_that_there_is_no_driver() -> None:
    pynvml = pytest.importorskip("pynvml")
    assert [name for name in dir(Nvml) if name.startswith(("nvml", "NVML")) and not hasattr(pynvml, name)] == []
    meter = GpuMeter()
    if meter.nvml is None:
        with pytest.raises(pynvml.NVMLError):
            pynvml.nvmlDeviceGetCount()
    for gpu in meter.read():
        assert 0 < gpu.memory <= gpu.all_memory
    meter.close()


def test_the_page_has_them_beside_the_machine() -> None:
    stats = ad.Dataset.range(3).iterate().stats()
    gpus = (Gpu("GPU 0, <b>", 0.63, 35 * GB, 140 * GB), Gpu("GPU 1, T4", None, GB, 16 * GB))
    page = rendered([View(1, stats, History())], Usage(1.5, 2, GB, 2 * GB, (), gpus))
    assert "<span>GPU 0, &lt;b&gt;: 63% busy, 35 GB of 140 GB of memory in use</span>" in page
    assert "<span>GPU 1, T4: 1 GB of 16 GB of memory in use</span>" in page
