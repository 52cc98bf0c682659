"""The code of a worker process: it is set up once, and then does tasks."""

from __future__ import annotations

import errno
import importlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from multiprocessing.connection import wait
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from asyncdata.executors.function_call import ElementNote, ThreadPool
from asyncdata.executors.global_random import seed_process
from asyncdata.executors.group_work import GroupWork
from asyncdata.executors.process.heartbeat import Heartbeats
from asyncdata.executors.process.shared_memory import SharedMemory
from asyncdata.executors.process.shm_arena import Message, SlotReader, Slots, SlotWriter, dumps, pack
from asyncdata.executors.process.task import IsolatedElement, RemoteError, Task, TaskResult, carry_out
from asyncdata.memory.buffer_pool import keep_memory_warm
from asyncdata.memory.memcpy import HELP
from asyncdata.memory.output_buffers import giving
from asyncdata.system.host_resources import usable_cores

__all__ = (
    "ForeignError",
    "FunctionReference",
    "TaskReply",
    "TaskRequest",
    "WorkerState",
    "attend",
    "be_ready",
    "do",
    "fitting",
    "prepare",
    "sent",
)

M = TypeVar("M")

MAX_FUNCTIONS: Final = 64


class FunctionReference(NamedTuple):
    """The place of a stage's pickled work, and the current folder of its calls; its `name` is a hash of both.

    After the pickle, in its memory, is a table of the buffers with what it holds: each a place in one of `data`.
    """

    name: bytes
    handle: str
    size: int
    folder: str
    length: int
    data: tuple[tuple[str, int], ...]

    def load(self) -> GroupWork:
        """Return the work; what it holds is mapped."""
        memory = SharedMemory.attach(self.handle, self.size, last=False)
        maps = [memoryview(SharedMemory.attach_private(handle, size)) for handle, size in self.data]
        with memoryview(memory) as view:
            table = np.frombuffer(view[self.length :], np.int64).reshape(-1, 3).tolist()
            buffers = [maps[number][start : start + size] for number, start, size in table]
            work: GroupWork = pickle.loads(view[: self.length], buffers=buffers)
        memory.close()
        return work


class TaskRequest(NamedTuple):
    """The request to a worker: the number of the group, the stage's work, the task, and the names of work with data
    that was released."""

    group: int
    function: FunctionReference
    task: Message
    released: tuple[bytes, ...] = ()


class TaskReply(NamedTuple):
    """The reply: an outcome, or an error that is not caused by an element."""

    payload: Message
    failed: bool


class ForeignError(Exception):
    """Elements cannot be unpickled here, together, or with objects of the main script by name; never seen by users."""


class WorkerState:
    """The state of a worker: its heartbeat, its own slots, those of others, and the stages' work that it has."""

    def __init__(self, heartbeats: str, most_bytes: int) -> None:
        self.heartbeats = Heartbeats(handle=heartbeats)
        self.slots = Slots(most_bytes)
        self.attached = SlotReader()
        self.drafted = 0  # bytes that were needed last time
        self.functions: OrderedDict[bytes, GroupWork] = OrderedDict()
        self.folder = ""  # the current one, as far as it is known

    def learn(self, function: FunctionReference, released: tuple[bytes, ...]) -> GroupWork:
        """Return the work of a stage, which is unpickled once. The current folder may have changed since the start."""
        for name in released:
            self.functions.pop(name, None)
        if function.folder != self.folder:
            os.chdir(function.folder)
            self.folder = function.folder
        if function.name not in self.functions:
            self.functions[function.name] = function.load()
        self.functions.move_to_end(function.name)
        while len(self.functions) > MAX_FUNCTIONS:
            self.functions.popitem(last=False)
        return self.functions[function.name]


states: Final[list[WorkerState]] = []


def prepare(heartbeats: str, most_bytes: int) -> None:
    """Make this process a worker: Ctrl-C is for the parent alone, whose end is this one's; one compute thread."""
    attend()
    one_thread()
    if usable_cores() > 1:
        HELP.set(ThreadPool(start, 1, "asyncdata-copy"))
    states.append(WorkerState(heartbeats, most_bytes))


def start(run: Callable[[], None], name: str) -> None:
    """Start a thread that ends with this process."""
    threading.Thread(target=run, name=name, daemon=True).start()


