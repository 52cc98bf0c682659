"""LoaderWorker: a worker process of loaders, and the pipe to it, which the thread that reads the loader serves itself.

A pipeline's own workers have threads between them and the reader, each of which costs a switch for each batch.
"""

from __future__ import annotations

import itertools
import select
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, Pipe
from typing import Any, Final, NamedTuple, Protocol

from asyncdata.errors import WorkerCrashed, unstarted
from asyncdata.executors.function_call import DroppedError
from asyncdata.executors.process.heartbeat import Heartbeats
from asyncdata.executors.process.pool import SharedFunction, WorkerPool, ending, most_slots
from asyncdata.executors.process.shm_arena import Message, SlotReader, SlotReference, Slots, SlotWriter, pack
from asyncdata.executors.process.spawn import Context, WorkerProcess, preload
from asyncdata.executors.process.task import RemoteError
from asyncdata.executors.process.worker import TaskReply, TaskRequest, WorkerState, do, prepare
from asyncdata.memory.output_buffers import giving
from asyncdata.system import forks
from asyncdata.system.sigint import DeferredInterrupts, DeferredSigint
from asyncdata.torch.internals import torch
from asyncdata.torch.worker_run import BatchReply, BatchRequest

__all__ = ("FUNCTIONS", "LoaderWorker", "wait_for_any", "workers_of")

IN_PIPE: Final = 1 << 15
"""Bytes of requests in a pipe, which holds more: the reader must not wait until the worker reads."""

MOST_DEATHS: Final = 2
"""So many times a worker may die of the same batch."""

FUNCTIONS: Final = WorkerPool(0)
"""What workers are sent, and the large data of datasets in shared memory; it has no processes of its own."""

GROUPS: Final = itertools.count(1)


class Inbox(Protocol):
    """Who asked: an epoch."""

    arrived: dict[int, BatchReply | BaseException]
    """Replies by the numbers of their batches."""

    def took(self, reply: BatchReply) -> None:
        """Take note of a reply, from whichever thread received it."""
        ...


class Asked(NamedTuple):
    """A request that was sent, or waits to be sent, and who asked."""

    group: int
    request: BatchRequest
    function: SharedFunction
    inbox: weakref.ref[Inbox]


