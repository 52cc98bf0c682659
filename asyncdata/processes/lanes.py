"""Lanes in other processes: groups go out as errands, and results come back into their elements' places."""

from __future__ import annotations

import pickle
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import suppress
from functools import partial
from threading import Semaphore
from typing import Any, Final

from asyncdata import forks
from asyncdata.errors import PlanError, StageError
from asyncdata.processes.arena import Parcel, dumps, entire, is_passing, pack, whole
from asyncdata.processes.crew import Crew, Job, Lesson, Pool
from asyncdata.processes.errand import Alone, Carried, Errand, Outcome, back, carry_out, outward, reached
from asyncdata.processes.starting import modules_of
from asyncdata.processes.worker import ForeignError, Order, Reply, fitting
from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.executors import Pace, noted
from asyncdata.runtime.lanes import Group, Lanes
from asyncdata.runtime.work import Work

__all__ = ("EXECUTORS", "ExecutorLanes", "ProcessLanes", "pickled")

PROCESS_GROUP: Final = 16e-3
INPUT_INLINE: Final = 1 << 16

Finished = Callable[[Group], None]


def pickled(work: Work) -> bytes:
    """Return a stage's functions as they travel; `PlanError` for one that cannot."""
    try:
        return whole(work)
    except Exception as error:
        raise PlanError(
            f"{work.label} cannot be sent to a worker process: {error}; what a function uses (its globals, what it "
            "encloses) travels with it: open files, locks and connections inside the function, or use executor='thread'"
        ) from error


class UnreadableError(Exception):
    """The results of a group cannot be unpickled together; never seen by users."""


class ProcessLanes(Lanes):
    """Worker processes that run functions over groups of about sixteen milliseconds."""

    def __init__(self, pool: Pool, workers: int, work: Work, epoch: tuple[Any, ...], copied: bool) -> None:
        self.pace = Pace(PROCESS_GROUP)
        self.workers = workers
        self.pool = pool
        self.crew: Crew = pool.crew
        self.work = work
        self.epoch = epoch
        self.copied = copied
        for call in work.calls:
            self.crew.modules |= modules_of(call.fn)
        self.lesson: Lesson = self.crew.lesson(pickled(work))
        self.jobs: dict[Group, Job] = {}
        self.by_value = False  # elements, with functions and classes of the main script
        self.apart = False  # results, each pickled by itself
        self.resent: set[Group] = set()
        self.sealed: set[Group] = set()  # whose elements are pickled each by itself

    def begun(self) -> bool:
        """Tell whether the processes are there that were called; `StageError` if they cannot start."""
        if self.crew.failed is not None and not self.crew.begun:
            raise self.crew.failed
        return self.crew.begun

    def submit(self, group: Group, finished: Finished) -> None:
        job = Job(partial(self.order, group), partial(self.done, group, finished), len(group.what) == 1)
        self.jobs[group] = job
        self.crew.submit(job)

    def order(self, group: Group, job: Job) -> Order:
        """Return what is asked of a worker now."""
        try:
            parcel = self.parcel(group, job)
        except Exception:
            group.what = sendable(group.what, self.work)
            parcel = self.parcel(group, job)
        return Order(job.number, self.lesson.duty, parcel)

    def parcel(self, group: Group, job: Job) -> Parcel:
        """Return a group as it travels."""
        sent = outward(self.work, group.what)
        errand = Errand(
            sent.sealed() if group in self.sealed else sent,
            self.epoch,
            self.in_order,
            job.suspect,
            job.blamed,
            self.apart,
        )
        return pack(errand, self.crew.slots, INPUT_INLINE, dump=entire if self.by_value else dumps)

    def done(self, group: Group, finished: Finished, reply: Reply | BaseException) -> None:
        """Put results in their places; in the pool's thread."""
        self.jobs.pop(group, None)
        try:
            group.result = self.result(group, reply)
        except UnreadableError as error:  # the calls are made again, as after the death of a worker
            if group not in self.resent:
                self.apart = True
                self.resent.add(group)
                self.submit(group, finished)
                return
            group.error = StageError(f"{self.work.label}: results of a worker process cannot be unpickled: {error}")
        except ForeignError as error:
            if group not in self.resent:
                self.by_value = True
                self.resent.add(group)
                self.submit(group, finished)
                return
            if group not in self.sealed:
                self.sealed.add(group)
                self.submit(group, finished)
                return
            group.error = StageError(f"{self.work.label}: a worker process cannot load its elements: {error}")
        except BaseException as error:  # ends the pipeline, not the pool's thread
            group.error = error
        self.resent.discard(group)
        self.sealed.discard(group)
        group.done = True
        finished(group)

    def result(self, group: Group, reply: Reply | BaseException) -> Any:
        """Return the results of a group, or raise what no element is to blame for."""
        if isinstance(reply, BaseException):
            raise reply
        try:
            answer: Outcome | Carried = self.crew.attached.open(reply.parcel, self.copied)
        except MemoryError:
            raise
        except Exception as error:
            raise UnreadableError(repr(error)) from error
        if isinstance(answer, Carried):
            raise answer.failure(None).error
        if (self.copied or is_passing(reply.parcel)) and self.work.rows is None:
            answer = answer.apart()
        group.seconds, group.queued = answer.seconds, answer.queued
        group.count = reached(group.what, answer)
        self.pace.measured(group.count, answer.worked)
        what = group.what
        return back(what if group.count == len(what) else what.part(0, group.count), answer, self.work.label)

    def stop(self) -> None:
        for job in list(self.jobs.values()):
            self.crew.drop(job)
        self.jobs.clear()


