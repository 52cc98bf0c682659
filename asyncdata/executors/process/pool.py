"""WorkerPool: the standard process pool, rebuilt when a worker dies, with all unfinished groups.

Reasons and measurements: docs/design.md, "Worker processes".
"""

from __future__ import annotations

import itertools
import logging
import os
import signal
import threading
import weakref
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import blake2b
from queue import SimpleQueue
from typing import Any, Final, cast

import numpy as np

from asyncdata.errors import AsyncDataError, ClosedError, StageError, unstarted
from asyncdata.executors.function_call import Call
from asyncdata.executors.group_work import GroupWork
from asyncdata.executors.process.heartbeat import NOTHING, Heartbeats
from asyncdata.executors.process.held_data import HeldData, Span, merged
from asyncdata.executors.process.imports import current_folder
from asyncdata.executors.process.shared_memory import SharedMemory
from asyncdata.executors.process.shm_arena import SlotReader, SlotReference, Slots
from asyncdata.executors.process.spawn import Context, WorkerProcess, at_exit, preload
from asyncdata.executors.process.worker import (
    MAX_FUNCTIONS,
    FunctionReference,
    TaskReply,
    TaskRequest,
    be_ready,
    do,
    prepare,
)
from asyncdata.runtime.queue import AT_EXIT
from asyncdata.system import forks
from asyncdata.system.host_resources import most_bytes
from asyncdata.system.signal_handlers import start_thread

__all__ = (
    "ONCE",
    "PendingGroup",
    "PoolHandle",
    "Processes",
    "WorkerPool",
    "end_pools",
    "ending",
    "most_slots",
    "pool_of",
)

log = logging.getLogger("asyncdata")

END_TIMEOUT: Final = 2.0
MOST_UNPRODUCTIVE: Final = 3
MOST_KILLED: Final = 20
"""How often the pool is rebuilt without progress, if processes end by themselves, or are killed."""
MOST_DEATHS: Final = 2


class PendingGroup:
    """A submitted group: its request, made again for each try, and the callback for its outcome."""

    __slots__ = ("alone", "ask", "blamed", "deaths", "done", "future", "number", "suspect")

    def __init__(
        self, ask: Callable[[PendingGroup], TaskRequest], done: Callable[[TaskReply | BaseException], None], alone: bool
    ) -> None:
        self.ask = ask
        self.done = done
        self.alone = alone
        self.suspect = False
        self.deaths: dict[int, int] = {}
        self.blamed: dict[int, str] = {}
        self.number = 0
        self.future: Future[TaskReply] | None = None

    def died(self, place: int, code: int) -> None:
        """Take note that a worker died of it. Which element it was is known if there is one, or it went one by one."""
        if self.alone or self.suspect:
            self.deaths[place] = self.deaths.get(place, 0) + 1
            if self.deaths[place] >= MOST_DEATHS:
                self.blamed[place] = (
                    f"it ended the worker process that worked on it {MOST_DEATHS} times, {ending(code)}"
                )
        self.suspect = True


def ending(code: int) -> str:
    """Return in words how a process ended."""
    if code >= 0:
        return f"with exit code {code}"
    with suppress(ValueError):
        return f"by signal {-code} ({signal.Signals(-code).name})"
    return f"by signal {-code}"


class SharedFunction:
    """The work of a stage, pickled, in shared memory that is freed with the last reference to this."""

    def __init__(self, name: bytes, head: bytes, table: bytes, folder: str, data: list[SharedData]) -> None:
        segment = SharedMemory.create(len(head) + len(table))
        segment.map[:] = head + table
        places = tuple([(one.segment.handle, one.segment.size) for one in data])
        self.function = FunctionReference(name, segment.handle, segment.size, folder, len(head), places)
        self.data = data
        self.close = weakref.finalize(self, segment.close)
        self.close.atexit = False


SERIALS: Final = itertools.count(1)


