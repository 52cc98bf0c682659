"""Workers in other processes: groups go out as tasks, and results come back into their elements' places.

Reasons and measurements: docs/design.md, "Worker processes".
"""

from __future__ import annotations

import pickle
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import suppress
from functools import partial
from threading import Semaphore
from typing import Any, Final, TypeVar

from asyncdata.errors import PlanError, StageError
from asyncdata.executors.function_call import ChunkSizer, noted
from asyncdata.executors.group_work import GroupWork
from asyncdata.executors.process.held_data import HeldData, HeldDataPickler
from asyncdata.executors.process.imports import WithImports
from asyncdata.executors.process.pool import PendingGroup, PoolHandle, SharedFunction, WorkerPool
from asyncdata.executors.process.shm_arena import Message, dump_by_value, dumps, is_passing, pack, pickled_by_value
from asyncdata.executors.process.spawn import modules_of
from asyncdata.executors.process.task import (
    IsolatedElement,
    RemoteError,
    Task,
    TaskResult,
    carry_out,
    reached,
    sent_back,
    sent_to_worker,
)
from asyncdata.executors.process.worker import ForeignError, TaskReply, TaskRequest, fitting
from asyncdata.executors.workers import Group, Workers
from asyncdata.runtime.block import Block, Failure
from asyncdata.system import forks

__all__ = ("EXECUTORS", "ExecutorWorkers", "Finished", "PickledWorkers", "ProcessWorkers", "held_by", "pickled")

PROCESS_GROUP: Final = 16e-3
INPUT_INLINE: Final = 1 << 16

Finished = Callable[[Group], None]

T = TypeVar("T")


def pickled(work: GroupWork) -> bytes:
    """Return a stage's functions as they travel to any process; `PlanError` for one that cannot."""
    return attempted(pickled_by_value, work)


def held_by(work: GroupWork, private: bool = False, elsewhere: bool = False) -> HeldData:
    """Return a stage's functions as they travel to a process of this machine, or `elsewhere`, with the large data that
    they hold apart, read-only or `private` where it arrives; `PlanError` for one that cannot."""
    return attempted(HeldDataPickler(private=private, elsewhere=elsewhere).pickled, work)


def attempted(dump: Callable[[Any], T], work: GroupWork) -> T:
    """Return pickled work."""
    try:
        return dump(WithImports(work))
    except Exception as error:
        raise PlanError(
            f"{work.label} cannot be sent to a worker process: {error}; a function is sent with its globals and its "
            "closure: open files, locks and connections inside the function, or use executor='thread'"
        ) from error


class UnreadableError(Exception):
    """The results of a group cannot be unpickled together; never seen by users."""


class PickledWorkers(Workers):
    """Workers to which groups of about sixteen milliseconds travel pickled, and from which results come back so.

    A group that cannot be pickled or unpickled at once is sent again in other ways, until the elements that cause it
    are known.
    """

    def __init__(self, workers: int, work: GroupWork, epoch: tuple[Any, ...], copied: bool) -> None:
        self.pace = ChunkSizer(PROCESS_GROUP)
        self.count = workers
        self.work = work
        self.epoch = epoch
        self.copied = copied
        self.by_value = False  # elements, with functions and classes of the main script
        self.apart = False  # results, each pickled by itself
        self.resent: set[Group] = set()
        self.sealed: set[Group] = set()  # whose elements are pickled each by itself

    def packed(self, task: Task) -> Any:
        """Return a task as it travels."""
        raise NotImplementedError

    def unpack_reply(self, reply: Any) -> TaskResult | RemoteError:
        """Return the outcome of a group that has arrived."""
        raise NotImplementedError

    def payload(
        self, group: Group, unlimited: bool, suspect: bool = False, blamed: dict[int, str] | None = None
    ) -> Any:
        """Return a group as it travels; elements that cannot have failed."""
        try:
            return self.packed(self.task(group, unlimited, suspect, blamed))
        except Exception:
            group.what = sendable(group.what, self.work, dump_by_value if self.by_value else dumps)
            return self.packed(self.task(group, unlimited, suspect, blamed))

    def task(self, group: Group, unlimited: bool, suspect: bool, blamed: dict[int, str] | None) -> Task:
        """Return the request to a worker."""
        sent = sent_to_worker(self.work, group.what)
        sent = sent.sealed() if group in self.sealed else sent
        return Task(sent, self.epoch, unlimited, suspect, blamed, self.apart)

    def done(self, group: Group, finished: Finished, reply: Any) -> None:
        """Put results in their places; in the pool's thread."""
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

    def result(self, group: Group, reply: Any) -> Any:
        """Return the results of a group, or raise an error that is not caused by an element."""
        if isinstance(reply, BaseException):
            raise reply
        try:
            answer = self.unpack_reply(reply)
        except MemoryError:
            raise
        except Exception as error:
            raise UnreadableError(repr(error)) from error
        if isinstance(answer, RemoteError):
            raise answer.failure(None).error
        group.seconds, group.queued, group.away, group.asked = answer.seconds, answer.queued, answer.cpu, True
        group.ended, group.lane, group.retries = answer.ended, answer.worker, answer.retries
        group.functions = answer.functions
        group.count = reached(group.what, answer)
        self.pace.measured(group.count, answer.worked)
        what = group.what
        return sent_back(what if group.count == len(what) else what.slice(0, group.count), answer, self.work.label)


