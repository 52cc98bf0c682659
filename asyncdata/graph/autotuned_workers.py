"""AutotunedWorkers: workers that are replaced while they run, as AUTOTUNE chooses."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from asyncdata.errors import StageError
from asyncdata.executors.autotune import Choice, Sample, Tuning, Usage
from asyncdata.executors.function_call import INLINE_GROUP, ChunkSizer, Deadline
from asyncdata.executors.group_work import Done, GroupWork
from asyncdata.executors.limiter import Limiter
from asyncdata.executors.scope import Scope
from asyncdata.executors.workers import Group, TaskWorkers, ThreadWorkers, Workers
from asyncdata.runtime.block import Block
from asyncdata.system.host_resources import usable_cores

__all__ = ("AutotunedWorkers", "autotuned_workers")


class InlineWorkers(Workers):
    """The engine's own thread: a group is done when it has been submitted."""

    def __init__(self, work: Callable[[Block, Deadline], Done]) -> None:
        self.count = 1
        self.pace = ChunkSizer(INLINE_GROUP)
        self.work = work

    def submit(self, group: Group, finished: Callable[[Group], None]) -> None:
        group.work(self.work, self.pace)
        group.inline = group.done = True
        finished(group)


REPORT: Final = 0.05
"""Seconds from one group that reports what it used to the next, once a choice is settled; before that each does."""


class FixedChunkSizer(ChunkSizer):
    """The pace of single calls, which only AUTOTUNE uses. Groups stay small and few, so that it decides soon."""

    def measured(self, count: int, seconds: float) -> None:
        """Learn nothing."""


class SharedCalls:
    """What the datasets inside a step share of a function: AUTOTUNE's tuner, as each of them is soon read, and what one
    has measured holds for the next; and the threads or tasks that it chose, so many for all of them."""

    def __init__(self, scope: Scope, tuning: Tuning) -> None:
        self.tuning = tuning
        sharing = scope.sharing
        self.threads = scope.owned.share_threads("asyncdata-map") if sharing is None else sharing.limited(1)
        self.tasks = Limiter(1)

    def resize(self, workers: int) -> None:
        """Have so many of them."""
        if self.threads.count != workers:
            self.threads.resize(workers)
            self.tasks.resize(workers)


class SharedThreads(ThreadWorkers):
    """Threads of several datasets, which go on when one of these has ended."""

    stopped = False

    def is_stopped(self) -> bool:
        return self.stopped or super().is_stopped()

    def finish(self) -> None:
        pass

    def stop(self) -> None:
        self.stopped = True


