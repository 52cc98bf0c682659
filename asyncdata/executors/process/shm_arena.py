"""The arena: recycled shared memory in which the data of groups travels between processes.

The side that sends owns `Slots`, takes the smallest free one that fits, and writes. The side that receives makes arrays
that are views of the slot, and frees it with the last of them. A slot's first byte says whether it is taken: the
receiver clears it from a finalizer, without a lock and without a message. Before a process forks, it gives up the slots
that its arrays use: they are never used again, and parent and child each write to memory of their own.

Reasons and measurements: docs/design.md, "Worker processes".
"""

from __future__ import annotations

import copyreg
import ctypes
import importlib
import io
import itertools
import math
import os
import pickle
import sys
import weakref
from collections import ChainMap
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, cached_property, lru_cache, partial
from mmap import mmap
from operator import attrgetter
from types import ModuleType
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, TypeGuard, cast

import cloudpickle
import numpy as np
import numpy.typing as npt

from asyncdata.elements.tensors import (
    array_and_dtype,
    dtype_name,
    from_array_and_dtype,
    has_gradient,
    is_dense,
    is_tensor,
    tensor_class,
)
from asyncdata.executors.function_wrappers import MAINS
from asyncdata.executors.process.shared_memory import Mapping, SharedMemory, descriptors, make_private
from asyncdata.memory.memcpy import copy
from asyncdata.memory.output_buffers import MIN_BYTES
from asyncdata.system import forks

__all__ = (
    "INLINE",
    "PICKLED",
    "Buffers",
    "ByValuePickler",
    "CloudPickler",
    "Message",
    "SlotReader",
    "SlotReference",
    "SlotWriter",
    "Slots",
    "address_of",
    "dump_by_value",
    "dumps",
    "is_passing",
    "pack",
    "pickled_by_value",
)

INLINE: Final = 3000
"""The most bytes sent through a pipe of the pool: a write of at most 4,096 is atomic, so that a process that is killed
while it writes cannot leave half a message."""

HEAD: Final = 64
ALIGN: Final = 64
LEAST: Final = 1 << 16

FREE, TAKEN, GIVEN_UP = range(3)
"""Values of a slot's first byte. The sender releases a slot that was given up, and its memory is the receiver's."""


class SlotReference(NamedTuple):
    """The place of a payload in another process's slot: the pickle, and after it a table of its buffers."""

    owner: int
    number: int
    handle: str
    size: int
    start: int
    length: int
    buffers: int
    passing: bool
    dropped: tuple[int, ...]


Message: TypeAlias = bytes | SlotReference
"""A pickle, or its place."""


def is_passing(payload: Message) -> bool:
    """Return whether a payload is in a slot beyond the limit, and is copied out as it arrives."""
    return isinstance(payload, SlotReference) and payload.passing


class Slot:
    """A segment that is used again and again."""

    __slots__ = ("number", "segment", "views")

    def __init__(self, number: int, segment: SharedMemory) -> None:
        self.number = number
        self.segment = segment
        self.views: weakref.ref[Any] | None = None  # the view behind arrays of this process

    @property
    def taken(self) -> bool:
        return self.segment.map[0] != 0 or self.seen

    @property
    def seen(self) -> bool:
        """Whether an array of this process is a view of it."""
        return self.views is not None and self.views() is not None

    def window(self) -> Any:
        """Return the view behind arrays of this process; it lives as long as one of them."""
        window = block_of(self.segment.size).from_buffer(self.segment.map)
        self.views = weakref.ref(window)
        return window


NUMBERS: Final = itertools.count()
"""Numbers of slots, each used once in a process: a reader may have payloads from several of its `Slots`."""


