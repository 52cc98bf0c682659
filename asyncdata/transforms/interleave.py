"""interleave: several inner datasets read in turn, or at once; the order is the same either way."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain, count
from typing import Any, Final, Protocol

from asyncdata.options import AUTOTUNE
from asyncdata.plan import Node, parallel_label
from asyncdata.runtime.block import Block, Blocks, Demand, Failure, Ticket, children
from asyncdata.runtime.executors import Call
from asyncdata.runtime.queue import BlockQueue, Depth, LoopSignal
from asyncdata.runtime.scope import Scope
from asyncdata.runtime.stage import Merge, Opener, breathe, fill
from asyncdata.transforms.flat_map import inner_plan

__all__ = ("CYCLE_LENGTH", "Interleave")

CYCLE_LENGTH: Final = 16
"""How many inner datasets are open at once when nobody says: fixed, so that no order depends on the machine."""


@dataclass(frozen=True, eq=False)
class Interleave(Node):
    """`block_length` elements in turn from each of `cycle_length` open datasets that `function` makes of elements."""

    input: Node
    function: Call
    cycle_length: int = CYCLE_LENGTH
    block_length: int = 1
    workers: int | None = None
    ordered: bool | None = None

    def stage(self) -> Merge:
        return Merge(self.blocks)

    @property
    def repeatable(self) -> bool:
        return self.ordered is not False and self.input.repeatable

    def label(self) -> str:
        workers = parallel_label(self.workers)
        block = "" if self.block_length == 1 else f", block_length={self.block_length}"
        unordered = ", deterministic=False" if self.ordered is False else ""
        return f"{self.function.name[:-1]}, cycle_length={self.cycle_length}{block}{workers}{unordered})"

    async def blocks(self, scope: Scope, inputs: Sequence[Opener], want: Demand) -> Blocks:
        """Open inner datasets and merge them."""
        opened: Inputs = (
            SerialInputs(self, scope, inputs[0]) if self.workers is None else ParallelInputs(self, scope, inputs[0])
        )
        cycle = Cycle(opened, self.cycle_length, self.block_length, want)
        merged = cycle.in_order() if self.ordered is not False or self.workers is None else cycle.as_ready()
        try:
            async for block in merged:
                yield block
        finally:
            await merged.aclose()
            for slot in cycle.slots:
                if slot is not None:
                    await slot.close()
            await opened.close()


class Slot:
    """One open inner dataset and what has been read of it."""

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.held = Block([], ())
        self.start = 0

    @property
    def left(self) -> int:
        """How many items are here already."""
        return len(self.held) - self.start

    def take(self, count: int) -> Block:
        """Take `count` of the items that are here."""
        part = self.held.part(self.start, self.start + count)
        self.start += count
        return part

    def hold(self, block: Block | None) -> bool:
        """Keep a block that was read; return whether there was one."""
        if block is None:
            return False
        self.held = Block(block.items, children(self.ticket, block.tickets), block.failed)
        self.start = 0
        return True

    def fill_now(self) -> bool:
        """Get items without waiting, if there are any."""
        return False

    async def fill(self, limit: int) -> bool:
        """Wait for items; return false at the end."""
        raise NotImplementedError

    async def close(self) -> None:
        """Leave the inner dataset."""
        raise NotImplementedError


class SerialSlot(Slot):
    """An inner dataset that is read when its turn comes."""

    def __init__(self, ticket: Ticket, source: Blocks, want: Demand) -> None:
        super().__init__(ticket)
        self.source = source
        self.want = want

    async def fill(self, limit: int) -> bool:
        self.want.items = limit
        return self.hold(await anext(self.source, None))

    async def close(self) -> None:
        await self.source.aclose()


class ReaderSlot(Slot):
    """An inner dataset that a task of its own reads into a queue."""

    def __init__(self, ticket: Ticket, queue: BlockQueue, signal: LoopSignal) -> None:
        super().__init__(ticket)
        self.queue = queue
        self.signal = signal

    def fill_now(self) -> bool:
        return self.hold(self.queue.take_ready(1 << 30))

    async def fill(self, limit: int) -> bool:
        if not self.queue.may_read():
            self.queue.crave()
            await self.signal.until(self.queue.may_read)
        return self.fill_now()

    async def close(self) -> None:
        self.queue.stop()


class Inputs(Protocol):
    """Where the next inner dataset comes from."""

    signal: LoopSignal

    def idle(self) -> bool:
        """Tell whether `next` would have to wait."""
        ...

    async def next(self) -> Slot | Block | None:
        """Return the next inner dataset, a failure in its place, or `None` after the last."""
        ...

    def close(self) -> Awaitable[None]:
        """Leave the input."""
        ...


class SerialInputs:
    """Opens an inner dataset when the cycle comes to a free slot."""

    def __init__(self, node: Interleave, scope: Scope, opener: Opener) -> None:
        self.function = node.function
        self.scope = scope
        self.signal = LoopSignal(scope.loop)
        self.outer = opener(scope, Demand())

    def idle(self) -> bool:
        return True

    async def next(self) -> Slot | Block | None:
        block = await anext(self.outer, None)
        if block is None:
            return None
        plan = await inner_plan(self.function, block)
        if type(plan) is Failure:
            return Block([plan], block.tickets, True)
        ticket, want = block.tickets[0], Demand()
        return SerialSlot(ticket, plan.open(self.scope.at(ticket), want), want)

    async def close(self) -> None:
        await self.outer.aclose()


class ParallelInputs:
    """Keeps as many inner datasets being read as the cycle has slots; one that is read to its end makes way."""

    def __init__(self, node: Interleave, scope: Scope, opener: Opener) -> None:
        workers = node.cycle_length if node.workers in (None, AUTOTUNE) else node.workers or 1
        self.node = node
        self.scope = scope
        self.opener = opener
        self.signal = LoopSignal(scope.loop)
        self.vacancy = LoopSignal(scope.loop)
        self.turn = asyncio.Semaphore(workers) if workers < node.cycle_length else nullcontext()
        self.reading = 0
        self.standby: deque[Slot | Block] = deque()
        self.numbers = count()
        self.ended = False
        self.tasks = {-1: scope.spawn(self.run)}

    def idle(self) -> bool:
        return not self.may_read()

    def may_read(self) -> bool:
        return bool(self.standby) or self.ended

    def vacant(self) -> bool:
        return self.reading < self.node.cycle_length

    async def run(self) -> None:
        """Open inner datasets as long as there is a vacancy."""
        outer = self.opener(self.scope, Demand())
        try:
            while True:
                await self.vacancy.until(self.vacant)
                block = await anext(outer, None)
                if block is None:
                    break
                plan = await inner_plan(self.node.function, block)
                if type(plan) is Failure:
                    self.standby.append(Block([plan], block.tickets, True))
                else:
                    self.admit(plan, block.tickets[0])
                self.signal.notify()
        finally:
            await outer.aclose()
        self.ended = True
        self.signal.notify()

    def admit(self, plan: Node, ticket: Ticket) -> None:
        """Start to read an inner dataset."""
        queue = BlockQueue(Depth(AUTOTUNE, self.node.block_length + 1), LoopSignal(self.scope.loop), self.signal)
        self.reading += 1
        self.standby.append(ReaderSlot(ticket, queue, self.signal))
        number = next(self.numbers)
        self.tasks[number] = self.scope.spawn(lambda: self.read(queue, plan, ticket, number))

    async def read(self, queue: BlockQueue, plan: Node, ticket: Ticket, number: int) -> None:
        """Read one inner dataset into its queue."""
        try:
            await fill(queue, plan.open, self.scope.at(ticket), self.turn)
        finally:
            del self.tasks[number]
            self.reading -= 1
            self.vacancy.notify()

    async def next(self) -> Slot | Block | None:
        await self.signal.until(self.may_read)
        return self.standby.popleft() if self.standby else None

    async def close(self) -> None:
        for task in self.tasks.values():
            task.cancel()


class Cycle:
    """The slots, whose turn it is, and what is ready to go out."""

    def __init__(self, inputs: Inputs, length: int, block_length: int, want: Demand) -> None:
        self.inputs = inputs
        self.slots: list[Slot | None] = [None] * length
        self.block_length = block_length
        self.want = want
        self.index = 0
        self.turn = block_length
        self.ended = False
        self.out: list[Block] = []
        self.count = 0

    def advance(self) -> None:
        self.index = (self.index + 1) % len(self.slots)
        self.turn = self.block_length

    def put(self, block: Block) -> None:
        self.out.append(block)
        self.count += len(block)

    def emit(self) -> Block:
        block = Block.join(self.out)
        self.out, self.count = [], 0
        return block

    async def in_order(self) -> Blocks:
        """Yield elements in the order of the cycle, all that are ready at once; wait with empty hands only."""
        while True:
            slot = self.slots[self.index]
            if slot is None:
                if self.ended:
                    if not any(self.slots):
                        break
                    self.advance()
                    continue
                if self.out and self.inputs.idle():
                    yield self.emit()
                await self.open_here()
            elif slot.left or slot.fill_now():
                self.draw(slot)
            else:
                if self.out:
                    yield self.emit()
                await self.fill_here(slot)
            if self.count >= self.want.items:
                yield self.emit()
        if self.out:
            yield self.emit()

    async def open_here(self) -> None:
        """Put the next inner dataset into the free slot whose turn it is."""
        opened = await self.inputs.next()
        if opened is None:
            self.ended = True
        elif isinstance(opened, Block):
            self.put(opened)
        else:
            self.slots[self.index] = opened

    async def fill_here(self, slot: Slot) -> None:
        """Wait for the slot whose turn it is; free it at its end."""
        share = self.want.items // (sum(s is not None for s in self.slots) * self.block_length)
        if not await slot.fill(self.block_length * max(1, share)):
            await slot.close()
            self.slots[self.index] = None
            self.advance()
            await breathe()

    def draw(self, slot: Slot) -> None:
        """Take what may be taken from this slot now; whole rounds at once where every slot has something."""
        room = self.want.items - self.count
        if self.block_length == 1 and (rounds := self.rounds(room)) > 1:
            self.put(self.draw_rounds(rounds))
            return
        part = slot.take(min(self.turn, slot.left, room))
        self.put(part)
        self.turn -= len(part)
        if self.turn == 0:
            self.advance()

    def rounds(self, room: int) -> int:
        """Return how many rounds can be drawn without waiting."""
        least = room // len(self.slots)
        for slot in self.slots:
            if slot is None or least < 2:
                return 0
            least = min(least, slot.left)
        return least

    def draw_rounds(self, rounds: int) -> Block:
        """Take one item of each slot in turn, `rounds` times."""
        order = self.slots[self.index :] + self.slots[: self.index]
        parts = [slot.take(rounds) for slot in order if slot is not None]
        items: list[Any] = list(chain.from_iterable(zip(*[part.items for part in parts], strict=True)))
        tickets: list[Ticket] = list(chain.from_iterable(zip(*[part.tickets for part in parts], strict=True)))
        return Block(items, tickets, any(part.failed for part in parts))

    async def as_ready(self) -> Blocks:
        """Yield elements from whichever inner dataset has some."""
        while True:
            await self.admit_ready()
            for index, slot in enumerate(self.slots):
                if slot is None:
                    continue
                if not (slot.left or slot.fill_now()):
                    if self.exhausted(slot):
                        self.slots[index] = None
                    continue
                if self.count >= self.want.items:
                    yield self.emit()
                self.put(slot.take(min(slot.left, self.want.items - self.count)))
            if self.out:
                yield self.emit()
            elif self.ended and not any(self.slots):
                return
            else:
                await self.inputs.signal.until(self.anything)

    async def admit_ready(self) -> None:
        """Move inner datasets that are open already into free slots."""
        for index in range(len(self.slots)):
            self.index = index
            while self.slots[index] is None and self.may_open():
                await self.open_here()

    def may_open(self) -> bool:
        """Tell whether an inner dataset, or a failure in its place, is there to be taken up."""
        return not self.ended and not self.inputs.idle() and self.count < self.want.items

    def exhausted(self, slot: Slot) -> bool:
        return isinstance(slot, ReaderSlot) and slot.queue.ended and not slot.queue.blocks

    def anything(self) -> bool:
        """Tell whether some slot has items or has ended, or a free one can be filled."""
        live = [slot for slot in self.slots if isinstance(slot, ReaderSlot)]
        if any(slot.queue.may_read() for slot in live):
            return True
        return not self.ended and len(live) < len(self.slots) and not self.inputs.idle()