class AutotunedWorkers(Workers):
    """The workers that AUTOTUNE chose last. Those before them finish the groups that they have, and get no more."""

    tuned = True

    def __init__(
        self, scope: Scope, work: GroupWork, tuning: Tuning, copied: bool, shared: SharedCalls | None = None
    ) -> None:
        self.scope = scope
        self.work = work
        self.tuning = tuning
        self.shared = shared
        self.copied = copied
        self.retired: list[Workers] = []
        self.next_workers: tuple[Choice, Workers] | None = None
        workers = self.make_workers(choice := tuning.consider())
        if not self.have_begun(choice, workers):  # in a fork, where others found it out
            workers = self.make_workers(choice := tuning.fallback)
        self.change(choice, workers)

    @property
    def trying(self) -> bool:
        return not self.tuning.settled

    def change(self, choice: Choice, workers: Workers) -> None:
        """Make calls in another way from now on."""
        self.choice = choice
        self.current = workers
        self.count, self.pace = self.current.count, self.current.pace

    def make_workers(self, choice: Choice) -> Workers:
        if choice.where == "process":
            from asyncdata.executors.process.pool import pool_of
            from asyncdata.executors.process.workers import ProcessWorkers

            self.tuning.pool = pool_of(usable_cores())
            work = self.work.seeded(self.scope.owned.seed)
            return ProcessWorkers(self.tuning.pool, choice.workers, work, self.scope.epoch, self.copied)
        work = self.work.at(self.scope.epoch, self.scope.meter.function_seconds)
        if choice.where == "inline":
            return InlineWorkers(work.attempt)
        if self.shared is not None:
            self.shared.resize(choice.workers)
        if choice.where == "task":
            tasks = TaskWorkers(self.scope, choice.workers, work.run_async, work.at_once)
            tasks.limit = tasks.limit if self.shared is None else self.shared.tasks
            return tasks
        if self.shared is None:
            threads = self.scope.threads(choice.workers, "asyncdata-map", tuned=True)
            workers = ThreadWorkers(self.scope, choice.workers, work.attempt, threads=threads)
        else:
            workers = SharedThreads(self.scope, choice.workers, work.attempt, threads=self.shared.threads)
        self.watch(workers)
        if self.tuning.alone:
            workers.pace = FixedChunkSizer(0.0)
        return workers

    def watch(self, workers: Workers) -> None:
        """Have threads report what they use as often as the tuner needs it."""
        if isinstance(workers, ThreadWorkers):
            workers.interval = REPORT if self.tuning.settled else 0.0

    def submit(self, group: Group, finished: Callable[[Group], None]) -> None:
        choice = self.tuning.consider()
        if choice is not self.choice:
            self.follow(choice)
        self.tuning.group = len(group.what)
        self.current.submit(group, partial(self.done, self.choice, finished))

    def follow(self, choice: Choice) -> None:
        """Replace the workers, unless only the reason is another one."""
        if self.next_workers is not None and self.next_workers[0] is not choice:
            self.next_workers = None  # another iterator of the dataset has found something else meanwhile
        if self.goes_on(choice) and not self.tuning.alone:
            self.choice = choice
            self.watch(self.current)
            return
        workers = self.make_workers(choice) if self.next_workers is None else self.next_workers[1]
        if self.have_begun(choice, workers):
            self.next_workers = None
        elif self.goes_on(choice := self.tuning.fallback):
            return
        else:
            workers = self.make_workers(choice)
        self.current.finish()
        self.retired.append(self.current)
        self.change(choice, workers)

    def goes_on(self, choice: Choice) -> bool:
        """Return whether a choice has the workers that there are."""
        return choice.way == self.choice.way and not isinstance(self.pace, FixedChunkSizer)

    def have_begun(self, choice: Choice, workers: Workers) -> bool:
        """Return whether there are workers: until processes are, and if there are none, calls are made elsewhere."""
        if choice.where != "process":
            return True
        from asyncdata.executors.process.workers import ProcessWorkers

        assert isinstance(workers, ProcessWorkers)
        if self.next_workers is None:
            self.next_workers = choice, workers
            workers.pool.call()
        try:
            return workers.begun()
        except StageError as error:
            self.tuning.stay(choice, str(error))
            return False

    def done(self, choice: Choice, finished: Callable[[Group], None], group: Group) -> None:
        """Record the cost of a group; from any thread."""
        usage = Usage(group.queued, group.pauses, group.blocked) if group.asked else None
        nbytes = weight_of(group) if self.tuning.alone and group.error is None else 0
        cpu = group.cpu + group.away
        sample = Sample(group.count, group.seconds, cpu, choice, time.perf_counter(), usage, nbytes)
        self.tuning.samples.append(sample)
        finished(group)

    def read(self, waited: float) -> None:
        self.tuning.read(waited)

    def stop(self) -> None:
        for workers in (*self.retired, self.current):
            workers.stop()


def weight_of(group: Group) -> int:
    """Return about how many bytes the elements of a group and their results have."""
    count = len(group.result)
    return group.what.weight * group.count + (group.result.weight * count if count else 0)


def shared_calls(scope: Scope, work: GroupWork, tuning: Tuning) -> SharedCalls | None:
    """Return what a function shares with those of other datasets inside the same step; `None` if it is in none."""
    if scope.meter.inside is not None:
        return None
    function = *((call.name, getattr(call.fn, "__code__", None)) for call in work.calls), tuning.processes
    if function not in scope.meter.shared:
        scope.meter.shared[function] = SharedCalls(scope, tuning)
    return scope.meter.shared[function]


def autotuned_workers(scope: Scope, work: GroupWork, tuning: Tuning, copied: bool) -> AutotunedWorkers:
    """Return where the groups of a stage run that AUTOTUNE places."""
    shared = shared_calls(scope, work, tuning)
    return AutotunedWorkers(scope, work, shared.tuning if shared else tuning, copied, shared)
