"""Runs a plan that never waits without an event loop; its first elements also in the calling thread.

Reasons and measurements: docs/design.md, "Engines, signals and exit".
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import aclosing
from contextvars import copy_context
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from asyncdata.engines.pipeline import first_of
from asyncdata.errors import StageError
from asyncdata.executors.scope import LooplessScope
from asyncdata.graph.node import Node
from asyncdata.memory.buffer_pool import keep_memory_warm
from asyncdata.memory.output_buffers import without_output_buffers
from asyncdata.runtime.block import Block, Demand, Failure, fail
from asyncdata.system.sigint import DeferredInterrupts, DeferredSigint

__all__ = ("driven", "elements_by_hand")

T = TypeVar("T")


def elements_by_hand(plan: Node, count: int, epoch: int) -> list[Any]:
    """Return at most `count` of the first elements of an epoch, or raise the error that an iterator would raise.

    No step may wait. No more is read than requested, and all is closed when this returns.
    """
    keep_memory_warm()
    with DeferredInterrupts() as interrupts, DeferredSigint(interrupts), without_output_buffers():
        blocks = copy_context().run(driven, first_blocks(plan, count, epoch), partial(interruption, interrupts))
    if blocks and blocks[-1].failed:
        fail(next(item for item in blocks[-1].items if type(item) is Failure).release())
    return [*chain.from_iterable([block.items for block in blocks])]


async def first_blocks(plan: Node, count: int, epoch: int) -> list[Block]:
    """Return blocks of so many elements, if there are so many; the first with a failure is the last one."""
    want, found = Demand(), list[Block]()
    async with aclosing(plan.open(LooplessScope((epoch,)), want)) as source:
        while count > 0:
            want.items = count
            block = await anext(source, None)
            if block is None:
                break
            found.append(block)
            count = 0 if block.failed else count - len(block)
    return found


def driven(coroutine: Coroutine[Any, Any, T], interruption: Callable[[], BaseException | None]) -> T:
    """Run a coroutine to its end. Where it yields to other tasks there are none, but there may be an `interruption`."""
    stop: BaseException | None = None
    try:
        while True:
            waits_for = coroutine.send(None) if stop is None else coroutine.throw(stop)
            stop = interruption() if waits_for is None else refusal(waits_for)
    except StopIteration as end:
        return end.value
    except BaseException as error:
        raise first_of(error)  # noqa: B904  its cause and context are its own: it is the error itself, or in it


def refusal(waits_for: object) -> StageError:
    """Return the error for a coroutine that waits."""
    return StageError(f"a step that must not wait is waiting for {waits_for!r:.200}")


def interruption(interrupts: DeferredInterrupts) -> BaseException | None:
    """Return the exception of Ctrl-C, if that was pressed."""
    if interrupts.came:
        interrupts.came = False
        return KeyboardInterrupt()
    return None
