"""NVIDIA GPUs through PyTorch: a copy stream, events, and the caching allocator."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, Final

from asyncdata.devices.base import Device, Event, Sent
from asyncdata.devices.element_arrays import reusable
from asyncdata.devices.encoded_pictures import decoded_together
from asyncdata.devices.packed_layout import PackedArray
from asyncdata.devices.pinned_memory import HostMemory, PinnedMemory
from asyncdata.elements.tensors import tensor_of, tensor_parts
from asyncdata.errors import DeviceNotFoundError
from asyncdata.formats.images import is_installed
from asyncdata.system.optional_packages import require

__all__ = ("CudaDevice", "nvjpeg")

FALL_BACK = 'fall back with prefetch_to_device("cuda" if torch.cuda.is_available() else "cpu")'


class CudaEvent:
    """A CUDA event with blocking waits: the thread sleeps, and other threads can run Python."""

    __slots__ = ("event",)

    def __init__(self, torch: Any, stream: Any) -> None:
        self.event = torch.cuda.Event(blocking=True)
        self.event.record(stream)

    def wait(self) -> None:
        self.event.synchronize()


class CudaDevice(Device):
    """One GPU; without an `index`, the current GPU of the calling thread."""

    def __init__(self, index: int | None) -> None:
        self.torch = torch = require("torch", "prefetch_to_device()")
        if not torch.cuda.is_available():
            raise DeviceNotFoundError(
                "PyTorch finds no GPU (torch.cuda.is_available() is False): there is none, its driver is missing, or "
                f"this PyTorch was built without CUDA; {FALL_BACK}"
            )
        if index is not None and index >= (count := torch.cuda.device_count()):
            raise DeviceNotFoundError(f"there is no cuda:{index}, PyTorch finds {count} of them; {FALL_BACK}")
        self.device = torch.device("cuda", torch.cuda.current_device() if index is None else index)
        self.stream = copy_stream(torch, self.device.index)
        self.pinned_memory = pinned_memory_of(torch)

    def send(self, leaves: Sequence[Any], into: Sequence[Any] | None) -> Sent:
        with self.torch.cuda.device(self.device), self.torch.cuda.stream(self.stream):
            arrays = [self.copied(tensor_of(leaf), into, place) for place, leaf in enumerate(leaves)]
            return Sent(arrays, CudaEvent(self.torch, self.stream))

    def copied(self, source: Any, into: Sequence[Any] | None, place: int) -> Any:
        """Return a tensor on the device, written by the copy stream."""
        target = reusable(into, place, source.shape, source.dtype)
        if target is None:
            target = self.torch.empty(source.shape, dtype=source.dtype, device=self.device)
        return target.copy_(source, non_blocking=True)

    def decode(self, files: Sequence[bytes]) -> Sequence[Any]:
        with self.torch.cuda.device(self.device), self.torch.cuda.stream(self.stream):
            return decoded_together(self.by_nvjpeg, files)

    def by_nvjpeg(self, files: list[bytes]) -> Sequence[Any]:
        """Return JPEG files as tensors. It returns when they are decoded, on a stream of the package's."""
        sources = [self.torch.frombuffer(bytearray(file), dtype=self.torch.uint8) for file in files]
        return nvjpeg()(sources, device=self.device)

    def parts(self, packed: Any, parts: Sequence[PackedArray]) -> Sequence[Any]:
        return tensor_parts(packed, parts)

    def arrive(self, sent: Sent) -> None:
        current = self.torch.cuda.current_stream(self.device)
        if isinstance(sent.ready, CudaEvent):
            current.wait_event(sent.ready.event)
        for array in sent.arrays:
            array.record_stream(current)

    def leave(self) -> Event:
        return CudaEvent(self.torch, self.torch.cuda.current_stream(self.device))

    def write(self, target: Any, array: Any) -> None:
        target.copy_(array, non_blocking=True)

    def close(self) -> None:
        self.stream.synchronize()


def nvjpeg() -> Callable[..., Sequence[Any]]:
    """Return what decodes by nvJPEG, or raise an error that says what to install."""
    what = "prefetch_to_device(decode_on_device=True)"
    if is_installed("torchcodec") or not find_spec("torchvision"):
        return partial(require("torchcodec.decoders", what, "'torchcodec>=0.16'").decode_jpeg, mode="RGB")
    images: Any = require("torchvision.io", what, "torchvision")
    return partial(images.decode_jpeg, mode=images.ImageReadMode.RGB)


@cache
def copy_stream(torch: Any, index: int) -> Any:
    """Return the stream for all copies to a GPU."""
    return torch.cuda.Stream(device=index)


PORTABLE: Final = 1
"""The flag to pin memory for all GPUs (cudaHostRegisterPortable)."""


@cache
def pinned_memory_of(torch: Any) -> PinnedMemory:
    """Return the pinned memory of this process, which all GPUs read."""

    def allocate(size: int) -> HostMemory:
        return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True).numpy()

    def register(address: int, size: int) -> bool:
        if int(torch.cuda.cudart().cudaHostRegister(address, size, PORTABLE)) == 0:
            return True
        with suppress(RuntimeError):  # clears the error, which the program's next kernel would raise
            torch.zeros(1, device="cuda")
        return False

    def release(address: int) -> None:
        if os.getpid() == process:
            torch.cuda.cudart().cudaHostUnregister(address)

    process = os.getpid()
    return PinnedMemory(allocate, register, release)