class ProcessWorkers(PickledWorkers):
    """Worker processes of this machine."""

    def __init__(self, pool: PoolHandle, workers: int, work: GroupWork, epoch: tuple[Any, ...], copied: bool) -> None:
        super().__init__(workers, work, epoch, copied)
        self.handle = pool  # the pool ends with its last handle
        self.pool: WorkerPool = pool.pool
        for call in work.calls:
            self.pool.modules |= modules_of(call.fn)
        self.function: SharedFunction = self.pool.function(work, held_by(work))
        self.jobs: dict[Group, PendingGroup] = {}

    def begun(self) -> bool:
        """Return whether the processes are there that were called; `StageError` if they cannot start."""
        if self.pool.failed is not None and not self.pool.begun:
            raise self.pool.failed
        return self.pool.begun

    def submit(self, group: Group, finished: Finished) -> None:
        job = PendingGroup(partial(self.order, group), partial(self.done, group, finished), len(group.what) == 1)
        self.jobs[group] = job
        self.pool.submit(job)

    def order(self, group: Group, job: PendingGroup) -> TaskRequest:
        """Return the current request to a worker."""
        payload = self.payload(group, self.in_order, job.suspect, job.blamed)
        return TaskRequest(job.number, self.function.function, payload, self.pool.released_names())

    def packed(self, task: Task) -> Message:
        return pack(task, self.pool.slots, INPUT_INLINE, dump=dump_by_value if self.by_value else dumps)

    def unpack_reply(self, reply: TaskReply) -> TaskResult | RemoteError:
        answer: TaskResult | RemoteError = self.pool.attached.open(reply.payload, self.copied)
        if isinstance(answer, RemoteError) or self.work.rows is not None:
            return answer
        return answer.apart() if self.copied or is_passing(reply.payload) else answer

    def done(self, group: Group, finished: Finished, reply: TaskReply | BaseException) -> None:
        self.jobs.pop(group, None)
        super().done(group, finished, reply)

    def stop(self) -> None:
        for job in list(self.jobs.values()):
            self.pool.drop(job)
        self.jobs.clear()


def sendable(block: Block, work: GroupWork, dump: Callable[[Any, None], bytes]) -> Block:
    """Return a group in which elements that cannot be pickled by `dump` have failed."""
    if block.items and type(block.items[0]) is Block:
        return Block([sendable(batch, work, dump) for batch in block.items], block.tickets)
    items = list(block.items)
    for place, item in enumerate(items):
        try:
            dump(item, None)
        except Exception as error:
            kind = type(item).__name__
            refusal = TypeError(f"the element is a {kind}, which cannot be sent to a worker process: {error}")
            items[place] = noted(refusal, work.label, block.tickets[place])
    return Block(items, block.tickets, Failure in set(map(type, items)))


class ExecutorTasks:
    """A stage's work as another executor runs it: in its threads as it is, in its processes from a pickle."""

    def __init__(self, work: GroupWork, away: bool = False) -> None:
        self.work = work
        self.away = away

    def __call__(self, task: Task) -> TaskResult | IsolatedElement:
        work = self.work if self.away else self.work.seeded(None)
        outcome = carry_out(work, task, lambda _: None)
        return sealed(outcome, task, self.work) if self.away else outcome

    def __reduce__(self) -> tuple[Any, ...]:
        return unpickled, (pickled(self.work),)


def unpickled(work: bytes) -> ExecutorTasks:
    """Return work that came from another process."""
    return ExecutorTasks(pickle.loads(work), away=True)


def sealed(outcome: TaskResult, task: Task, work: GroupWork) -> TaskResult | IsolatedElement:
    """Return an outcome pickled: an executor breaks if its process sends a result that cannot be unpickled."""
    try:
        if not task.apart or isinstance(outcome.items, tuple):
            return IsolatedElement(dumps(outcome, None))
    except Exception:
        outcome = outcome.apart()
    fit = partial(fitting, work=work, alone=True)
    items = [[*map(fit, item)] if task.sent.batches else fit(item) for item in outcome.items]
    return outcome._replace(items=items)


