"""A simulated accelerator: streams, events and a caching allocator under CUDA's rules, which detects data races.

A scheduler, random or adversarial, decides when the work of a stream is executed. Each access to memory is compared, by
vector clocks, with those that must have finished: whether two are ordered does not depend on the actual schedule.
"""

from __future__ import annotations

import random
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from asyncdata.devices.base import Device, Event, Sent
from asyncdata.devices.element_arrays import reusable
from asyncdata.devices.packed_layout import PackedArray
from asyncdata.devices.pinned_memory import HostMemory, PinnedMemory
from asyncdata.elements.tensors import as_array, is_tensor
from asyncdata.errors import PlanError, StageError

__all__ = ("Accelerator", "SimulatedArray", "SimulatedDevice", "Stream")

Clock = dict[Any, int]
Policy = Literal["random", "lazy", "copy_first", "compute_first"]
POLICIES: Final = ("random", "lazy", "copy_first", "compute_first")


def join(clock: Clock, other: Clock) -> None:
    """Merge another clock into a clock."""
    for actor, time in other.items():
        clock[actor] = max(clock.get(actor, 0), time)


class Memory:
    """Memory of the host or the device, with its last write and the reads since then."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.data = np.zeros(size, np.uint8)
        self.written: tuple[Any, int] | None = None
        self.reads: dict[Any, int] = {}
        self.streams: set[Stream] = set()
        """The streams that use it, as in `record_stream`."""

    def read(self, actor: Any, clock: Clock) -> list[str]:
        """Record a read; return its races."""
        races: list[str] = []
        if self.written is not None and not knows(clock, actor, *self.written):
            races.append(f"{actor} reads {self.name}, in no order with the write by {self.written[0]}")
        self.reads[actor] = clock[actor]
        return races

    def write(self, actor: Any, clock: Clock) -> list[str]:
        """Record a write; return its races."""
        races: list[str] = []
        if self.written is not None and not knows(clock, actor, *self.written):
            races.append(f"{actor} writes {self.name}, in no order with the write by {self.written[0]}")
        races += [
            f"{actor} writes {self.name}, in no order with the read by {other}"
            for other, time in self.reads.items()
            if not knows(clock, actor, other, time)
        ]
        self.written, self.reads = (actor, clock[actor]), {}
        return races


def knows(clock: Clock, actor: Any, other: Any, time: int) -> bool:
    """Return whether another actor's work at some time happened before, for an actor with this clock."""
    return actor == other or clock.get(other, 0) >= time


class Stream:
    """A queue of work, which is executed in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clock: Clock = {}
        self.work: deque[tuple[SimulatedEvent | None, Callable[[], object]]] = deque()

    def __repr__(self) -> str:
        return f"stream {self.name!r}"


class SimulatedEvent:
    """A point in the work of a stream."""

    def __init__(self, accelerator: Accelerator, clock: Clock) -> None:
        self.accelerator = accelerator
        self.clock = clock
        self.done = False

    def happen(self) -> None:
        """Mark this point as reached by the stream."""
        self.done = True

    def wait(self) -> None:
        self.accelerator.wait_for(lambda: self.done, self.clock)


class SimulatedArray:
    """An array on a simulated accelerator."""

    __slots__ = ("__weakref__", "accelerator", "dtype", "memory", "owner", "shape", "start")

    def __init__(self, accelerator: Accelerator, memory: Memory, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.accelerator = accelerator
        self.memory = memory
        self.start = 0
        self.owner: SimulatedArray | None = None
        """The array in whose memory this one is, from byte `start` on."""
        self.shape = shape
        self.dtype = dtype

    @property
    def nbytes(self) -> int:
        """The size of its data in bytes."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def span(self) -> slice:
        """The place of its data in the memory."""
        return slice(self.start, self.start + self.nbytes)

    def numpy(self) -> npt.NDArray[Any]:
        """Return its data, once the current stream has reached this point."""
        result = self.accelerator.kernel(self)
        self.accelerator.leave().wait()
        return result[0]

    def __repr__(self) -> str:
        return f"SimulatedArray(shape={self.shape}, dtype={self.dtype})"


