"""The large arrays and tensors that a function holds: worker processes map them, and have no copies of their own."""

from __future__ import annotations

import ctypes
import io
import mmap
import os
import threading
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from pickle import PickleBuffer
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from asyncdata.elements.tensors import dtype_name, is_dense, is_tensor
from asyncdata.errors import StageError
from asyncdata.executors.process.shared_memory import descriptors
from asyncdata.executors.process.shm_arena import PICKLED, ByValuePickler, CloudPickler, address_of

__all__ = ("LARGE", "HeldData", "HeldDataPickler", "Span", "merged")

LARGE: Final = 1 << 20
"""Bytes of memory from which on it is shared."""

SPARSE: Final = 2
"""An array whose elements lie in more than so many times its bytes is packed first, as a column of a table."""

LOCKS: Final[dict[type[Any], Any]] = {type(made()): made for made in (threading.Lock, threading.RLock)}

OWN: Final = "memfd:asyncdata"
"""The name of this package's own shared memory."""


class Span(NamedTuple):
    """Memory of this process."""

    address: int
    size: int

    @property
    def end(self) -> int:
        return self.address + self.size

    @property
    def bytes(self) -> npt.NDArray[np.uint8]:
        """The memory as an array, which does not hold it."""
        return np.frombuffer(self.block(), np.uint8)

    def block(self) -> Any:
        """Return the memory as an object with a buffer."""
        return (ctypes.c_ubyte * self.size).from_address(self.address)

    @staticmethod
    def of(array: npt.NDArray[Any]) -> Span:
        """Return the memory in which all elements of an array lie."""
        low = array.__array_interface__["data"][0]
        high = low + array.itemsize
        for count, stride in zip(array.shape, array.strides, strict=True):
            low, high = low + min(0, (count - 1) * stride), high + max(0, (count - 1) * stride)
        return Span(low, high - low)


def merged(spans: Sequence[Span]) -> list[Span]:
    """Return the same memory as spans that do not overlap, in order: many views of one array are one span."""
    found: list[Span] = []
    for span in sorted(set(spans)):
        if found and span.address <= found[-1].end:
            found[-1] = Span(found[-1].address, max(found[-1].end, span.end) - found[-1].address)
        else:
            found.append(span)
    return found


class HeldData(NamedTuple):
    """A pickled function, the memory of its buffers, the objects that own this, and what else there is to say."""

    head: bytes
    spans: list[Span]
    owners: list[Any]
    mapped: list[str]
    """The files and shared memory that workers map."""
    copied: list[str]
    """What each worker has a copy of, and why."""


class MappedFile:
    """The file of a `np.memmap`; unpickled, it is the read-only map of it."""

    def __init__(self, found: np.memmap[Any, Any], path: str, status: os.stat_result) -> None:
        self.address: int = found.__array_interface__["data"][0]
        self.arguments = path, found.offset, found.nbytes, (status.st_dev, status.st_ino)

    def __reduce__(self) -> tuple[Any, ...]:
        return file_map, self.arguments


def file_map(path: str, offset: int, size: int, identity: tuple[int, int]) -> np.memmap[Any, Any]:
    """Return the bytes of a file that another process has mapped."""
    status = os.stat(path)
    if (status.st_dev, status.st_ino) != identity:
        raise StageError(f"the file {path!r}, which a function holds as an np.memmap, was replaced by another one")
    return np.memmap(path, np.uint8, "r", offset, (size,))


class MappedMemory(NamedTuple):
    """Shared memory that is mapped in this process; unpickled, it is the same memory there."""

    address: int
    handle: str
    offset: int
    size: int
    identity: tuple[int, int]
    access: int

    def __reduce__(self) -> tuple[Any, ...]:
        return memory_map, tuple(self)[1:]


def memory_map(handle: str, offset: int, size: int, identity: tuple[int, int], access: int) -> memoryview:
    """Map memory that another process shares."""
    fd = os.open(handle, os.O_RDWR if access == mmap.ACCESS_WRITE else os.O_RDONLY)
    try:
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) != identity:
            raise StageError("shared memory that a function holds has been released")
        return memoryview(mmap.mmap(fd, min(size, status.st_size - offset), access=access, offset=offset))
    finally:
        os.close(fd)