class UserExecutors:
    """The user's executors that were given calls: in a forked child their workers do not run."""

    def __init__(self) -> None:
        self.used: weakref.WeakSet[Executor] = weakref.WeakSet()
        self.inherited: weakref.WeakSet[Executor] = weakref.WeakSet()
        forks.register(self)

    def disown(self) -> None:
        """Know in a forked child which executors are the parent's."""
        self.inherited.update(self.used)
        self.used.clear()

    def check(self, executor: Executor, label: str) -> None:
        """Raise for an executor that is the parent's."""
        if executor in self.inherited:
            raise StageError(
                f"{label}: the executor given as executor= belongs to the process that forked this one; create one "
                "in this process"
            )
        self.used.add(executor)


EXECUTORS: Final = UserExecutors()


class ExecutorWorkers(Workers):
    """An executor of the user's, which the user ends. Whatever workers it has, it gets `workers` groups at once."""

    def __init__(self, executor: Executor, workers: int, work: GroupWork, epoch: tuple[Any, ...]) -> None:
        self.pace = ChunkSizer(PROCESS_GROUP)
        self.count = workers
        self.executor = executor
        self.tasks = ExecutorTasks(work)
        self.epoch = epoch
        self.futures: set[Future[TaskResult | IsolatedElement]] = set()
        self.waiting: deque[tuple[Group, Finished]] = deque()
        self.capacity = Semaphore(workers)
        self.apart = False  # results, each pickled by itself
        self.resent: set[Group] = set()
        self.stopped = False

    def submit(self, group: Group, finished: Finished) -> None:
        self.waiting.append((group, finished))
        self.hand_over()

    def hand_over(self) -> None:
        """Submit waiting groups, as far as the executor has capacity; from any thread.

        No lock is held meanwhile: an executor may hold one of its own while it reports the outcome of a call.
        """
        while self.waiting and not self.stopped and self.capacity.acquire(blocking=False):
            try:
                group, finished = self.waiting.popleft()
            except IndexError:  # another thread has taken it
                self.capacity.release()
                continue
            task = Task(sent_to_worker(self.tasks.work, group.what), self.epoch, self.in_order, apart=self.apart)
            try:
                future = self.executor.submit(self.tasks, task)
            except Exception as error:  # it was shut down, or is broken
                self.capacity.release()
                group.error, group.done = self.refusal(f"accepts no more calls: {error}"), True
                finished(group)
                continue
            self.futures.add(future)
            future.add_done_callback(partial(self.done, group, finished))
            if self.stopped:  # by another thread, which may not have seen it
                future.cancel()

    def done(self, group: Group, finished: Finished, future: Future[TaskResult | IsolatedElement]) -> None:
        """Put results in their places; in a thread of the executor's, or in the one that shuts it down."""
        self.futures.discard(future)
        self.capacity.release()
        if future.cancelled() or isinstance(future.exception(), BrokenExecutor):
            if not self.stopped:
                self.refuse(group, finished, future)
            return
        self.hand_over()
        try:
            outcome = self.unpack_outcome(future.result())
            if outcome is None and group not in self.resent:  # the calls are made again
                self.apart = True
                self.resent.add(group)
                self.submit(group, finished)
                return
            assert outcome is not None
            group.seconds, group.away, group.count = outcome.seconds, outcome.cpu, reached(group.what, outcome)
            group.retries, group.functions = outcome.retries, outcome.functions
            self.pace.measured(group.count, outcome.worked)
            group.result = sent_back(group.what.slice(0, group.count), outcome, self.tasks.work.label)
        except BaseException as error:  # ends the pipeline, not the executor's thread
            group.error = error
        group.done = True
        finished(group)

    @staticmethod
    def unpack_outcome(outcome: TaskResult | IsolatedElement) -> TaskResult | None:
        """Return an outcome as it is in this process, `None` if it cannot be unpickled at once."""
        try:
            return pickle.loads(outcome.pickled) if isinstance(outcome, IsolatedElement) else outcome
        except MemoryError:
            raise
        except Exception:
            return None

    def refuse(self, group: Group, finished: Finished, future: Future[TaskResult | IsolatedElement]) -> None:
        """Fail a group that was not worked on, and all that wait.

        The executor may hold its lock now, so this must not call it.
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
        return StageError(f"{self.tasks.work.label}: the executor given as executor= {what}")

    def stop(self) -> None:
        self.stopped = True
        for future in list(self.futures):
            future.cancel()
