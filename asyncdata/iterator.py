"""DatasetIterator: one pass over a dataset, by `for` or `async for`."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar

from asyncdata.errors import ClosedError, ConcurrentUseError
from asyncdata.optimize import optimize
from asyncdata.options import Options
from asyncdata.plan import Node
from asyncdata.runtime.block import Block
from asyncdata.runtime.bridge import Engine, LoopEngine, TaskEngine, ThreadEngine
from asyncdata.transforms.prefetch import Prefetch

__all__ = ("DatasetIterator",)

T = TypeVar("T")


class Alone:
    """Lets one task or thread at a time ask an iterator for more."""

    __slots__ = ("busy",)

    def __init__(self) -> None:
        self.busy = False

    def __enter__(self) -> None:
        if self.busy:
            raise ConcurrentUseError(
                "two tasks or threads are reading one iterator at once; give each its own with iter(dataset), "
                "or let one read and hand the elements out"
            )
        self.busy = True

    def __exit__(self, *_: object) -> None:
        self.busy = False


class DatasetIterator(Generic[T]):
    """One pass over a dataset. The pipeline starts with the first element that is asked for.

    An element that failed raises its own exception, in its place; the next call gives the next element. Leaving the
    loop, dropping the iterator or closing it ends everything that the pipeline started.

    >>> import asyncdata as ad
    >>> with ad.Dataset.range(5).iterate() as numbers:
    ...     first, second = next(numbers), next(numbers)
    >>> first, second
    (0, 1)
    """

    def __init__(self, plan: Node, options: Options, epoch: int) -> None:
        self._plan = optimize(plan, options).plan
        self._placement = options.placement or "thread"
        self._epoch = epoch
        self._engine: Engine | None = None
        self._items: Iterator[Any] = iter(())
        self._pieces: Iterator[Block] = iter(())
        self._alone = Alone()
        self._closed = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        for item in self._items:
            return item
        with self._alone:
            while (piece := next(self._pieces, None)) is None:
                self._pieces = self._next_block().pieces()
            return self._enter(piece)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        for item in self._items:
            return item
        with self._alone:
            while (piece := next(self._pieces, None)) is None:
                self._pieces = (await self._next_block_async()).pieces()
            return self._enter(piece)

    def _enter(self, piece: Block) -> T:
        """Return the first element of a piece, or raise its failure."""
        if piece.failed:
            fail(piece.items[0].error)
        self._items = iter(piece.items)
        return next(self._items)

    def _next_block(self) -> Block:
        engine = self._engine or self._start(None)
        queue = engine.queue
        while (block := queue.take()) is None:
            if queue.ended and not queue.blocks:
                self._end(StopIteration())
            queue.crave()
            engine.wait(queue.may_read)
            self._check_open()
        return block

    async def _next_block_async(self) -> Block:
        loop = asyncio.get_running_loop()
        engine = self._engine or self._start(loop)
        queue = engine.queue
        if queue.blocks:
            await asyncio.sleep(0)  # a pipeline that is always ahead must not keep the consumer's loop from others
        while (block := queue.take()) is None:
            if queue.ended and not queue.blocks:
                self._end(StopAsyncIteration())
            queue.crave()
            await engine.wait_async(queue.may_read)
            self._check_open()
        return block

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the iterator was closed; begin a new one with iter(dataset)")

    def _end(self, stop: Exception) -> NoReturn:
        """Raise what ended the pipeline, or `stop`."""
        self._check_open()
        assert self._engine is not None
        fail(self._engine.queue.error or stop)

    def _start(self, loop: asyncio.AbstractEventLoop | None) -> Engine:
        """Start the pipeline where the options say."""
        self._check_open()
        plan, depth = self._plan, 0
        if isinstance(plan, Prefetch):
            plan, depth = plan.input, plan.buffer_size
        epoch = (self._epoch,)
        if self._placement == "thread":
            self._engine = ThreadEngine(plan, depth, epoch, loop)
        elif loop is not None:
            self._engine = TaskEngine(plan, depth, epoch)
        else:
            self._engine = LoopEngine(plan, depth, epoch)
        weakref.finalize(self, self._engine.stop)
        return self._engine

    def close(self) -> None:
        """End the pipeline and wait until it has ended, a second at most. May be called again."""
        self._leave()
        if self._engine is not None:
            self._engine.stop()
            self._engine.join()

    async def aclose(self) -> None:
        """End the pipeline and wait until it has ended, without blocking the event loop."""
        self._leave()
        if self._engine is not None:
            self._engine.stop()
            await self._engine.join_async()

    def _leave(self) -> None:
        self._closed = True
        self._items = iter(())
        self._pieces = iter(())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "not begun" if self._engine is None else "running"
        return f"<DatasetIterator of {self._plan}, {state}>"


def fail(error: BaseException) -> NoReturn:
    """Raise `error` without leaving a cycle between its traceback and this frame."""
    try:
        raise error
    finally:
        del error