class Mappings:
    """The mappings of this process when it was made, by address; none where the system does not list them."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, str, int, tuple[int, int], str]] = []
        try:
            with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as lines:
                self.rows = [row(line) for line in lines]
        except OSError:
            return

    @cached_property
    def descriptors(self) -> dict[tuple[int, int], int]:
        return descriptors()

    def shared(self, span: Span) -> MappedMemory | None:
        """Return the shared mapping that memory lies in, if another process can map it too."""
        place = bisect_right(self.rows, span.address, key=lambda one: one[0]) - 1
        if place < 0:
            return None
        start, end, rights, offset, identity, name = self.rows[place]
        if span.end > end or rights[3:] != "s" or (fd := self.descriptors.get(identity)) is None:
            return None
        access = mmap.ACCESS_WRITE if "w" in rights else mmap.ACCESS_READ
        access = mmap.ACCESS_COPY if OWN in name else access
        return MappedMemory(start, f"/proc/{os.getpid()}/fd/{fd}", offset, end - start, identity, access)


def row(line: str) -> tuple[int, int, str, int, tuple[int, int], str]:
    """Return a line of /proc/self/maps: start, end, rights, offset, device and inode, name."""
    extent, rights, offset, device, inode, *name = line.split(maxsplit=5)
    start, end = [int(part, 16) for part in extent.split("-")]
    major, minor = [int(part, 16) for part in device.split(":")]
    return start, end, rights, int(offset, 16), (os.makedev(major, minor), int(inode)), "".join(name)


class OutOfBandMemory:
    """The memory that is not a part of a pickle, and its owners. With this in the pickler itself, it would hold itself,
    and all that it has pickled."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.owners: list[Any] = []
        self.apart: set[Span] = set()

    def takes(self, buffer: PickleBuffer) -> bool:
        """Return whether memory stays in the pickle, as it is small; else it is added here."""
        raw = buffer.raw()
        span = Span(address_of(raw), raw.nbytes) if raw.nbytes else Span(0, 0)
        if raw.nbytes < LARGE and span not in self.apart:
            return True
        self.spans.append(span)
        self.owners.append(buffer)
        return False


