"""Workers of which each gets the batches that are meant for it, as PyTorch deals them out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar, Final
from weakref import WeakValueDictionary

from asyncdata.executors.function_call import ChunkSizer
from asyncdata.executors.group_work import GroupWork
from asyncdata.executors.process.pool import PoolHandle
from asyncdata.executors.process.workers import ProcessWorkers
from asyncdata.executors.workers import Group, RemoteExecutor, Workers
from asyncdata.runtime.queue import LoopSignal
from asyncdata.torch.worker_run import BatchReply, BatchRequest

__all__ = ("PinnedExecutor", "PinnedWorkers", "RequestQueue")


class RequestQueue:
    """The batches to make next: filled by the thread that reads the loader, read by the pipeline."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []
        self.ended = False
        self.signal: LoopSignal | None = None

    def put(self, request: Any) -> None:
        """Have a batch made."""
        self.waiting.append(request)
        self.wake()

    def end(self) -> None:
        """Ask for no more."""
        self.ended = True
        self.wake()

    def wake(self) -> None:
        """Let the pipeline look."""
        if self.signal is not None:
            self.signal.notify()

    def may_read(self) -> bool:
        return bool(self.waiting) or self.ended

    async def __aiter__(self) -> AsyncIterator[Any]:
        self.signal = LoopSignal(asyncio.get_running_loop(), threadsafe=True)
        while True:
            await self.signal.until(self.may_read)
            while self.waiting:
                yield self.waiting.pop(0)
            if self.ended:
                return


class PinnedWorkers(Workers):
    """One process for each worker; a request says which one makes it. Each does its batches in order.

    `timeout` seconds after the reader has begun to wait, what it waits for fails.
    """

    def __init__(self, members: list[ProcessWorkers], count: int, timeout: float) -> None:
        self.pace = ChunkSizer(0.0)
        self.count = count
        self.members = members
        self.timeout = timeout
        self.pending: dict[Group, Callable[[Group], None]] = {}
        self.timer: threading.Timer | None = None

    def submit(self, group: Group, finished: Callable[[Group], None]) -> None:
        self.pending[group] = finished
        request: BatchRequest = group.what.items[0]
        self.members[request.worker].submit(group, self.done)

    def done(self, group: Group) -> None:
        """Hand on a result, unless the reader has waited too long for it; take note of the position behind it."""
        finished = self.pending.pop(group, None)
        if group.error is None and type(reply := group.result.items[0]) is BatchReply:
            group.what.items[0].made[reply.worker] = reply.position
        if finished is not None:
            finished(group)

    def read(self, waits: bool) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if waits and self.timeout:
            self.timer = threading.Timer(self.timeout, self.fail)
            self.timer.daemon = True
            self.timer.start()

    def fail(self) -> None:
        """Fail all that is in progress."""
        for group in [*self.pending]:
            finished = self.pending.pop(group, None)
            if finished is not None:
                group.error = RuntimeError(f"DataLoader timed out after {self.timeout} seconds")
                group.done = True
                finished(group)

    def stop(self) -> None:
        self.read(False)
        for member in self.members:
            member.stop()


SHARED: Final[WeakValueDictionary[int, PoolHandle]] = WeakValueDictionary()
"""The processes that loaders share, by the number of the worker."""


def shared_process(worker: int) -> PoolHandle:
    """Return the process of a worker, which ends with the last loader that uses it."""
    handle = SHARED.get(worker)
    if handle is None:
        handle = SHARED[worker] = PoolHandle(1)
    return handle


class PinnedExecutor(RemoteExecutor):
    """The processes of a loader, which start with its first batch and stay until it is gone."""

    name: ClassVar[str] = "process"

    def __init__(self, workers: int, timeout: float, own: bool) -> None:
        self.handles = [PoolHandle(1) if own else shared_process(worker) for worker in range(workers)]
        self.timeout = timeout

    def workers(self, count: int, work: GroupWork, epoch: tuple[Any, ...], copied: bool) -> Workers:
        members = [ProcessWorkers(handle, 1, work, epoch, copied) for handle in self.handles]
        return PinnedWorkers(members, count, self.timeout)
