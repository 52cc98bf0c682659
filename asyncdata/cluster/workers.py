"""Workers on a cluster: groups go to actors; an element that kills an actor is found one by one."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Final

import numpy as np

from asyncdata.cluster.actor import CallReply
from asyncdata.cluster.parcel import Parcel
from asyncdata.cluster.pool import ActorPool, Killed, PendingCall, RemoteFunction
from asyncdata.elements.columns import ColumnBatch
from asyncdata.executors.group_work import GroupWork
from asyncdata.executors.process.shm_arena import dump_by_value, dumps
from asyncdata.executors.process.task import RemoteError, Task, TaskResult, crashed
from asyncdata.executors.process.workers import Finished, PickledWorkers
from asyncdata.executors.workers import Group
from asyncdata.runtime.block import Block

__all__ = ("ClusterWorkers",)

MOST_DEATHS: Final = 2
"""How many actors an element may end, called alone, before it fails."""


PLAIN: Final = frozenset((int, float, complex, bool, str, bytes, type(None), ColumnBatch))


MARGIN: Final = 2
"""How many times as many elements are in flight as with workers of this machine: some are on their way."""


class ClusterWorkers(PickledWorkers):
    """Actors of a cluster. `owner` is held, as the pool ends with its last reference."""

    def __init__(
        self,
        owner: object,
        pool: ActorPool,
        function: RemoteFunction,
        count: int,
        work: GroupWork,
        epoch: tuple[Any, ...],
        copied: bool,
        copied_next: bool,
    ) -> None:
        super().__init__(MARGIN * count, work, epoch, copied)
        self.owner = owner
        self.pool = pool
        self.turn = pool.turn
        self.function = function
        self.views = not (copied or pool.cluster.copy)
        self.copied_next = copied_next
        """Whether the next step copies arrays: those of this step then need not be anybody's own."""
        self.calls: dict[Group, PendingCall] = {}
        self.deaths: dict[Group, int] = {}
        """Of groups of one element that are called alone: how many actors ended meanwhile."""

    def submit(self, group: Group, finished: Finished) -> None:
        alone = group in self.deaths
        ask = partial(self.payload, group, self.in_order or alone)
        call = PendingCall(self.function, ask, partial(self.arrived, group, finished), alone, self.turn)
        self.calls[group] = call
        self.pool.submit(call)

    def packed(self, task: Task) -> Parcel:
        return Parcel.of(task, dump_by_value if self.by_value else dumps)

    def unpack_reply(self, reply: CallReply) -> TaskResult | RemoteError:
        assert reply.parcel is not None
        answer: TaskResult | RemoteError = reply.parcel.open(not (self.views or self.copied_next))
        if self.copied_next and reply.parcel.buffers and not self.views and holds_views(answer):
            answer = reply.parcel.open(True)
        if isinstance(answer, RemoteError):
            return answer
        answer = answer._replace(ended=time.perf_counter())  # its clock is another machine's
        return answer.apart() if self.copied and self.work.rows is None else answer

    def arrived(self, group: Group, finished: Finished, reply: CallReply | BaseException) -> None:
        """Take the outcome of a call; in the pool's thread."""
        self.calls.pop(group, None)
        if isinstance(reply, Killed):
            self.killed(group, finished, str(reply))
            return
        self.done(group, finished, reply)
        if group.done:
            self.deaths.pop(group, None)

    def killed(self, group: Group, finished: Finished, reason: str) -> None:
        """Call a group again with care: its elements one by one, each by an idle actor.

        One that ends two of those has failed.
        """
        if group not in self.deaths:
            OneByOne(self, group, finished).next()
            return
        self.deaths[group] += 1
        if self.deaths[group] < MOST_DEATHS:
            self.submit(group, finished)
            return
        del self.deaths[group]
        words = f"it ended the worker process that worked on it {MOST_DEATHS} times: {reason}"
        group.result = crashed(self.work, group.what, words)
        group.done = True
        finished(group)

    def stop(self) -> None:
        for call in list(self.calls.values()):
            self.pool.drop(call)
        self.calls.clear()


def holds_views(answer: TaskResult | RemoteError) -> bool:
    """Return whether results have arrays inside objects, which the next step does not copy."""
    return isinstance(answer, RemoteError) or not all(map(is_plain, answer.items))


def is_plain(value: Any) -> bool:
    """Return whether arrays are in nothing but tuples and dicts."""
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is tuple or kind is dict:
        return all(map(is_plain, value.values() if kind is dict else value))
    return kind is np.ndarray or kind in PLAIN or isinstance(value, np.generic)


class OneByOne:
    """The elements of a group that ended an actor, one after another; together they are the group's result."""

    def __init__(self, workers: ClusterWorkers, group: Group, finished: Finished) -> None:
        self.workers = workers
        self.group = group
        self.finished = finished
        self.results: list[Block] = []

    def next(self) -> None:
        """Call the next element, or hand over the outcome of all."""
        group, place = self.group, len(self.results)
        if place < len(group.what):
            one = Group(group.what.slice(place, place + 1))
            self.workers.deaths[one] = 0
            self.workers.submit(one, self.take)
            return
        group.result = Block.join(self.results)
        group.done = True
        self.finished(group)

    def take(self, one: Group) -> None:
        """Take the outcome of an element, and continue."""
        self.group.seconds += one.seconds
        self.group.ended, self.group.lane = one.ended, one.lane
        if one.error is None:
            self.results.append(one.result)
            self.next()
            return
        self.group.error, self.group.done = one.error, True
        self.finished(self.group)