def attend() -> None:
    """Leave Ctrl-C to the parent, end with it, and have random numbers of its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=follow, args=(parent,), name="asyncdata-parent", daemon=True).start()
    if sys.breakpointhook is sys.__breakpointhook__ and "PYTHONBREAKPOINT" not in os.environ:
        sys.breakpointhook = quit_debugger
    keep_memory_warm()
    seed_process()


def quit_debugger(*arguments: object, **named: object) -> None:
    """Raise what pdb raises where it has no terminal; from Python 3.14 on it ends the process instead."""
    raise importlib.import_module("bdb").BdbQuit


def follow(parent: Any) -> None:
    """End with the parent, however it ends. Without this, workers would stay if the parent is killed.

    A child of the parent may hold open the pipe that signals its end, so this waits for the parent itself if possible.
    """
    ends: list[Any] = [parent.sentinel]
    if hasattr(os, "pidfd_open"):
        try:
            ends.append(os.pidfd_open(parent.pid))
        except OSError as error:
            if error.errno == errno.ESRCH:
                os._exit(1)
    wait(ends)
    os._exit(1)


def one_thread() -> None:
    """Make libraries compute in one thread: there are as many workers as cores."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
        os.environ[name] = "1"
    for module, setter in (("torch", "set_num_threads"), ("cv2", "setNumThreads")):
        if module in sys.modules:
            getattr(sys.modules[module], setter)(1)
    with suppress(ImportError):
        importlib.import_module("threadpoolctl").threadpool_limits(1)


def be_ready() -> None:
    """Do nothing: the first job of a pool, so that its processes start."""


def do(order: TaskRequest, run: Callable[[TaskRequest, WorkerState, SlotWriter], Message] | None = None) -> TaskReply:
    """Do a task, by `run_task` unless another function is given; an error of the entire task is in the reply."""
    (state,), run = states, run or run_task
    state.heartbeats.write(order.group)
    try:
        writer = SlotWriter(state.slots, state.drafted)
        try:
            return TaskReply(writer.settled(run(order, state, writer)), False)
        finally:
            state.drafted = writer.wanted
            writer.drop()
    except BaseException as error:  # SystemExit and the like, or a function that cannot be loaded here
        return TaskReply(pack(RemoteError.of(error), state.slots), True)
    finally:
        state.heartbeats.write(0)


def run_task(order: TaskRequest, state: WorkerState, writer: SlotWriter) -> Message:
    """Do the work of a task and return its outcome as a payload; nothing of it stays here except what its functions
    hold."""
    work = state.learn(order.function, order.released)
    task = unpack_task(state, order.task)
    with giving(writer.allocate) if work.rows is None else nullcontext():  # else rows of batches are given
        mark, dropped = partial(state.heartbeats.write, order.group), partial(state.heartbeats.is_dropped, order.group)
        outcome = carry_out(work, task, mark, writer.empty, dropped)
    in_place, copied = partial(pack, slots=state.slots, writer=writer), partial(pack, slots=state.slots)
    payload = sent(outcome, task, work, in_place, copied)
    if writer.window is not None:
        for failure in outcome.failures:
            failure.forget_frames()
    return payload


def unpack_task(state: WorkerState, payload: Message) -> Task:
    """Return a task that has arrived."""
    try:
        return state.attached.open(payload)
    except (MemoryError, OSError):
        raise
    except Exception as error:
        raise ForeignError(str(error)) from error


def sent(outcome: TaskResult, task: Task, work: GroupWork, first: Callable[[Any], M], again: Callable[[Any], M]) -> M:
    """Return an outcome packed by `first`; else by `again`, with failures for elements that cannot be pickled."""
    try:
        if not task.apart or isinstance(outcome.items, tuple):
            return first(outcome.in_columns())
    except Exception:
        outcome = outcome.apart()
    fit = partial(fitting, work=work, alone=task.apart)
    items = [[*map(fit, item)] if task.sent.batches else fit(item) for item in outcome.items]
    return again(outcome._replace(items=items))


def fitting(item: Any, work: GroupWork, alone: bool) -> Any:
    """Return a result, pickled by itself if requested, or the failure in the place of one that cannot be pickled."""
    if type(item) is RemoteError:
        return item
    try:
        pickled = dumps(item, None)
        return IsolatedElement(pickled) if alone else item
    except Exception as error:
        kind = type(item).__name__
        refusal = TypeError(f"the function returned a {kind}, which cannot be sent from a worker process: {error}")
        refusal.add_note(ElementNote(f"in {work.label}"))
        return RemoteError.of(refusal)
