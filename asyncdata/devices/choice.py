"""The device for a user's argument: the name of a PyTorch device, or an object of PyTorch or JAX."""

from __future__ import annotations

from typing import Any

from asyncdata.devices.base import Device
from asyncdata.devices.cpu import CpuDevice
from asyncdata.devices.cuda import CudaDevice, nvjpeg
from asyncdata.devices.jax import JaxDevice
from asyncdata.devices.simulated import Accelerator, SimulatedDevice
from asyncdata.errors import PlanError
from asyncdata.memory.buffer_pool import POOL

__all__ = ("check_device", "device_for", "kind_of")


def check_device(device: Any, mode: str, static: Any, decode_on_device: bool) -> Any:
    """Return a device unchanged; `PlanError` if it is not a device, or does not support the options."""
    kind = kind_of(device)
    if kind == "jax" and (mode == "ring" or static is not None):
        raise PlanError("prefetch_to_device: mode='ring' and static= are not for JAX, whose arrays are immutable")
    if decode_on_device and (mode == "ring" or static is not None):
        raise PlanError(
            "prefetch_to_device: mode='ring' and static= are not for decode_on_device=True: each picture has a size of "
            "its own"
        )
    if decode_on_device and kind == "cuda":
        nvjpeg()  # raises here if it is not installed
    return device


def kind_of(device: Any) -> str:
    """Return the kind of a device; `PlanError` if it is not a device."""
    package = type(device).__module__.partition(".")[0]
    name = str(device)
    if isinstance(device, Accelerator):
        return "simulated"
    if package in {"jax", "jaxlib"}:
        return "jax"
    if isinstance(device, str) or package == "torch":
        kind, _, index = name.partition(":")
        if (kind == "cuda" and (index.isdecimal() or name == "cuda")) or name in {"cpu", "cpu:0"}:
            return kind
    raise PlanError(
        "device= must be 'cuda', 'cuda:1' or the like, 'cpu', a torch.device of these, or a JAX "
        f"device or sharding; got {device!r:.80}"
    )


def device_for(device: Any) -> Device:
    """Return the device of a user's argument for one iterator; called in the consumer's thread.

    From now on large batches of this process are allocated in memory that the device reads.
    """
    made = made_for(device)
    if made.pinned_memory is not None and POOL.allocate != made.pinned_memory.allocate_or_not:
        POOL.allocate_by(made.pinned_memory.allocate_or_not)
    return made


def made_for(device: Any) -> Device:
    """Return the device of a user's argument."""
    match kind_of(device):
        case "cuda":
            index = str(device).partition(":")[2]
            return CudaDevice(int(index) if index else None)
        case "jax":
            return JaxDevice(device)
        case "simulated":
            return SimulatedDevice(device)
        case _:
            return CpuDevice()