class SharedData:
    """A copy in shared memory of what functions hold; freed with the last function that holds it."""

    def __init__(self, spans: list[Span]) -> None:
        self.serial = next(SERIALS)  # as handles may be used again
        self.places: dict[Span, int] = {}
        end = 0
        for span in spans:
            self.places[span] = start = end + (span.address - end) % DATA_ALIGN
            end = start + span.size
        self.segment = SharedMemory.create(end)
        for span, start in self.places.items():
            self.segment.write(start, memoryview(span.block()).cast("B"))
        weakref.finalize(self, self.segment.close).atexit = False

    def has(self, span: Span) -> bool:
        """Return whether it has a copy of memory that has not changed since."""
        start = self.places.get(span)
        if start is None:
            return False
        ours, theirs = np.frombuffer(self.segment.map, np.uint8, span.size, start), span.bytes
        parts = range(0, span.size, COMPARED)
        return all(np.array_equal(ours[at : at + COMPARED], theirs[at : at + COMPARED]) for at in parts)


DATA_ALIGN: Final = 64
COMPARED: Final = 1 << 22
"""Bytes that are compared at a time: the result of a comparison is as large as they are."""


def table_of(spans: list[Span], whole: list[Span], found: list[SharedData], data: list[SharedData]) -> bytes:
    """Return where each span is: in which of `data`, from which byte on, and how many."""
    starts = [span.address for span in whole]
    numbers = {one.serial: number for number, one in enumerate(data)}
    rows: list[tuple[int, int, int]] = []
    for span in spans:
        place = bisect_right(starts, span.address) - 1
        first = found[place].places[whole[place]]
        rows.append((numbers[found[place].serial], first + span.address - starts[place], span.size))
    return np.array(rows, np.int64).tobytes()


ONCE: Final = "beside this process's own (np.load(file, mmap_mode='r') and tensor.share_memory_() have one for all)"


def log_held(label: str, size: int, held: HeldData) -> None:
    """Log how the large data that a function holds gets to the workers."""
    parts = [f"{size / 1e6:,.1f} MB in shared memory, once for all workers, {ONCE}"] if size else []
    parts += [f"mapped by each worker: {', '.join(held.mapped)}"] if held.mapped else []
    parts += [f"copied: {', '.join(held.copied)}"] if held.copied else []
    log.info("%s holds large data: %s", label, "; ".join(parts))


class Processes(dict[int, WorkerProcess]):
    """The processes of a pool, which its threads may go through while another one adds some."""

    def values(self) -> Any:
        return [*super().values()]


