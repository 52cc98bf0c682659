"""Consumer: a function that reads a pipeline for as long as an application runs."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, Final, Protocol, Self, final

from asyncdata.elements.validation import check_flag
from asyncdata.errors import ClosedError, PlanError
from asyncdata.graph.node import Node, nodes_of
from asyncdata.iterator import DatasetIterator
from asyncdata.system.signal_handlers import start_thread
from asyncdata.transforms.ignore_errors import UNLIMITED, IgnoreErrors
from asyncdata.web.failed_items import FailedItems, OnError, beginning_of, policy_for
from asyncdata.web.kafka_topic import KafkaTopic
from asyncdata.web.queued import Queued
from asyncdata.web.stored import Stored
from asyncdata.web.streamed import HttpStreamed, WebSocketStreamed

__all__ = ("Consumer",)

STEP_SECONDS: Final = 5.0
"""How long the function may take to return after its iterator was closed."""

ENDLESS: Final = (Stored, Queued, KafkaTopic, HttpStreamed, WebSocketStreamed)
"""Sources whose end is not waited for: most never end, and those that keep their items lose none by that."""

log = logging.getLogger("asyncdata")


class Readable(Protocol):
    """The part of a dataset's interface that a consumer needs."""

    @property
    def plan(self) -> Node: ...

    def iterate(self, *, state: Mapping[str, Any] | None = None, strict: bool = True) -> DatasetIterator[Any]: ...

    def _next(self, plan: Node) -> Readable: ...