def sendable(block: Block, work: Work) -> Block:
    """Return a group in which elements that cannot be pickled have failed."""
    if block.items and type(block.items[0]) is Block:
        return Block([sendable(batch, work) for batch in block.items], block.tickets)
    items = list(block.items)
    for place, item in enumerate(items):
        try:
            dumps(item, None)
        except Exception as error:
            kind = type(item).__name__
            refusal = TypeError(f"the element is a {kind}, which cannot be sent to a worker process: {error}")
            items[place] = noted(refusal, work.label, block.tickets[place])
    return Block(items, block.tickets, Failure in set(map(type, items)))


class Errands:
    """A stage's work as another executor runs it: in its threads as it is, in its processes from a pickle."""

    def __init__(self, work: Work, away: bool = False) -> None:
        self.work = work
        self.away = away

    def __call__(self, errand: Errand) -> Outcome | Alone:
        outcome = carry_out(self.work, errand, lambda _: None)
        return sealed(outcome, errand, self.work) if self.away else outcome

    def __reduce__(self) -> tuple[Any, ...]:
        return unpickled, (pickled(self.work),)


def unpickled(work: bytes) -> Errands:
    """Return work that came from another process."""
    return Errands(pickle.loads(work), away=True)


def sealed(outcome: Outcome, errand: Errand, work: Work) -> Outcome | Alone:
    """Return an outcome pickled: an executor whose process sends what cannot be unpickled is broken by it."""
    try:
        if not errand.apart or isinstance(outcome.items, tuple):
            return Alone(dumps(outcome, None))
    except Exception:
        outcome = outcome.apart()
    fit = partial(fitting, work=work, alone=True)
    items = [[*map(fit, item)] if errand.sent.batches else fit(item) for item in outcome.items]
    return outcome._replace(items=items)


class Executors:
    """The executors of the user's that were given calls: in a forked child nobody works on what they are given."""

    def __init__(self) -> None:
        self.used: weakref.WeakSet[Executor] = weakref.WeakSet()
        self.inherited: weakref.WeakSet[Executor] = weakref.WeakSet()
        forks.own(self)

    def disown(self) -> None:
        """Know in a forked child which executors are the parent's."""
        self.inherited.update(self.used)
        self.used.clear()

    def check(self, executor: Executor, label: str) -> None:
        """Raise for an executor that is the parent's."""
        if executor in self.inherited:
            raise StageError(
                f"{label}: the executor given as executor= works in the process that forked this one; make one here"
            )
        self.used.add(executor)