class Slots:
    """The slots that a process owns: at most `most_bytes` and `most` of them, not counting those that are sent."""

    def __init__(self, most_bytes: int, most: int = 32) -> None:
        self.most_bytes = most_bytes
        self.most = most
        self.slots: list[Slot] = []
        self.bytes = 0
        self.dropped: list[int] = []

    def take(self, need: int) -> tuple[Slot, bool]:
        """Return a slot of at least `need` bytes, and whether it is beyond the limit, to be copied out at once."""
        for slot in [slot for slot in self.slots if slot.segment.map[0] == GIVEN_UP]:
            self.drop(slot)
        free = [slot for slot in self.slots if not slot.taken and slot.segment.size >= need]
        slot = min(free, key=lambda slot: slot.segment.size) if free else self.make(need)
        slot.segment.map[0] = 1
        return slot, len(self.slots) > self.most or self.bytes > self.most_bytes

    def make(self, need: int) -> Slot:
        """Make a slot, a quarter larger than needed; free ones, which are too small, make way for it."""
        size = max(LEAST, -(-(need + need // 4) // LEAST) * LEAST)
        for slot in [slot for slot in self.slots if not slot.taken]:
            self.drop(slot)
        slot = Slot(next(NUMBERS), SharedMemory.create(size))
        self.bytes += size
        self.slots.append(slot)
        return slot

    def drop(self, slot: Slot) -> None:
        self.slots.remove(slot)
        self.bytes -= slot.segment.size
        self.dropped.append(slot.number)
        slot.segment.close()

    def reset(self) -> None:
        """Free all slots: no other process uses them any more."""
        for slot in self.slots:
            if slot.segment.map[0] == TAKEN:
                slot.segment.map[0] = FREE

    def close(self) -> None:
        """Release all slots."""
        for slot in self.slots:
            slot.segment.close()
        self.slots.clear()

    def send(self, head: bytes, buffers: Sequence[memoryview], writer: SlotWriter | None = None) -> SlotReference:
        """Copy a pickle and its buffers into a slot, except buffers that a `writer` made in it."""
        writer = writer or SlotWriter(self)
        sizes = [buffer.nbytes for buffer in buffers]
        made = writer.places_of(buffers)
        starts: list[int] = []
        start = writer.used
        for place, size in zip(made, sizes, strict=True):
            starts.append(place or start)
            start += 0 if place else aligned(size)
        table = np.array([starts, sizes], np.int64).tobytes()
        slot, passing = writer.give(start + len(head) + len(table))
        if slot is None:
            return self.send(head, buffers)
        target = memoryview(slot.segment.map)
        for buffer, place, begin, size in zip(buffers, made, starts, sizes, strict=True):
            if not place:
                copy(target[begin : begin + size], buffer)
        target[start : start + len(head)] = head
        target[start + len(head) : start + len(head) + len(table)] = table
        segment = slot.segment
        return SlotReference(
            os.getpid(), slot.number, segment.handle, segment.size, start, len(head), len(sizes), passing, self.gone()
        )

    def gone(self) -> tuple[int, ...]:
        """Return the numbers of the released slots, to send them once to the other side."""
        dropped, self.dropped = tuple(self.dropped), []
        return dropped

    def moved(self, reference: SlotReference, slot: Slot) -> SlotReference:
        """Return a payload that is not handed over yet in another slot: a function still holds a part of this one."""
        end = reference.start + reference.length + 16 * reference.buffers
        other, passing = self.take(end)
        copy(memoryview(other.segment.map)[HEAD:end], memoryview(slot.segment.map)[HEAD:end])
        slot.segment.map[0] = 0
        to = other.segment
        dropped = (*reference.dropped, *self.gone())
        return reference._replace(number=other.number, handle=to.handle, size=to.size, passing=passing, dropped=dropped)


def aligned(size: int) -> int:
    return (size + ALIGN - 1) // ALIGN * ALIGN


class SlotWriter:
    """A slot in which results are made that would else be copied there, taken when the first of them is; `size` is
    how many bytes they are likely to be."""

    def __init__(self, slots: Slots, size: int = 0) -> None:
        self.slots = slots
        self.size = size
        self.used = self.wanted = HEAD
        self.slot: Slot | None = None
        self.passing = False
        self.window: Any = None
        self.given: Slot | None = None

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return an array for a user's function, in the slot if it is large."""
        if dtype.hasobject or math.prod(shape) * dtype.itemsize < MIN_BYTES or min(shape, default=0) < 0:
            return np.empty(shape, dtype)
        return self.empty(shape, dtype)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return an array in the slot if it fits, else one in memory of this process."""
        count = math.prod(shape)
        size = aligned(count * dtype.itemsize)
        self.wanted += size
        if self.slot is None and size:
            self.slot, self.passing = self.slots.take(max(self.size, self.wanted) + LEAST)
            self.window = self.slot.window()
        if self.slot is None or self.used + size > self.slot.segment.size:
            return np.empty(shape, dtype)
        array = np.frombuffer(self.window, dtype, count, self.used).reshape(shape)
        self.used += size
        return array

    def places_of(self, buffers: Sequence[memoryview]) -> list[int]:
        """Return the place of each buffer in the slot; 0 if it is not there, or shares bytes with another one."""
        places = [0] * len(buffers)
        if self.slot is None:
            return places
        base, end = address_of(memoryview(self.slot.segment.map)), HEAD
        found = [(address_of(part) - base, number) for number, part in enumerate(buffers) if part.nbytes]
        for place, number in sorted(found):
            if end <= place < self.used:
                places[number], end = place, place + buffers[number].nbytes
        return places

    def give(self, need: int) -> tuple[Slot | None, bool]:
        """Hand over the slot, or one of so many bytes if nothing was made; `None` if they do not fit."""
        if self.slot is None:
            return self.slots.take(need)
        if need > self.slot.segment.size:
            return None, False
        self.given, self.slot = self.slot, None
        return self.given, self.passing

    def settled(self, payload: Message) -> Message:
        """Return a payload in memory that no array of this process uses: arrays that a function holds stay its own."""
        self.window = None
        if self.given is None or not self.given.seen or not isinstance(payload, SlotReference):
            return payload
        return self.slots.moved(payload, self.given)

    def drop(self) -> None:
        """Free the slot if it was not handed over."""
        if self.slot is not None:
            self.slot.segment.map[0] = 0


def address_of(buffer: memoryview) -> int:
    """Return the address of memory that is not empty."""
    return np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]


def character(value: Any) -> Any:
    """Return how bytes or text of NumPy travel: its own way drops zeros at the end."""
    return (np.bytes_, (bytes(value),)) if isinstance(value, np.bytes_) else (np.str_, (str.__str__(value),))


def masked(value: np.ma.MaskedArray[Any, Any]) -> Any:
    """Return how a masked array travels: its own way loses that a mask is hard, and does not send its data apart."""
    mask = None if value.mask is np.ma.nomask else value.mask
    return masked_of, (np.asarray(value), mask, value.fill_value, value.hardmask)


def masked_of(data: npt.NDArray[Any], mask: Any, fill_value: Any, hard: bool) -> Any:
    """Return a masked array that was sent."""
    return np.ma.MaskedArray(data, mask=np.ma.nomask if mask is None else mask, fill_value=fill_value, hard_mask=hard)


def memory(value: memoryview) -> Any:
    """Return how a memoryview travels: cloudpickle would send its bytes."""
    memoryview(b"").cast("B").cast(cast("Any", value.format))  # raises for a format that cannot be had again
    data = value.tobytes()
    return memory_of, (data if value.readonly else bytearray(data), value.format, value.shape)


def memory_of(data: bytes | bytearray, form: Any, shape: list[int]) -> memoryview:
    """Return a memoryview that was sent."""
    view = cast("Any", memoryview(data).cast(form))
    return view if view.shape == shape else view.cast("B").cast(form, shape)


REDUCERS: Final[dict[type, Any]] = {
    np.bytes_: character,
    np.str_: character,
    np.ma.MaskedArray: masked,
    memoryview: memory,
}
"""How values travel whose own ways, or cloudpickle's, change them."""


class Named(pickle.Pickler):
    """Pickles as pickle does, but tensors of torch as arrays: torch's own way is slow and not out of band."""

    def __init__(self, file: io.BytesIO, keep: Callable[[pickle.PickleBuffer], object] | None) -> None:
        super().__init__(file, 5, buffer_callback=keep)
        self.dispatch_table = {**copyreg.dispatch_table, **REDUCERS}
        if (tensor := tensor_class()) is not None:
            self.dispatch_table[tensor] = reduced_tensor  # by its type: a `reducer_override` is called for each object


def reduced_tensor(tensor: Any) -> Any:
    """Return how a tensor, of no subclass, travels: as an array, or in its own way if it has none."""
    if not is_dense(tensor):
        return tensor.__reduce_ex__(5)
    array, name = array_and_dtype(tensor)
    return tensor_of, (array, name, True) if has_gradient(tensor) else (array, name)


def tensor_of(array: Any, name: str = "", gradient: bool = False) -> Any:
    """Return a tensor that shares an array's memory, with `gradient` one that gradients are computed for."""
    importlib.import_module("torch")
    return from_array_and_dtype(array, name, gradient)


class Buffers(list[pickle.PickleBuffer]):
    """The data of a value's arrays, apart from its pickle but for the first `inline` bytes: a small value, as most
    groups of elements are, is complete when it has been pickled once."""

    def __init__(self, inline: int = 0) -> None:
        super().__init__()
        self.left = inline

    def keep(self, buffer: pickle.PickleBuffer) -> bool:
        """Return whether an array's data is put into the pickle."""
        if self.left:
            self.left = max(0, self.left - buffer.raw().nbytes)
        if not self.left:
            self.append(buffer)
        return self.left > 0


Keep: TypeAlias = "Callable[[pickle.PickleBuffer], object] | None"


def dumps(value: Any, buffers: Buffers | None) -> bytes:
    """Pickle a value, with the data of its arrays apart in `buffers`, which is empty; objects that pickle knows by name
    only, and that cannot be found by it, are pickled by value (cloudpickle)."""
    keep = None if buffers is None else buffers.keep
    try:
        return named(value, keep)
    except Exception:
        if buffers:
            buffers.clear()  # buffers added before the failure would be taken for later ones
        return pickled_by_value(value, keep)


def named(value: Any, keep: Keep) -> bytes:
    """Pickle a value with functions and classes by name."""
    Named(target := io.BytesIO(), keep).dump(value)
    return target.getvalue()


def pickled_by_value(value: Any, keep: Keep = None) -> bytes:
    """Pickle a value with the functions and classes in it that no other process could import (cloudpickle)."""
    ByValuePickler(target := io.BytesIO(), 5, buffer_callback=keep).dump(value)
    return target.getvalue()


def is_child_main(main: ModuleType | None) -> TypeGuard[ModuleType]:
    """Return whether this is the main script as multiprocessing imports it in a child: processes of this package do
    not."""
    return main is not None and main.__name__ == "__mp_main__"


PICKLED: Final = {"bool", "uint8", "bfloat16", "complex64", "complex128"} | {
    f"{kind}{bits}" for kind, sizes in {"int": (8, 16, 32, 64), "float": (16, 32, 64)}.items() for bits in sizes
}
"""Dtypes of tensors that pickle can handle; torch 2.13 pickles others in a way that it cannot unpickle."""

CloudPickler: Final = cast("Any", cloudpickle).Pickler
Cached: Final[Any] = type(cache(len))


def cached(function: Any) -> Any:
    """Return how a function of `functools.cache` travels, which pickle knows by name only: empty, if not by name."""
    name: str = getattr(function, "__qualname__", "")
    with suppress(KeyError, AttributeError):  # not there by that name
        if function.__module__ not in MAINS and attrgetter(name)(sys.modules[function.__module__]) is function:
            return name
    return cached_anew, (function.__wrapped__, function.cache_parameters())


def cached_anew(function: Any, parameters: dict[str, Any]) -> Any:
    """Return a function with a cache of its own."""
    return lru_cache(**parameters)(function)


def property_of(made: cached_property[Any]) -> Any:
    """Return how a property that is worked out once travels: up to Python 3.11 it has a lock."""
    return cached_property, (made.func,), {"attrname": made.attrname}


PLAIN: Final = ("__new__", "__reduce__", "__reduce_ex__", "__getstate__")


def is_plain_object(kind: Any) -> bool:
    """Return whether the instances of a class are their attributes alone, and it has no own way to pickle them."""
    bases: tuple[type, ...] = kind.__mro__
    slots = any(base.__dict__.get("__slots__") for base in bases)
    if kind.__dictoffset__ == 0 or slots or hasattr(kind, "__setstate__") or kind in ByValuePickler.dispatch_table:
        return False
    own = [getattr(kind, name, None) for name in (*PLAIN, "__getnewargs__", "__getnewargs_ex__")]
    return own == [*[getattr(object, name) for name in PLAIN], None, None]


def set_attributes(made: Any, attributes: dict[str, Any]) -> None:
    """Give an unpickled object its attributes. Pickle would first ask it for a method, which a `__getattr__` that
    delegates to one of the attributes does not survive."""
    made.__dict__.update(attributes)


class ByValuePickler(CloudPickler):
    """Sends functions and classes that cannot be imported, those with a cache among them."""

    dispatch_table: ClassVar[Any] = ChainMap(
        REDUCERS | {Cached: cached, cached_property: property_of}, CloudPickler.dispatch_table
    )

    def dump(self, obj: Any) -> None:
        if is_child_main(main := sys.modules.get("__mp_main__")):
            cast("Any", cloudpickle).register_pickle_by_value(main)
        CloudPickler.dump(self, obj)

    def reducer_override(self, obj: Any) -> Any:
        if type(obj).__module__.startswith("msgspec") and isinstance(obj, type) and obj.__module__ in MAINS:
            raise TypeError(
                f"the msgspec.Struct {obj.__qualname__} of the main script cannot be sent, as its fields would be "
                "lost: define it in a module that can be imported"
            )
        if is_tensor(obj) and dtype_name(obj) not in PICKLED:
            return reduced_tensor(obj) if type(obj) is tensor_class() else NotImplemented
        kind: Any = type(obj)  # pyright: ignore[reportUnknownVariableType]
        if hasattr(kind, "__getattr__") and is_plain_object(kind):
            return object.__new__, (kind,), obj.__dict__, None, None, set_attributes
        return CloudPickler.reducer_override(self, obj)


def dump_by_value(value: Any, buffers: Buffers | None) -> bytes:
    """Pickle a value as `dumps` does, objects of the main script by value too."""
    return pickled_by_value(value, None if buffers is None else buffers.keep)


def pack(
    value: Any,
    slots: Slots,
    inline: int = INLINE,
    writer: SlotWriter | None = None,
    dump: Callable[[Any, Buffers | None], bytes] = dumps,
) -> Message:
    """Return a value as a payload: a pickle if it is small, else in a slot, with the data of arrays copied once.

    Arrays made by a `writer` are already in the slot.
    """
    buffers = Buffers(inline)
    head = dump(value, buffers)
    if len(head) <= inline and not buffers:
        return head
    return slots.send(head, [buffer.raw() for buffer in buffers], writer)


@cache
def block_of(size: int) -> Any:
    """Return the type of so many bytes; one for each size of slot."""
    return ctypes.c_ubyte * size


def clear(memory: mmap, _: object) -> None:
    """Free a slot: its last view is gone."""
    memory[0] = 0


class SlotReader:
    """The slots of other processes as this one sees them."""

    def __init__(self) -> None:
        self.maps: dict[tuple[int, int], Mapping] = {}
        self.views: dict[tuple[int, int], weakref.ref[Any]] = {}
        self.identities: dict[tuple[int, int], tuple[int, int]] = {}
        forks.register(self)

    def open(self, payload: Message, copied: bool = False) -> Any:
        """Return the unpacked value. Its arrays are views of the slot, which is freed with the last of them, unless
        they are `copied` or the slot is beyond the limit.

        The owner of those views is a ctypes array: NumPy may drop a memoryview that it was given, but holds this.
        """
        if isinstance(payload, bytes):
            return pickle.loads(payload)
        memory = self.map_of(payload)
        owner = block_of(payload.size).from_buffer(memory)
        owner.slot = (self, payload[:2], self.identities[payload[:2]])
        owner.memory = memory
        VIEWS[ctypes.addressof(owner)] = owner
        self.views[payload[:2]] = weakref.ref(owner, partial(clear, memory))
        view = memoryview(owner).cast("B")
        end = payload.start + payload.length
        table = np.frombuffer(view, np.int64, 2 * payload.buffers, end).reshape(2, -1).tolist()
        spans = [view[start : start + size] for start, size in zip(*table, strict=True)]
        buffers = [bytearray(span) for span in spans] if copied or payload.passing else spans
        return pickle.loads(view[payload.start : end], buffers=buffers)

    def discard(self, payload: Message) -> None:
        """Free the slot of a payload that is no longer needed."""
        if isinstance(payload, SlotReference):
            self.map_of(payload)[0] = 0

    def map_of(self, reference: SlotReference) -> Mapping:
        """Return the memory of a slot, which is mapped when it is first seen."""
        for number in reference.dropped:
            self.forget((reference.owner, number))
        key = reference[:2]
        if (memory := self.maps.get(key)) is None:
            memory, self.identities[key] = SharedMemory.identified(reference.handle, reference.size)
            self.maps[key] = memory
        return memory

    def forget(self, key: tuple[int, int]) -> None:
        """Release a slot; live views hold its memory."""
        self.maps.pop(key, None)
        self.views.pop(key, None)
        self.identities.pop(key, None)

    def forget_all(self, owner: int) -> None:
        """Release the slots of a process that has ended."""
        for key in [key for key in self.maps if key[0] == owner]:
            self.forget(key)

    def disown(self) -> None:
        """Release all slots in a forked child: those that its arrays use were given up before."""
        self.views.clear()
        self.maps.clear()
        self.identities.clear()


VIEWS: Final[weakref.WeakValueDictionary[int, Any]] = weakref.WeakValueDictionary()
"""The views of other processes' slots behind arrays of this process, by address."""


def before_fork() -> None:
    """Give up the slots that arrays of this process use: a child has the same arrays."""
    windows = list(VIEWS.values())
    found = descriptors() if windows else {}
    for window in windows:
        give_up(window, found)


def give_up(window: Any, found: dict[tuple[int, int], int]) -> None:
    """Make the memory of a slot this process's own: the slot is not used again, and writes there are private."""
    attached, key, identity = window.slot
    if (view := attached.views.get(key)) is not None and view() is window:
        attached.forget(key)  # with the finalizer that would clear its first byte
    window[0] = GIVEN_UP
    address = ctypes.addressof(window)
    make_private(address, ctypes.sizeof(window), found[identity])
    del VIEWS[address]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=before_fork)