@final
class Consumer:
    """Runs `consume(iterator)` while an application runs: a plain function in a thread, a coroutine function in a task.

    `async with Consumer(dataset, consume):` in the lifespan of an application starts it, or `ingest_app(consumer=)`
    does. At the end it waits at most `drain_seconds` for `consume` to return, which happens when the channel is closed
    and read to its end. Then the iterator is closed, which ends the loop over it. That of a `DurableChannel`, a queue
    or a stream is closed at once, as it ends later or never. An exception in `consume` is logged, and raised at the
    end.

    `on_error` says what happens to elements that fail in the pipeline:

    - `"stop"`: the loop over the iterator raises the error. When `consume` has ended by it, the channel has no reader.
    - `"skip"`: they are left out, and logged.
    - `"dead-letter"`: their items are stored, each once, with the error, and left out. Those of a `DurableChannel` are
      beside it; messages of a queue or stream go to the folder `dead_letters`, and are held in memory until then.
      `asyncdata channel dead-letters` lists them, and `put-back` puts them back, or into a channel in that folder.

    If `batch` cannot stack its elements, the whole batch fails, good elements with the bad one. With
    `from_channel(schema=)`, or a `map` before `batch` that raises for a bad element, the bad one fails alone.

    `state` is from `batches.state_dict()`, with any `on_error`. Without it the reader of a `DurableChannel` begins at
    the oldest item, and logs that if there is one. `strict=False` lets the pipeline differ as `Dataset.iterate` does,
    by the size of batches for instance.

    >>> import asyncio
    >>> import asyncdata as ad
    >>> channel, found = ad.Channel(), []
    >>> async def serve():
    ...     async with ad.web.Consumer(ad.Dataset.from_channel(channel).batch(2), found.extend) as consumer, channel:
    ...         await channel.send([1, 2, 3])
    ...     return consumer.ended
    >>> asyncio.run(serve())
    True
    >>> found
    [array([1, 2]), array([3])]
    """

    def __init__(
        self,
        dataset: Readable,
        consume: Callable[[DatasetIterator[Any]], Awaitable[None] | None],
        *,
        state: Mapping[str, Any] | None = None,
        drain_seconds: float = 30.0,
        on_error: OnError = "stop",
        dead_letters: str | os.PathLike[str] | None = None,
        strict: bool = True,
    ) -> None:
        if not callable(consume):
            raise PlanError(f"Consumer needs a function of an iterator, got {consume!r:.80}")
        if not isinstance(getattr(dataset, "plan", None), Node):
            raise PlanError(f"Consumer needs a Dataset, got {dataset!r:.80}")
        if type(drain_seconds) not in (int, float) or not drain_seconds >= 0:
            raise PlanError(f"Consumer(drain_seconds=) must be a number of seconds, got {drain_seconds!r:.80}")
        plan, self._failed = policy_for(dataset.plan, on_error, dead_letters)
        if self._failed is not None:
            plan = IgnoreErrors.of(plan, UNLIMITED, False, self._failed)
            dataset = dataset._next(plan)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        self._dataset = dataset
        self._consume = consume
        self._state = state
        self._strict = check_flag("Consumer", "strict", strict)
        self._seconds = drain_seconds
        self._channels = [node for node in nodes_of(plan) if isinstance(node, Stored)]
        self._endless = any(isinstance(node, ENDLESS) for node in nodes_of(plan))
        self._done: asyncio.Future[None] | None = None
        self._closing = False

    @property
    def ended(self) -> bool:
        """Whether it was started and the function has returned, or raised."""
        return self._done is not None and self._done.done()

    def stats(self) -> dict[str, int]:
        """Return how many elements of its pipeline failed and were left out, in this process, and how many items of
        them became dead letters.

        >>> import asyncdata as ad
        >>> ad.web.Consumer(ad.Dataset.from_channel(ad.Channel()), list, on_error="skip").stats()
        {'failed': 0, 'dead_letters': 0}
        """
        failed = self._failed or FailedItems(None)
        return {"failed": failed.elements, "dead_letters": failed.items}

    async def __aenter__(self) -> Self:
        if self._done is not None and not self._done.done():
            raise PlanError("this Consumer is running already")
        self._closing = False
        for channel in self._channels if self._state is None else ():
            if channel.ack == "state" and (words := beginning_of(channel.folder)) is not None:
                log.warning("%s", words)
        self._iterator = self._dataset.iterate(state=self._state, strict=self._strict)
        if iscoroutinefunction(self._consume):
            self._done = asyncio.ensure_future(self._consume(self._iterator))
        else:
            self._done = self._in_thread()
        self._done.add_done_callback(self._report)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        done = self._done
        assert done is not None
        try:
            await asyncio.wait([done], timeout=0 if self._endless else self._seconds)
        finally:
            self._closing = True
            await self._iterator.aclose()
        await asyncio.wait([done], timeout=self._seconds if self._endless else STEP_SECONDS)
        if not done.done():
            done.cancel()
            log.error("the consumer %r did not return after its iterator was closed", self._consume)
        elif (failure := self._failure(done)) is not None:
            raise failure

    def _in_thread(self) -> asyncio.Future[None]:
        loop, iterator, context = asyncio.get_running_loop(), self._iterator, copy_context()
        done: asyncio.Future[None] = loop.create_future()

        def settle(error: BaseException | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def main() -> None:
            failure: BaseException | None = None
            try:
                context.run(self._consume, iterator)
            except BaseException as error:  # noqa: BLE001  it is raised where the consumer is left
                failure = RuntimeError(f"the consumer raised {error!r}") if isinstance(error, StopIteration) else error
            try:
                loop.call_soon_threadsafe(settle, failure)
            except RuntimeError:  # the loop was closed meanwhile
                return

        start_thread(threading.Thread(target=main, name="asyncdata-consumer", daemon=True))
        return done

    def _failure(self, done: asyncio.Future[None]) -> BaseException | None:
        """Return the exception of the function, unless closing its iterator caused it."""
        failure = None if done.cancelled() else done.exception()
        return None if self._closing and isinstance(failure, ClosedError) else failure

    def _report(self, done: asyncio.Future[None]) -> None:
        if (failure := self._failure(done)) is not None:
            log.error("the consumer %r failed, so the channel has no reader now", self._consume, exc_info=failure)
