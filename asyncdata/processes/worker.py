"""What runs in a worker process: it is made ready once, and then does errands."""

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
from typing import Any, Final, NamedTuple

from asyncdata.copying import HELP
from asyncdata.memory import keep_memory_warm
from asyncdata.processes.arena import Attached, Draft, Parcel, Slots, dumps, pack
from asyncdata.processes.board import Board
from asyncdata.processes.errand import Alone, Carried, Errand, Outcome, carry_out
from asyncdata.processes.segment import Segment
from asyncdata.room import giving
from asyncdata.runtime.executors import Note, Workers
from asyncdata.runtime.machine import usable_cores
from asyncdata.runtime.work import Work

__all__ = ("Duty", "ForeignError", "Order", "Reply", "attend", "be_ready", "do", "fitting", "prepare")

MOST_DUTIES: Final = 64


class Duty(NamedTuple):
    """Where the work of a stage lies, pickled; its `name` is a hash of that."""

    name: bytes
    handle: str
    size: int


class Order(NamedTuple):
    """What goes to a worker: the number of the group, the stage's work, and the errand."""

    group: int
    duty: Duty
    errand: Parcel


class Reply(NamedTuple):
    """What comes back: an outcome, or the error that no element is to blame for."""

    parcel: Parcel
    failed: bool


class ForeignError(Exception):
    """Elements cannot be unpickled here, together, or with what is of the main script by name; never seen by users."""


class Post:
    """What a worker knows: where it says what it is at, its own slots, those of others, and the work it has learnt."""

    def __init__(self, board: str, most_bytes: int) -> None:
        self.board = Board(handle=board)
        self.slots = Slots(most_bytes)
        self.attached = Attached()
        self.drafted = 0  # bytes that were wanted last time
        self.duties: OrderedDict[bytes, Work] = OrderedDict()

    def learn(self, duty: Duty) -> Work:
        """Return the work of a stage, which is unpickled once."""
        if duty.name not in self.duties:
            memory = Segment.attach(duty.handle, duty.size, last=False)
            self.duties[duty.name] = pickle.loads(memory)
            memory.close()
        self.duties.move_to_end(duty.name)
        while len(self.duties) > MOST_DUTIES:
            self.duties.popitem(last=False)
        return self.duties[duty.name]


posts: Final[list[Post]] = []


def prepare(board: str, most_bytes: int) -> None:
    """Make this process a worker: Ctrl-C is for the parent alone, whose end is this one's; one compute thread."""
    attend()
    one_thread()
    if usable_cores() > 1:
        HELP.set(Workers(start, 1, "asyncdata-copy").submit)
    posts.append(Post(board, most_bytes))


def start(run: Callable[[], None], name: str) -> None:
    """Start a thread that ends with this process."""
    threading.Thread(target=run, name=name, daemon=True).start()


def attend() -> None:
    """Let Ctrl-C be for the parent alone, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=follow, args=(parent,), name="asyncdata-parent", daemon=True).start()
    keep_memory_warm()


def follow(parent: Any) -> None:
    """End with the parent, however it ends. The pool would leave its workers behind if the parent is killed.

    A child of the parent may hold the pipe open that tells of its end, so the parent itself is waited for where that
    is possible.
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
    """Let libraries compute in one thread: there are as many workers as cores."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
        os.environ[name] = "1"
    for module, setter in (("torch", "set_num_threads"), ("cv2", "setNumThreads")):
        if module in sys.modules:
            getattr(sys.modules[module], setter)(1)
    with suppress(ImportError):
        importlib.import_module("threadpoolctl").threadpool_limits(1)


def be_ready() -> None:
    """Do nothing: what a pool is asked first, so that its processes start."""


def do(order: Order) -> Reply:
    """Do an errand; what goes wrong with it as a whole is in the reply."""
    (post,) = posts
    post.board.write(order.group)
    try:
        draft = Draft(post.slots, post.drafted)
        try:
            return Reply(draft.settled(made(order, post, draft)), False)
        finally:
            post.drafted = draft.wanted
            draft.drop()
    except BaseException as error:  # SystemExit and the like, or a function that cannot be loaded here
        return Reply(pack(Carried.of(error), post.slots), True)
    finally:
        post.board.write(0)


def made(order: Order, post: Post, draft: Draft) -> Parcel:
    """Do the work of an errand and return its outcome as a parcel, of which nothing is left here but what its functions
    keep."""
    work = post.learn(order.duty)
    errand = opened(post, order.errand)
    with giving(draft.room) if work.rows is None else nullcontext():  # else rows of batches are given
        outcome = carry_out(work, errand, partial(post.board.write, order.group), draft.empty)
    parcel = sent(outcome, errand, post, work, draft)
    if draft.window is not None:
        for failure in outcome.failures:
            failure.forget_frames()
    return parcel


def opened(post: Post, parcel: Parcel) -> Errand:
    """Return an errand that has arrived."""
    try:
        return post.attached.open(parcel)
    except (MemoryError, OSError):
        raise
    except Exception as error:
        raise ForeignError(str(error)) from error


def sent(outcome: Outcome, errand: Errand, post: Post, work: Work, draft: Draft) -> Parcel:
    """Return an outcome as a parcel; results that cannot be pickled become failures."""
    try:
        if not errand.apart or isinstance(outcome.items, tuple):
            return pack(outcome.in_columns(), post.slots, draft=draft)
    except Exception:
        outcome = outcome.apart()
    fit = partial(fitting, work=work, alone=errand.apart)
    items = [[*map(fit, item)] if errand.sent.batches else fit(item) for item in outcome.items]
    return pack(outcome._replace(items=items), post.slots)


def fitting(item: Any, work: Work, alone: bool) -> Any:
    """Return a result, pickled by itself if asked for, or the failure in the place of one that cannot be pickled."""
    if type(item) is Carried:
        return item
    try:
        pickled = dumps(item, None)
        return Alone(pickled) if alone else item
    except Exception as error:
        kind = type(item).__name__
        refusal = TypeError(f"the function returned a {kind}, which cannot be sent from a worker process: {error}")
        refusal.add_note(Note(f"in {work.label}"))
        return Carried.of(refusal)