class LoaderWorker:
    """A process that makes batches in the order in which they are asked for, for all epochs that share it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.heartbeats = Heartbeats.create()
        self.slots = Slots(most_slots())
        self.attached = SlotReader()
        self.reset()
        forks.register(self)

    def reset(self) -> None:
        """Have no process."""
        self.process: WorkerProcess | None = None
        self.pipe: Connection | None = None
        self.poll: Any = None
        self.starting: threading.Thread | None = None
        self.failed: Exception | None = None
        self.ready = False
        self.asked: deque[Asked] = deque()
        """In the order of the replies; the first `sent` are in the pipe."""
        self.sizes: deque[int] = deque()
        self.deaths = 0

    def disown(self) -> None:
        """Have a new process in a forked child: this one is the parent's."""
        self.lock = threading.RLock()
        self.reset()

    # start

    def start(self, installed: Sequence[str] = ()) -> None:
        """Start the process in the background, if there is none: the fork server may have to import PyTorch first, and
        `installed` modules."""
        with self.lock:
            if self.process is None and self.starting is None:
                start = partial(self.open, installed)
                self.starting = threading.Thread(target=start, name="asyncdata-loader", daemon=True)
                self.starting.start()

    def open(self, installed: Sequence[str]) -> None:
        """Start the process."""
        preload({"asyncdata.torch.worker_run"}, installed)
        try:
            pipe, others = Pipe()
            handle = self.heartbeats.segment.handle if self.heartbeats.segment else ""
            process = Context().Process(target=serve, args=(others, handle, most_slots()), daemon=True)
            process.start()
            others.close()
            weakref.finalize(self, pipe.close)
            self.process, self.pipe = process, pipe
            self.poll = select.poll()
            self.poll.register(pipe.fileno(), select.POLLIN)
        except Exception as error:  # noqa: BLE001  raised where a batch is asked for
            self.failed = unstarted("a worker process", error)

    def has_started(self) -> bool:
        """Return whether the process takes requests, without waiting for it."""
        if self.ready or self.failed is not None:
            return True
        return self.poll is not None and bool(self.poll.poll(0))

    def wait_for_start(self) -> None:
        """Wait until the process takes requests."""
        with self.lock:
            self.connection()
            if not self.ready:
                self.poll.poll()

    def connection(self) -> Connection:
        """Return the pipe, when the process is there."""
        if self.starting is not None:
            self.starting.join()
            self.starting = None
        if self.failed is not None:
            raise self.failed
        assert self.pipe is not None
        return self.pipe

    # requests and replies

    def ask(self, request: BatchRequest, function: SharedFunction, inbox: Inbox) -> None:
        """Have a batch made. Batches of epochs that were left are not made any more."""
        with self.lock:
            for one in self.asked:
                if one.inbox() is None:
                    self.heartbeats.drop(one.group)
            self.asked.append(Asked(next(GROUPS), request, function, weakref.ref(inbox)))
            self.send()

    def send(self) -> None:
        """Put requests into the pipe, as far as it has space."""
        pipe = self.connection()
        while len(self.sizes) < len(self.asked) and (not self.sizes or sum(self.sizes) < IN_PIPE):
            one = self.asked[len(self.sizes)]
            task = pack(one.request, self.slots, IN_PIPE // 4)
            self.sizes.append(len(task) if isinstance(task, bytes) else 0)
            with suppress(BrokenPipeError, ConnectionError):  # it has died: seen where a reply is awaited
                pipe.send(TaskRequest(one.group, one.function.function, task, FUNCTIONS.released_names()))

    def receive(self, inbox: Inbox, number: int, until: float | None = None) -> bool:
        """Wait for the reply with this number for `inbox`, until a time at most; return whether it came.

        Replies to others are handed on.
        """
        while number not in inbox.arrived:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not self.lock.acquire(timeout=-1 if left is None else left):
                return False
            try:
                if number in inbox.arrived:
                    break
                self.connection()
                if not self.poll.poll(None if left is None else left * 1000):
                    return False
                with DeferredInterrupts() as interrupts, DeferredSigint(interrupts):
                    self.take()
            finally:
                self.lock.release()
        return True

    def take(self) -> None:
        """Take one message, and hand it to whoever asked."""
        try:
            reply = self.connection().recv()
            if reply is not None and isinstance(reply.payload, SlotReference):
                self.attached.map_of(reply.payload)
        except (EOFError, OSError):  # it has died, perhaps after it had sent this, whose memory is gone
            self.restart()
            return
        if reply is None:
            self.ready = True
            return
        one = self.asked.popleft()
        self.sizes.popleft()
        self.deaths = 0
        inbox = one.inbox()
        if inbox is None:
            with suppress(OSError):
                self.attached.discard(reply.payload)
        else:
            self.hand(reply, inbox, one.request.number)
        self.send()

    def hand(self, reply: TaskReply, inbox: Inbox, number: int) -> None:
        """Give a reply to who asked for it."""
        found: Any = self.attached.open(reply.payload)
        if isinstance(found, RemoteError):
            inbox.arrived[number] = found.failure(None).error
        else:
            inbox.took(found)
            inbox.arrived[number] = found

    def restart(self) -> None:
        """Start another process for one that has died, and ask it for all that is left."""
        process, asked = self.process, self.asked
        assert process is not None
        process.kill()
        process.join()
        how = ending(process.exitcode or 0)
        self.attached.forget_all(process.pid or 0)
        deaths = self.deaths + 1
        self.slots.reset()
        self.reset()
        self.deaths = deaths
        if deaths > MOST_DEATHS or not asked:
            for one in asked:
                if (inbox := one.inbox()) is not None:
                    words = f"a batch of a DataLoader ended its worker process {deaths} times, {how}"
                    inbox.arrived[one.request.number] = WorkerCrashed(words)
            self.deaths = 0
            self.start()
            return
        self.asked = asked
        self.start()
        self.send()


def serve(pipe: Connection, heartbeats: str, most_bytes: int) -> None:
    """Make batches until the other side of the pipe is closed; in the worker."""
    prepare(heartbeats, most_bytes)
    torch.set_num_threads(1)
    with suppress(EOFError, ConnectionError):
        pipe.send(None)
        while True:
            pipe.send(do(pipe.recv(), make_batch))


def make_batch(order: TaskRequest, state: WorkerState, writer: SlotWriter) -> Message:
    """Return a batch as it is sent, or in its place the error that it cannot be; in the worker."""
    if state.heartbeats.is_dropped(order.group):
        raise DroppedError
    run: Any = state.learn(order.function, order.released).calls[0].fn
    begin = time.perf_counter()
    with giving(writer.allocate):
        reply: BatchReply = run(state.attached.open(order.task))
    reply.seconds = time.perf_counter() - begin
    try:
        return pack(reply, state.slots, writer=writer)
    except Exception as error:  # noqa: BLE001  of whatever cannot be pickled
        words = f"a batch, a {type(reply.data).__name__}, cannot be sent from a worker process: {error}"
        return pack(reply.failed(TypeError(words)), state.slots)


def wait_for_any(workers: Sequence[LoaderWorker], inbox: Inbox, until: float | None) -> bool:
    """Wait for a message of any worker that has something to do for `inbox`; return whether one came."""
    poll = select.poll()
    busy: dict[int, LoaderWorker] = {}
    for worker in workers:
        if any(one.inbox() is inbox for one in [*worker.asked]):
            descriptor = worker.connection().fileno()
            busy[descriptor] = worker
            poll.register(descriptor, select.POLLIN)
    left = None if until is None else max(0.0, until - time.monotonic()) * 1000
    for descriptor, _ in poll.poll(left):
        with busy[descriptor].lock, DeferredInterrupts() as interrupts, DeferredSigint(interrupts):
            busy[descriptor].take()
        return True
    return False


SHARED: Final[weakref.WeakValueDictionary[int, LoaderWorker]] = weakref.WeakValueDictionary()
"""The processes that loaders share, by the number of the worker."""


def workers_of(count: int, own: bool) -> list[LoaderWorker]:
    """Return so many workers, which end with the last loader that uses them; `own` ones are not shared."""
    if own:
        return [LoaderWorker() for _ in range(count)]
    found: list[LoaderWorker] = []
    for number in range(count):
        worker = SHARED.get(number)
        if worker is None:
            worker = SHARED[number] = LoaderWorker()
        found.append(worker)
    return found