class Accelerator:
    """An accelerator for `prefetch_to_device`, which executes work in an order set by `policy` and `seed`.

    `races` are the accesses that were not ordered.

    >>> import asyncdata as ad
    >>> accelerator = Accelerator(seed=1)
    >>> ds = ad.Dataset.range(4).batch(2).prefetch_to_device(accelerator)
    >>> [batch.numpy() for batch in ds], accelerator.races
    ([array([0, 1]), array([2, 3])], [])
    """

    def __init__(self, seed: int = 0, policy: Policy = "random") -> None:
        if policy not in POLICIES:
            raise PlanError(f"Accelerator(policy=) must be one of {', '.join(POLICIES)}, got {policy!r:.40}")
        self.policy = policy
        self.random = random.Random(seed)
        self.lock = threading.RLock()
        self.races: list[str] = []
        self.default = Stream("default")
        self.copies = Stream("copy")
        self.streams = [self.default, self.copies]
        self.hosts: dict[int, Clock] = {}
        self.waited: Clock = {}
        """The merged clock of all waits of threads, as host memory passes between threads under a lock."""
        self.pinned: dict[int, int] = {}
        """The sizes of host memory that the device reads, by address."""
        self.spans: list[tuple[int, int, Memory]] = []
        """The places of arrays in that memory, and its uses."""
        self.registered = 0
        """How often memory was pinned."""
        self.pinned_memory = PinnedMemory(self.allocate, self.register, self.release)
        self.idle: dict[tuple[Stream, int], list[Memory]] = {}
        self.freed: deque[tuple[Stream, Memory]] = deque()
        self.leaving: list[tuple[Stream, Memory, list[SimulatedEvent]]] = []
        self.bytes = 0
        """How many bytes of the device were allocated for arrays in total."""
        self.local = threading.local()

    def __str__(self) -> str:
        return "simulated"

    # operations of a program

    def stream(self, name: str) -> Stream:
        """Return a new stream."""
        with self.lock:
            self.streams.append(made := Stream(name))
            return made

    @property
    def current(self) -> Stream:
        """The current stream of this thread."""
        return getattr(self.local, "stream", self.default)

    @contextmanager
    def using(self, stream: Stream) -> Generator[None]:
        """Make a stream current for this thread."""
        before = self.current
        self.local.stream = stream
        try:
            yield
        finally:
            self.local.stream = before

    def kernel(self, *arrays: SimulatedArray) -> list[npt.NDArray[Any]]:
        """Read arrays on the current stream; return a list that will hold their content at the time of execution."""
        found: list[npt.NDArray[Any]] = []
        memories = [array.memory for array in arrays]
        shapes = [(array.shape, array.dtype, array.span) for array in arrays]

        def execute() -> None:
            found.extend(
                memory.data[place].view(dtype).reshape(shape).copy()
                for memory, (shape, dtype, place) in zip(memories, shapes, strict=True)
            )

        self.submit(self.current, execute, reads=memories)
        return found

    def leave(self) -> SimulatedEvent:
        """Return the event after the work of the current stream so far."""
        with self.lock:
            self.reap()
            return self.record(self.current)

    def synchronize(self) -> None:
        """Wait until all streams have done their work."""
        with self.lock:
            for stream in self.streams:
                self.record(stream).wait()

    # memory

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: Stream) -> SimulatedArray:
        """Return an array in memory of a stream; freed memory of the stream is reused first."""
        size = -(-max(1, prod(shape) * dtype.itemsize) // 256) * 256
        with self.lock:
            self.reap()
            idle = self.idle.setdefault((stream, size), [])
            if idle:
                memory = idle.pop()
            else:
                memory = Memory(f"block {self.bytes}", size)
                self.bytes += size
            array = SimulatedArray(self, memory, shape, dtype)
            weakref.finalize(array, self.freed.append, (stream, memory)).atexit = False
            return array

    def reap(self) -> None:
        """Reclaim freed memory: at once, or if other streams use it, when they have reached this point."""
        while self.freed:
            stream, memory = self.freed.popleft()
            self.leaving.append((stream, memory, [self.record(other) for other in memory.streams]))
            memory.streams = set()
        waiting, self.leaving = self.leaving, []
        for stream, memory, events in waiting:
            if all(event.done for event in events):
                for event in events:  # any thread that gets the memory takes the allocator's lock after this
                    join(stream.clock, event.clock)
                self.idle.setdefault((stream, memory.data.nbytes), []).append(memory)
            else:
                self.leaving.append((stream, memory, events))

    def allocate(self, size: int) -> HostMemory:
        """Return host memory that the device reads."""
        data = np.zeros(size, np.uint8)
        self.register(data.ctypes.data, size)
        weakref.finalize(data, self.release, data.ctypes.data).atexit = False
        return data

    def register(self, address: int, size: int) -> bool:
        """Let the device read host memory."""
        self.pinned[address] = size
        self.registered += 1
        return True

    def release(self, address: int) -> None:
        """Let the device no longer read host memory."""
        self.pinned.pop(address, None)

    def written(self, array: npt.NDArray[Any]) -> list[str]:
        """Record that this thread has written an array in pinned memory; return the races."""
        start, stop = array.ctypes.data, array.ctypes.data + array.nbytes
        if not any(begin <= start and stop <= begin + size for begin, size in [*self.pinned.items()]):
            raise StageError("an array that is not in pinned memory is copied to the device")
        name = f"thread {threading.get_ident()}"
        overlaid = [span for span in self.spans if span[0] < stop and start < span[1]]
        races = [race for _, _, memory in overlaid for race in memory.write(name, self.waited)]
        memory = Memory(f"host memory {start:#x}", 0)
        memory.write(name, self.waited)
        self.spans = [*[span for span in self.spans if span not in overlaid], (start, stop, memory)]
        return races

    def memory_of(self, array: npt.NDArray[Any]) -> Memory:
        """Return the memory of an array that was written."""
        return next(memory for start, _, memory in self.spans if start == array.ctypes.data)

    # streams

    def host(self) -> Clock:
        """Return the clock of this thread."""
        return self.hosts.setdefault(threading.get_ident(), {})

    def host_write(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        """Record that this thread has written arrays in pinned memory."""
        with self.lock:
            name, clock = f"thread {threading.get_ident()}", self.host()
            clock[name] = clock.get(name, 0) + 1
            join(self.waited, clock)
            for array in arrays:
                self.races += self.written(array)

    def submit(
        self,
        stream: Stream,
        execute: Callable[[], object],
        reads: Sequence[Memory] = (),
        writes: Sequence[Memory] = (),
        after: SimulatedEvent | None = None,
    ) -> None:
        """Add work to a stream, which may first wait for an event; then let the scheduler execute some work."""
        with self.lock:
            self.reap()
            join(stream.clock, self.host())
            if after is not None:
                join(stream.clock, after.clock)
            stream.clock[stream] = stream.clock.get(stream, 0) + 1
            for memory in reads:
                self.races += memory.read(stream, stream.clock)
            for memory in writes:
                self.races += memory.write(stream, stream.clock)
            stream.work.append((after, execute))
            self.schedule()

    def record(self, stream: Stream) -> SimulatedEvent:
        """Return the event after the work of a stream so far."""
        with self.lock:
            join(stream.clock, self.host())
            event = SimulatedEvent(self, dict(stream.clock))
            stream.work.append((None, event.happen))
            self.schedule()
            return event

    def copy(self, stream: Stream, source: npt.NDArray[Any], target: SimulatedArray) -> None:
        """Add a copy of a host array to the device to a stream."""
        size = target.nbytes
        memory = target.memory

        def execute() -> None:
            memory.data[:size] = source.reshape(-1).view(np.uint8)

        self.submit(stream, execute, reads=[self.memory_of(source)] if size else [], writes=[memory])

    # the scheduler

    def schedule(self) -> None:
        """Execute some of the waiting work, by the policy."""
        if self.policy == "random":
            for _ in range(self.random.randrange(3)):
                self.step()
        elif self.policy != "lazy":
            first = [stream for stream in self.streams if (stream is self.copies) == (self.policy == "copy_first")]
            while any(map(self.advance, first)):
                continue

    def step(self) -> bool:
        """Advance one stream; return whether one could."""
        streams = [*self.streams]
        if self.policy == "random":
            self.random.shuffle(streams)
        elif self.policy == "copy_first":
            streams.sort(key=lambda stream: stream is not self.copies)
        else:
            streams.sort(key=lambda stream: stream is self.copies)
        return any(map(self.advance, streams))

    def advance(self, stream: Stream) -> bool:
        """Execute the next work of a stream unless it must wait; return whether it was executed."""
        if not stream.work:
            return False
        after, execute = stream.work[0]
        if after is not None and not after.done:
            return False
        stream.work.popleft()
        execute()
        return True

    def wait_for(self, ready: Callable[[], bool], clock: Clock) -> None:
        """Execute work until `ready()`, and merge a clock into this thread's."""
        with self.lock:
            while not ready():
                if not self.step():
                    raise StageError("the streams of the simulated accelerator wait for each other")
            join(self.host(), clock)
            join(self.waited, clock)


class SimulatedDevice(Device):
    """A simulated accelerator for one iterator."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.pinned_memory = accelerator.pinned_memory

    def send(self, leaves: Sequence[Any], into: Sequence[Any] | None) -> Sent:
        accelerator, stream = self.accelerator, self.accelerator.copies
        sources = [as_array(leaf) if is_tensor(leaf) else leaf for leaf in leaves]
        with accelerator.lock:
            accelerator.host_write([source for source in sources if source.nbytes])
            arrays: list[Any] = []
            for place, source in enumerate(sources):
                target = reusable(into, place, source.shape, source.dtype)
                arrays.append(accelerator.empty(source.shape, source.dtype, stream) if target is None else target)
                accelerator.copy(stream, source, arrays[-1])
            return Sent(arrays, accelerator.record(stream))

    def parts(self, packed: Any, parts: Sequence[PackedArray]) -> Sequence[Any]:
        return [self.array_at(packed, start, dtype, tuple(shape)) for start, dtype, shape, _ in parts]

    def array_at(self, packed: Any, start: int, dtype: Any, shape: tuple[int, ...]) -> SimulatedArray:
        """Return a view into an array of bytes from an offset on; its dtype is NumPy's or PyTorch's."""
        array = SimulatedArray(self.accelerator, packed.memory, shape, np.dtype(str(dtype).removeprefix("torch.")))
        array.start, array.owner = start, packed
        return array

    def arrive(self, sent: Sent) -> None:
        current = self.accelerator.current
        if isinstance(sent.ready, SimulatedEvent):
            self.accelerator.submit(current, int, after=sent.ready)
        for array in sent.arrays:
            array.memory.streams.add(current)

    def leave(self) -> Event:
        return self.accelerator.leave()

    def write(self, target: Any, array: Any) -> None:
        source, to, place, target_place = array.memory, target.memory, array.span, target.span

        def execute() -> None:
            to.data[target_place] = source.data[place]

        self.accelerator.submit(self.accelerator.current, execute, reads=[source], writes=[to])

    def close(self) -> None:
        self.accelerator.record(self.accelerator.copies).wait()