class GrowingExecutor(ProcessPoolExecutor):
    """Starts a process with each call of `grow`, and no others: the standard one does that in whichever thread submits
    something, while others that submit wait, and only if no process is idle just then."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        setattr(self, "_processes", Processes())  # noqa: B010 - the standard pool's own

    def grow(self) -> Future[None]:
        """Start one more process; return a future that is done when there is one."""
        getattr(self, "_spawn_process")()  # noqa: B009 - the standard pool's own
        return self.submit(be_ready)

    def _adjust_process_count(self) -> None:
        pass


class WorkerPool:
    """`count` worker processes. A thread of its own starts, replaces and ends them."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.numbers = itertools.count(1)
        self.jobs: dict[int, PendingGroup] = {}
        self.lock = threading.RLock()  # a callback may submit more at once
        self.executor: GrowingExecutor | None = None
        self.context = Context()
        self.orders: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self.thread: threading.Thread | None = None
        self.heartbeats: Heartbeats | None = None
        """Made with the first process: a pool that never starts has no descriptor."""
        self.attached = SlotReader()
        self.slots = Slots(most_slots())
        self.functions: weakref.WeakValueDictionary[bytes, SharedFunction] = weakref.WeakValueDictionary()
        self.data: weakref.WeakSet[SharedData] = weakref.WeakSet()
        self.holders: weakref.WeakKeyDictionary[Call, SharedFunction] = weakref.WeakKeyDictionary()
        """Functions with data, which stay for further epochs, as long as their dataset does."""
        self.released: deque[bytes] = deque(maxlen=MAX_FUNCTIONS)
        self.modules: set[str] = set()
        self.settled = 0
        self.unproductive = 0
        self.broken = False
        self.opening = False
        """Whether it is about to start processes."""
        self.begun = False
        self.failed: AsyncDataError | None = None
        self.closed: ClosedError | None = None
        """The error of jobs when the interpreter is exiting."""
        forks.register(self)

    def disown(self) -> None:
        """Leave the processes to the parent."""
        WORKER_POOLS.discard(self)
        forks.never_finalize(self)

    # requests of stages

    def function(self, work: GroupWork, held: HeldData) -> SharedFunction:
        """Return the work of a stage as workers find it while the stage holds it."""
        folder = current_folder()
        whole = merged(held.spans)
        found = self.shared(whole)
        data = list(dict.fromkeys(found))
        table = table_of(held.spans, whole, found, data)
        serials = repr([one.serial for one in data]).encode()
        name = blake2b(held.head + table + serials + os.fsencode(folder), digest_size=16).digest()
        if (function := self.functions.get(name)) is None:
            function = self.functions[name] = SharedFunction(name, held.head, table, folder, data)
            if data or held.mapped or held.copied:
                log_held(work.label, sum(span.size for span in whole), held)
            if data:
                weakref.finalize(function, self.released.append, name).atexit = False
        if data:
            self.holders[work.calls[0]] = function
        return function

    def shared(self, spans: list[Span]) -> list[SharedData]:
        """Return which data has each span; those that nothing has yet are copied together."""
        known = list(self.data)
        found = {span: one for span in spans for one in known if one.has(span)}
        others = [span for span in spans if span not in found]
        if others:
            self.data.add(made := SharedData(others))
            found.update(dict.fromkeys(others, made))
        return [found[span] for span in spans]

    def released_names(self) -> tuple[bytes, ...]:
        """Return the names of functions that workers should forget, with the data that they hold."""
        return tuple([name for name in self.released if name not in self.functions])

    def submit(self, job: PendingGroup) -> None:
        """Have a job done; its `done` is called from another thread."""
        with self.lock:
            job.number = next(self.numbers)
            self.jobs[job.number] = job
            if self.closed is not None:
                self.fail(self.closed)
            elif self.executor is not None:
                self.hand(self.executor, job)
            else:
                self.begin()

    def call(self) -> None:
        """Have the processes started before there is anything for them to do."""
        with self.lock:
            if self.executor is None and self.closed is None:
                self.begin()

    def begin(self) -> None:
        """Let the pool's own thread start the processes, unless it is about to."""
        if self.opening:
            return
        self.opening, self.failed = True, None
        if self.thread is None:
            at_exit(end_pools, os.getpid())
            self.thread = threading.Thread(target=self.run, name="asyncdata-pool", daemon=True)
            start_thread(self.thread)
        self.orders.put(self.open)

    def drop(self, job: PendingGroup) -> None:
        """Forget a job; if it is being done, its worker stops at the next element, and its result is thrown away."""
        self.jobs.pop(job.number, None)
        if (future := job.future) is not None and not future.cancel():  # read once: the pool's thread clears it
            with self.lock:  # as the heartbeats may be released
                if self.heartbeats is not None and self.executor is not None:
                    self.heartbeats.drop(job.number)

    # the pool

    def hand(self, executor: GrowingExecutor, job: PendingGroup) -> None:
        """Give a job to the pool. A broken pool returns it when it is rebuilt."""
        order = job.ask(job)
        try:
            job.future = executor.submit(do, order)
        except (RuntimeError, OSError):  # it is broken or shut down, or no process could be started for it
            self.report(executor)
            return
        job.future.add_done_callback(partial(self.settle, job, executor))

    def settle(self, job: PendingGroup, executor: GrowingExecutor, future: Future[TaskReply]) -> None:
        """Hand on the outcome of a job; in the pool's thread."""
        if future.cancelled():
            return
        error = future.exception()
        if isinstance(error, BrokenProcessPool) or (error is None and not self.arrived(future.result())):
            self.report(executor)
            return
        self.settled += 1
        job.future = None  # it would hold the result
        if self.jobs.pop(job.number, None) is not None:
            job.done(future.result() if error is None else error)
        elif error is None:
            self.attached.discard(future.result().payload)

    def arrived(self, reply: TaskReply) -> bool:
        """Return whether a reply's memory exists: not if its worker has died since and the reply was not read
        before."""
        try:
            if isinstance(reply.payload, SlotReference):
                self.attached.map_of(reply.payload)
        except OSError:
            return False
        return True

    def report(self, executor: GrowingExecutor) -> None:
        """Order the rebuild of a broken pool, once."""
        if executor is self.executor and not self.broken:
            self.broken = True
            self.orders.put(self.recover)

    # the pool's own thread

    def run(self) -> None:
        """Process orders until the end."""
        while (order := self.orders.get()) is not None:
            try:
                order()
            except Exception as error:  # no process could be started
                self.opening = False
                self.fail(unstarted("the worker processes", error.with_traceback(None)))
            order = None
        self.close()

    def open(self) -> None:
        """Start the processes, and hand out the waiting jobs when the first one has started."""
        if self.executor is not None:  # ordered once more, while they were restarted
            return
        preload(self.modules if not self.unproductive else set())  # one of them may be why the fork server ends
        heartbeats = self.heartbeats = self.heartbeats or Heartbeats.create()
        executor = GrowingExecutor(
            self.count,
            mp_context=cast("Any", self.context),
            initializer=prepare,
            initargs=(heartbeats.segment.handle if heartbeats.segment else "", most_slots() // self.count),
        )
        self.start(executor, 1)
        with self.lock:
            self.broken = self.opening = False
            self.executor = executor
            for job in list(self.jobs.values()):
                self.hand(executor, job)
        self.start(executor, self.count - 1)

    def start(self, executor: GrowingExecutor, count: int) -> None:
        """Start some processes of a pool. If one of them dies meanwhile, the first job shows it."""
        try:
            for _ in range(count):
                future = executor.grow()
                if len(self.context.started) == self.count:
                    future.add_done_callback(self.started)
        except Exception as error:
            if isinstance(error, BrokenProcessPool) or getattr(executor, "_broken", False):
                end_begun(self.context.started[-1:], WorkerProcess.terminate)  # too late to be ended by the pool
                return
            self.abandon(executor)
            raise

    def abandon(self, executor: GrowingExecutor) -> None:
        """End a pool in which not all processes could be started; if the first one failed, the executor does not end
        them."""
        self.executor = None
        end_begun(self.context.started, WorkerProcess.kill)
        executor.shutdown(wait=True, cancel_futures=True)
        self.reap()
        self.unproductive = 0

    def started(self, _: Future[None]) -> None:
        """Take note that all processes have started, or that one has died."""
        self.begun = True

    def recover(self) -> None:
        """Rebuild the pool. Only unfinished jobs run again; the ones that a worker died of, with care."""
        with self.lock:
            executor, self.executor = self.executor, None
            self.opening = True
        if executor is not None:
            # One may wait without end for a lock of the pool's queue that another held when it was killed. The pool
            # ends it itself if it saw that one had died before it was shut down.
            with self.patience(WorkerProcess.terminate):
                executor.shutdown(wait=True)
        codes = self.reap()
        killed = all("signal" in code for code in codes)
        if self.unproductive > (MOST_KILLED if killed else MOST_UNPRODUCTIVE):
            self.unproductive = 0
            self.fail(StageError(f"worker processes end before they have completed a task, {', '.join(codes)}"))
        self.open()

    @contextmanager
    def patience(self, end: Callable[[WorkerProcess], None]) -> Generator[None]:
        """End the processes that there still are in two seconds; at once if the interpreter starts no more threads, as
        Python 3.12.1 at its end."""
        timer = threading.Timer(END_TIMEOUT, each, (self.context.started, end))
        timer.daemon = True
        try:
            start_thread(timer)
        except RuntimeError:
            each(self.context.started, end)
            yield
            return
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # else it might end a process that was replaced

    def reap(self) -> list[str]:
        """Find the jobs that workers died of, free their slots, and return how they ended."""
        dead, heartbeats = self.context.started, self.heartbeats
        self.context.started = []
        suspects = 0
        for process in dead:
            mark = heartbeats.read(process.pid or 0) if heartbeats else NOTHING
            code, pid = process.exitcode, process.pid
            self.attached.forget_all(pid or 0)
            job = self.jobs.get(mark.group)
            if job is not None and code is not None and not process.is_ending:  # as the pool ends the others
                suspects += 1
                job.died(mark.element, code)
        self.unproductive = 0 if self.settled or suspects else self.unproductive + 1
        self.settled = 0
        if heartbeats is not None:
            heartbeats.clear()
        self.slots.reset()
        endings = [ending(process.exitcode or 0) for process in dead]
        for process in dead:
            process.close()
        return endings

    def fail(self, error: AsyncDataError) -> None:
        """Fail all waiting jobs, as there is no pool."""
        self.failed = error
        with self.lock:
            jobs = list(self.jobs.values())
            self.jobs.clear()
        for job in jobs:
            job.done(error)

    def close(self) -> None:
        """End the processes; work that takes longer than two seconds more is dropped."""
        with self.lock:
            executor, self.executor = self.executor, None
            if self.closed is None:
                self.jobs.clear()
        if self.closed is not None:  # a thread that is no daemon may wait for them
            self.fail(self.closed)
        if executor is not None:
            with self.patience(WorkerProcess.kill):
                executor.shutdown(wait=True, cancel_futures=True)
            self.reap()
        for function in list(self.functions.values()):
            function.close()
        self.holders.clear()
        self.slots.close()
        if self.heartbeats is not None:
            self.heartbeats.close()


def each(processes: list[WorkerProcess], end: Callable[[WorkerProcess], object]) -> None:
    for process in processes:
        end(process)


def end_begun(processes: list[WorkerProcess], end: Callable[[WorkerProcess], object]) -> None:
    """End those of some processes that have begun, and wait for their end."""
    begun = [process for process in processes if process.pid is not None]
    each(begun, end)
    each(begun, WorkerProcess.join)


def most_slots() -> int:
    """Return how many bytes of shared memory the slots of one side may take: an eighth of the possible total."""
    return most_bytes() // 8


class PoolHandle:
    """A reference to a pool, which ends with its last reference."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.pool: WorkerPool = self.current_pool()
        forks.register(self)

    def disown(self) -> None:
        """Have a new pool in a forked child: the processes are the parent's, and so is the thread that watches them."""
        self.pool = self.current_pool()

    def current_pool(self) -> WorkerPool:
        """Return a new pool, which ends with this."""
        pool = WorkerPool(self.count)
        WORKER_POOLS.add(pool)
        weakref.finalize(self, pool.orders.put, None).atexit = False
        return pool

    def __reduce__(self) -> tuple[Any, ...]:
        return pool_of, (self.count,)


WORKER_POOLS: Final[weakref.WeakSet[WorkerPool]] = weakref.WeakSet()
HANDLES: Final[weakref.WeakValueDictionary[int, PoolHandle]] = weakref.WeakValueDictionary()


def pool_of(count: int) -> PoolHandle:
    """Return the pool of so many processes: all pipelines of this process share it, as long as one of them uses it."""
    pool = HANDLES.get(count)
    if pool is None:
        pool = HANDLES[count] = PoolHandle(count)
    return pool


def end_pools() -> None:
    """End all processes before the interpreter waits for the threads of their pools."""
    pools = list(WORKER_POOLS)
    for pool in pools:
        pool.closed = ClosedError(f"the worker processes were ended before the end of the data: {AT_EXIT}")
        pool.orders.put(None)
    for pool in pools:
        if pool.thread is not None:
            pool.thread.join(2 * END_TIMEOUT)


getattr(threading, "_register_atexit")(end_pools)  # noqa: B009 - as concurrent.futures does for its own threads