class HeldDataPickler(ByValuePickler):
    """Pickles a function, or a plan, with the memory of large arrays and tensors apart, or mapped again.

    Those of functions are read-only where they arrive, tensors private: what one worker writes no other one sees. With
    `private` arrays are private too, and locks that are free are new ones. What goes `elsewhere`, to another machine,
    can map nothing of this one.
    """

    def __init__(self, functions: bool = True, private: bool = False, elsewhere: bool = False) -> None:
        self.private = private
        self.elsewhere = elsewhere
        self.target = io.BytesIO()
        self.parts = OutOfBandMemory()
        CloudPickler.__init__(self, self.target, 5, buffer_callback=self.parts.takes)
        self.functions = functions
        self.files: dict[int, MappedFile | None] = {}
        self.memory: dict[int, MappedMemory] = {}
        self.mapped: dict[str, None] = {}
        self.copied: dict[str, None] = {}

    def pickled(self, value: Any) -> HeldData:
        """Return a value as it travels."""
        self.dump(value)
        return HeldData(self.target.getvalue(), self.parts.spans, self.parts.owners, [*self.mapped], [*self.copied])

    @cached_property
    def mappings(self) -> Mappings:
        return Mappings()

    def reducer_override(self, obj: Any) -> Any:
        kind: type[Any] = type(obj)  # pyright: ignore[reportUnknownVariableType]
        if isinstance(obj, np.ndarray):
            found = self.array(cast("npt.NDArray[Any]", obj)) if kind in (np.ndarray, np.memmap) else NotImplemented
            if kind is not np.ndarray and found is NotImplemented and cast("Any", obj).nbytes >= LARGE:
                self.note_copied(kind, cast("Any", obj).nbytes)
        elif kind.__module__ == "torch.storage" and is_large_storage(obj):
            found = self.storage(obj)
        elif kind.__module__ == "torch.storage" and kind.__name__ == "UntypedStorage" and obj.device.type == "cpu":
            found = small_storage, (bytearray(ctypes.string_at(obj.data_ptr(), obj.nbytes())),)
        elif is_plain_tensor(obj):
            return in_storage(obj)
        elif self.private and kind in LOCKS and is_free(obj):
            return LOCKS[kind], ()
        elif is_tensor(obj) and is_dense(obj) and is_large_storage(obj.untyped_storage()):
            return tensor_in_storage(obj)
        else:
            found = NotImplemented
        return super().reducer_override(obj) if found is NotImplemented else found

    def note_copied(self, kind: type[Any], size: int, reason: str = "which is pickled in its own way") -> None:
        if kind is not np.ma.MaskedArray:  # its data and its mask are arrays
            self.copied[f"{kind.__name__} of {shown(size)}, {reason}"] = None

    def array(self, array: npt.NDArray[Any]) -> Any:
        """Return how an array is sent, if it is large or a view of a large one."""
        root = root_of(array)
        if not array.nbytes or (max(root.nbytes, array.nbytes) < LARGE and not self.is_view_of_shared(root)):
            return NotImplemented
        if array.dtype.hasobject:
            self.note_copied(np.ndarray, array.nbytes, "whose elements are Python objects")
            return NotImplemented
        span, address = Span.of(array), array.__array_interface__["data"][0]
        form = array.shape, array.dtype, array.strides
        if (file := self.file(root)) is not None:
            return file_array, (file, address - file.address, *form, type(array))
        if (memory := self.shared(span)) is not None:
            writeable = memory.access == mmap.ACCESS_WRITE and not isinstance(root, np.memmap)
            return array_of, (memory, address - memory.address, *form, writeable and array.flags.writeable)
        if not self.functions:
            return NotImplemented
        if isinstance(root, np.memmap) and not self.elsewhere:
            reason = "changes to it are not in the file" if root.mode == "c" else "its file has no name any more"
            self.copied[f"np.memmap of {shown(root.nbytes)}, once for all workers, as {reason}"] = None
        if span.size > SPARSE * array.nbytes:
            array = np.array(array, order="K", subok=False)
            span, address, form = Span.of(array), array.__array_interface__["data"][0], (*form[:2], array.strides)
        self.parts.owners.append(array)
        self.parts.apart.add(span)
        writeable = self.private and array.flags.writeable
        return array_of, (PickleBuffer(span.block()), address - span.address, *form, writeable)

    def is_view_of_shared(self, root: npt.NDArray[Any]) -> bool:
        """Return whether an array is in memory that its owner shares on purpose, to tell workers something."""
        owned = root.base is None or isinstance(root.base, (bytes, bytearray))
        memory = None if owned or self.elsewhere or isinstance(root, np.memmap) else self.mappings.shared(Span.of(root))
        return memory is not None and memory.access != mmap.ACCESS_COPY

    def file(self, root: npt.NDArray[Any]) -> MappedFile | None:
        """Return the file of a `np.memmap`, if the name is still that of the same file."""
        if self.elsewhere or not isinstance(root, np.memmap):
            return None
        key = id(root)
        if key not in self.files:
            self.parts.owners.append(root)
            self.files[key] = self.mapped_file(root)
        return self.files[key]

    def mapped_file(self, root: np.memmap[Any, Any]) -> MappedFile | None:
        if root.filename is None or root.mode == "c":
            return None
        path = os.path.abspath(os.fspath(root.filename))
        try:
            status = os.stat(path)
        except OSError:
            return None
        if os.name != "nt" and (status.st_dev, status.st_ino) not in self.mappings.descriptors:
            return None
        self.mapped[f"the file {path} ({shown(root.nbytes)})"] = None
        return MappedFile(root, path, status)

    def shared(self, span: Span) -> MappedMemory | None:
        """Return the shared mapping that memory lies in."""
        found = None if self.elsewhere else self.mappings.shared(span)
        if found is not None:
            found = self.memory.setdefault(found.address, found)
            self.mapped[f"shared memory ({shown(found.size)})"] = None
        return found

    def storage(self, storage: Any) -> Any:
        """Return how the memory of a tensor is sent."""
        if type(storage).__name__ == "TypedStorage":
            return typed_storage, (untyped(storage), storage.dtype)
        self.parts.owners.append(storage)
        span = Span(storage.data_ptr(), storage.nbytes())
        if (memory := self.shared(span)) is not None:
            return storage_of, (memory, span.address - memory.address, span.size)
        self.parts.apart.add(span)
        return storage_of, (PickleBuffer(span.block()), 0, span.size)


