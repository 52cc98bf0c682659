"""ThreadSharing: threads for many stages of which few work at a time, such as those of the inputs of a mixture."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Final, TypeAlias

from asyncdata.executors.function_call import ThreadPool
from asyncdata.runtime.queue import MOST_BYTES
from asyncdata.system.host_resources import usable_cores

__all__ = ("LimitedThreads", "StageThreads", "ThreadSharing")

COMMON: Final = 16
"""How many threads the stages that have none of their own share, if none of them asks for more at once."""

MANY: Final = 32
SHARED_BYTES: Final = 4 << 20
"""How many bytes the stages of more than so many inputs have in flight together."""

WIDE: Final = 8
"""So many stages get threads of their own, however many each asks for."""


class LimitedThreads:
    """The threads of a pool for one stage, of which it uses at most `count` at once."""

    def __init__(self, pool: ThreadPool, count: int) -> None:
        self.pool = pool
        self.count = count
        self.stopped = False
        self.jobs: deque[Callable[[], None]] = deque()
        self.free: deque[None] = deque(repeat(None, count))
        """Permits to use a thread, taken and given back in one step each: no lock."""

    def submit(self, job: Callable[[], None]) -> None:
        """Queue a job, which may not raise; after `stop` it is dropped."""
        if not self.stopped:
            self.jobs.append(job)
            if taken(self.free):
                self.pool.submit(partial(self.work, self.free))

    def work(self, free: deque[None]) -> None:
        """Run the jobs that there are, with a permit."""
        while True:
            while self.jobs:
                try:
                    job = self.jobs.popleft()
                except IndexError:  # another thread took it
                    break
                job()
                del job
            free.append(None)
            if not self.jobs or not taken(free):  # a job may have come since
                return

    def resize(self, count: int) -> None:
        """Use at most so many threads, from when the jobs before are done."""
        self.count = count
        self.free = deque(repeat(None, count))

    def finish(self) -> None:
        """Do nothing: the pool's owner ends its threads."""

    def stop(self) -> None:
        """Drop the jobs that have not started."""
        self.stopped = True
        self.jobs.clear()


def taken(free: deque[None]) -> bool:
    try:
        free.pop()
    except IndexError:
        return False
    return True


StageThreads: TypeAlias = ThreadPool | LimitedThreads


class OwnThreads(ThreadPool):
    """Threads that a stage has for itself, until it is done."""

    def __init__(self, sharing: ThreadSharing, count: int, name: str) -> None:
        super().__init__(sharing.start, count, name)
        self.sharing = sharing
        self.claimed = count

    def finish(self) -> None:
        self.sharing.release(self.claimed)
        self.claimed = 0
        super().finish()


class ThreadSharing:
    """Gives stages threads of their own as long as these are few, and else those of a pool for all.

    At most four threads for each core and 64 in a pipeline, if no stage asks for more: those that read files included.
    """

    def __init__(self, start: Callable[[Callable[[], None], str], None]) -> None:
        self.start = start
        self.most = 4 * usable_cores() + COMMON
        self.own = 0
        """How many threads stages have for themselves."""
        self.pool = ThreadPool(start, COMMON, "asyncdata-shared")
        self.single: list[ThreadPool] = []
        """Pools of one thread, each for several iterators: these stay in the thread that they began in."""
        self.turn = 0
        self.inputs = 0
        """How many inputs share."""

    @property
    def most_bytes(self) -> int:
        """How many bytes a stage should have in flight at most: where many have some, few of each are soon needed."""
        return MOST_BYTES if self.inputs <= MANY else SHARED_BYTES // self.inputs

    def threads(self, count: int, name: str, tuned: bool = False) -> StageThreads:
        """Return at most `count` threads for a stage; if that is AUTOTUNE's choice, as many as many inputs can have."""
        tuned = tuned and self.inputs > MANY
        if self.claim(count, 0 if tuned else WIDE):
            return OwnThreads(self, count, name)
        self.pool.count = self.pool.count if tuned else max(self.pool.count, count)
        return self.limited(count)

    def claim(self, count: int, stages: int = WIDE) -> bool:
        """Return whether there may be so many more threads that are not shared, until these are released: also if so
        many stages have as many."""
        if self.own + count > max(self.most, stages * count):
            return False
        self.own += count
        return True

    def release(self, count: int) -> None:
        """Take back what was claimed."""
        self.own -= count

    def limited(self, count: int) -> LimitedThreads:
        """Return at most `count` threads of the pool for all."""
        return LimitedThreads(self.pool, count)

    def next_single(self) -> ThreadPool:
        """Return the thread for an iterator, in turn."""
        if len(self.single) < COMMON:
            self.single.append(ThreadPool(self.start, 1, f"asyncdata-shared-iterators-{len(self.single) + 1}"))
        self.turn += 1
        return self.single[self.turn % len(self.single)]

    def stop(self) -> None:
        """End the threads: those of iterators when these, which have been stopped, are closed."""
        self.pool.stop()
        for thread in self.single:
            thread.finish()