EXECUTORS: Final = Executors()


class ExecutorLanes(Lanes):
    """An executor of the user's, which the user ends. Whatever workers it has, it gets `workers` groups at once."""

    def __init__(self, executor: Executor, workers: int, work: Work, epoch: tuple[Any, ...]) -> None:
        self.pace = Pace(PROCESS_GROUP)
        self.workers = workers
        self.executor = executor
        self.errands = Errands(work)
        self.epoch = epoch
        self.futures: set[Future[Outcome | Alone]] = set()
        self.waiting: deque[tuple[Group, Finished]] = deque()
        self.room = Semaphore(workers)
        self.apart = False  # results, each pickled by itself
        self.resent: set[Group] = set()
        self.stopped = False

    def submit(self, group: Group, finished: Finished) -> None:
        self.waiting.append((group, finished))
        self.hand_over()

    def hand_over(self) -> None:
        """Submit what waits, as far as there is room; from any thread.

        No lock is held meanwhile: an executor may hold one of its own while it tells what became of a call.
        """
        while self.waiting and not self.stopped and self.room.acquire(blocking=False):
            try:
                group, finished = self.waiting.popleft()
            except IndexError:  # another thread has taken it
                self.room.release()
                continue
            errand = Errand(outward(self.errands.work, group.what), self.epoch, self.in_order, apart=self.apart)
            try:
                future = self.executor.submit(self.errands, errand)
            except Exception as error:  # it was shut down, or is broken
                self.room.release()
                group.error, group.done = self.refusal(f"takes no more calls: {error}"), True
                finished(group)
                continue
            self.futures.add(future)
            future.add_done_callback(partial(self.done, group, finished))
            if self.stopped:  # by another thread, which may not have seen it
                future.cancel()

    def done(self, group: Group, finished: Finished, future: Future[Outcome | Alone]) -> None:
        """Put results in their places; in a thread of the executor's, or in the one that shuts it down."""
        self.futures.discard(future)
        self.room.release()
        if future.cancelled() or isinstance(future.exception(), BrokenExecutor):
            if not self.stopped:
                self.refuse(group, finished, future)
            return
        self.hand_over()
        try:
            outcome = self.opened(future.result())
            if outcome is None and group not in self.resent:  # the calls are made again
                self.apart = True
                self.resent.add(group)
                self.submit(group, finished)
                return
            assert outcome is not None
            group.count = reached(group.what, outcome)
            self.pace.measured(group.count, outcome.worked)
            group.result = back(group.what.part(0, group.count), outcome, self.errands.work.label)
        except BaseException as error:  # ends the pipeline, not the executor's thread
            group.error = error
        group.done = True
        finished(group)

    @staticmethod
    def opened(outcome: Outcome | Alone) -> Outcome | None:
        """Return an outcome as it is in this process, `None` if it cannot be unpickled as a whole."""
        try:
            return pickle.loads(outcome.pickled) if isinstance(outcome, Alone) else outcome
        except MemoryError:
            raise
        except Exception:
            return None

    def refuse(self, group: Group, finished: Finished, future: Future[Outcome | Alone]) -> None:
        """Fail a group that was not worked on, and all that wait.

        The executor may hold its lock just now, so it cannot be asked for more.
        """
        what = "has cancelled calls" if future.cancelled() else f"is broken: {future.exception()}"
        error = self.refusal(what)
        self.waiting.appendleft((group, finished))
        with suppress(IndexError):
            while True:
                group, finished = self.waiting.popleft()
                group.error, group.done = error, True
                finished(group)

    def refusal(self, what: str) -> StageError:
        """Return the error of calls that the executor does not make."""
        return StageError(f"{self.errands.work.label}: the executor given as executor= {what}")

    def stop(self) -> None:
        self.stopped = True
        for future in list(self.futures):
            future.cancel()