PATIENCE: Final = 0.5
"""Seconds for which a lock may be held by another thread, which changes what it protects."""


def is_free(lock: Any) -> bool:
    """Return whether nobody else holds a lock: a forked process, too, would have one of its own that is free."""
    free: bool = lock.acquire(timeout=PATIENCE)
    if free:
        lock.release()
    return free


def root_of(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the array that owns the memory of a view, or has it from something else than an array."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def shown(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def tensor_in_storage(tensor: Any) -> Any:
    """Return how a tensor is sent, with its storage apart: in its own way, but for dtypes that torch 2.13 pickles in a
    way that it cannot unpickle."""
    if type(tensor).__name__ != "Tensor" or dtype_name(tensor) in PICKLED:
        return NotImplemented
    return in_storage(tensor.resolve_conj().resolve_neg())


def in_storage(tensor: Any) -> Any:
    """Return how a tensor is sent as a view of its storage, which all views of it share where they arrive, too."""
    place = tensor.storage_offset(), tuple(tensor.shape), tensor.stride()
    return tensor_of, (tensor.untyped_storage(), dtype_name(tensor), *place, tensor.requires_grad)


def is_plain_tensor(value: Any) -> bool:
    """Return whether this is a tensor that is nothing but its data: its own way of pickling takes 40 us, 70 to read."""
    if type(value).__name__ != "Tensor" or not is_tensor(value) or not is_dense(value):
        return False
    names = getattr(value, "names", ())  # of its axes, up to torch 2.12
    return not (value.requires_grad or value.is_conj() or value.is_neg() or value.__dict__ or any(names))


def is_large_storage(storage: Any) -> bool:
    """Return whether this is the memory of a tensor on the CPU that is large, or that its owner shares on purpose."""
    if type(storage).__name__ not in ("UntypedStorage", "TypedStorage"):
        return False
    memory = untyped(storage)
    if memory.device.type != "cpu" or memory.data_ptr() == 0:
        return False
    return memory.nbytes() >= LARGE or memory.is_shared()


def untyped(storage: Any) -> Any:
    """Return the memory of a tensor without its dtype."""
    return getattr(storage, "_untyped_storage", storage)


# in the worker


def array_of(
    buffer: Any, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...], writeable: bool
) -> npt.NDArray[Any]:
    """Return an array in memory that was sent."""
    array = np.ndarray(shape, dtype, buffer, offset, strides)
    if not writeable:
        array.flags.writeable = False
    return array


def file_array(
    base: np.memmap[Any, Any],
    offset: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    strides: tuple[int, ...],
    kind: type[Any],
) -> npt.NDArray[Any]:
    """Return an array in a file that is mapped; a `np.memmap` if it was one."""
    array = np.ndarray(shape, dtype, cast("Any", base), offset, strides).view(kind)
    if kind is np.memmap:
        for name in ("_mmap", "filename", "offset", "mode"):
            setattr(array, name, getattr(base, name))
    return array


def storage_of(buffer: Any, offset: int, size: int) -> Any:
    """Return the memory of a tensor that was sent: a copy if it is read-only, which PyTorch would write to."""
    buffer = bytearray(buffer) if memoryview(buffer).readonly else buffer
    torch: Any = import_module("torch")
    return torch.frombuffer(buffer, dtype=torch.uint8, count=size, offset=offset).untyped_storage()


def small_storage(data: bytearray) -> Any:
    """Return the memory of a tensor that was sent with the pickle, and may be resized."""
    torch: Any = import_module("torch")
    return (torch.frombuffer(data, dtype=torch.uint8).clone() if data else torch.empty(0)).untyped_storage()


def tensor_of(
    storage: Any, dtype: str, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], gradient: bool
) -> Any:
    """Return a tensor in memory that was sent."""
    torch: Any = import_module("torch")
    tensor = torch.empty(0, dtype=getattr(torch, dtype))
    return tensor.set_(storage, offset, shape, strides).requires_grad_(gradient)


def typed_storage(untyped: Any, dtype: Any) -> Any:
    """Return the memory of a tensor with its dtype, as PyTorch pickles it."""
    return import_module("torch").storage.TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)
