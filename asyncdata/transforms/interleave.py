"""interleave: several inner datasets read in turn, or at once; the order is the same either way."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any, Final, Self, final

import numpy as np

from asyncdata.errors import PlanError
from asyncdata.executors.function_call import Call
from asyncdata.executors.interleave_tuner import InterleaveTuner
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import PHYSICAL, REPLACEABLE, Node, check_count, check_parallel, parallel_label
from asyncdata.graph.stages import INLINE_GROUP, Merge, Opener, yield_to_loop
from asyncdata.options import AUTOTUNE, Options
from asyncdata.runtime.block import Block, Blocks, Demand, has_failure
from asyncdata.runtime.columns import Columns, at_places, joined_columns
from asyncdata.runtime.resharding import Resharding, named, resharded_open_groups
from asyncdata.runtime.tickets import Position, Ticket, Tickets, natural
from asyncdata.transforms.inner_datasets import from_inner, not_made
from asyncdata.transforms.interleave_inputs import CycleSlot, Elsewhere, Inputs, ParallelInputs, SerialInputs
from asyncdata.transforms.interleave_position import (
    CycleSnapshot,
    Event,
    FailedSlot,
    InterleavePosition,
    InterleaveTickets,
    RoundsDrawn,
    SlotClosed,
    SlotDrawn,
    SlotOpened,
)

__all__ = ("CYCLE_LENGTH", "Interleave")

MOST_TURNS, MOST_HELD = 16, 4 << 20
"""The most turns of a slot that are read ahead, and the bytes that all slots may hold of them: a pull costs each little
then."""

CYCLE_LENGTH: Final = 16
"""The default number of inner datasets that are open at once: fixed, so that the order does not depend on the
machine."""


@dataclass(frozen=True, eq=False)
class Interleave(Node):
    """`block_length` elements in turn from each of `cycle_length` open datasets that `function` makes of elements."""

    input: Node
    function: Call = field(metadata=REPLACEABLE)
    cycle_length: int = CYCLE_LENGTH
    block_length: int = 1
    workers: int | None = field(default=None, metadata=PHYSICAL)
    ordered: bool | None = field(default=None, metadata=PHYSICAL)
    tuner: InterleaveTuner | None = field(default=None, repr=False, metadata=PHYSICAL)
    """AUTOTUNE's tuner of how many are read at once."""

    elsewhere: Elsewhere | None = field(default=None, repr=False, metadata=PHYSICAL)
    """Where inner datasets run that are read at once with others, if not here."""

    @staticmethod
    def of(
        plan: Node, call: Call, cycle: int | None, block: int | None, calls: int | None, deterministic: bool | None
    ) -> Interleave:
        """Return the node for the user's arguments."""
        length = CYCLE_LENGTH if cycle in (None, AUTOTUNE) else check_count("interleave", "cycle_length", cycle, 1)
        size = 1 if block is None else check_count("interleave", "block_length", block, 1)
        check_parallel("interleave", calls)
        if calls is not None and calls > length:
            raise PlanError(f"interleave(num_parallel_calls={calls}) must not exceed cycle_length={length}")
        tuner = InterleaveTuner(length) if calls == AUTOTUNE else None
        return Interleave(plan, call, length, size, calls, deterministic, tuner)

    @property
    def dataset_function(self) -> Call:
        return self.function

    def settled(self, options: Options, numbered: bool) -> Self:
        node = self
        if self.workers is not None and (numbered or self.ordered is None):
            node = dataclasses.replace(node, ordered=numbered or options.deterministic is not False)
        if node.tuner and (options.autotune is False or node.ordered is False):
            node = dataclasses.replace(node, tuner=None)  # without a fixed order no element waits for a slow input
        return node

    def stage(self) -> Merge:
        return Merge(self.blocks)

    @property
    def identity(self) -> str:
        return f"{self.function.name[:-1]}, {self.cycle()})"

    @property
    def in_order(self) -> bool:
        return (self.workers is None or self.ordered is not False) and self.input.in_order

    def label(self) -> str:
        unordered = ", deterministic=False" if self.ordered is False else ""
        return f"{self.function.shown[:-1]}, {self.cycle()}{parallel_label(self.workers)}{unordered})"

    def cycle(self) -> str:
        """Return the arguments for the cycle in words."""
        block = "" if self.block_length == 1 else f", block_length={self.block_length}"
        return f"cycle_length={self.cycle_length}{block}"

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        if self.elsewhere is not None:
            return self.elsewhere.plan_here(dataclasses.replace(self, elsewhere=None)).fetch(scope, want, tickets)
        return from_inner(self.input, self.function, scope, want, tickets)

    def reshard(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        places = [InterleavePosition(**named(at, "outer")) for at in positions]
        outer, begun = resharded_open_groups(
            [[place.outer, *place.begun] for place in places], resharding, self.input.resharded
        )
        slots, waiting = begun[: self.cycle_length], begun[self.cycle_length :]
        return asdict(InterleavePosition(outer, list(enumerate(slots)), waiting=waiting))

    def place_in(self, position: Mapping[str, Any]) -> InterleavePosition:
        """Return the decoded position; `ValueError` if it does not fit a cycle of this length."""
        place = InterleavePosition(**position)
        slots, length = [natural(slot) for slot, _ in place.slots], self.cycle_length
        turn = self.block_length if place.turn is None else natural(place.turn)
        if len(set(slots)) < len(slots) or max(natural(place.index), *slots, 0) >= length or turn > self.block_length:
            raise ValueError(f"it does not fit a cycle of {length}")
        return place

    async def blocks(self, scope: Scope, inputs: Sequence[Opener], want: Demand, position: Position) -> Blocks:
        """Open inner datasets and merge them."""
        place = InterleavePosition() if position is None else self.parse_position(position, self.place_in)
        kind = SerialInputs if self.workers is None else ParallelInputs
        opened: Inputs = kind(self, scope, inputs[0], place)
        cycle = Cycle(opened, self.cycle_length, self.block_length, want, place, ahead=scope.reads_ahead)
        merge = cycle.in_order if self.ordered is not False or self.workers is None else cycle.as_ready
        try:
            for part in (cycle.reopen, merge):
                async with aclosing(part()) as source:
                    async for block in source:
                        yield block
        finally:
            for slot in cycle.slots:
                if slot is not None:
                    await slot.close()
            await opened.close()


@final
class Turns(Tickets):
    """One ticket of each part in turn, from a place in each on, so many times."""

    __slots__ = ("parts", "rounds", "starts")

    def __init__(self, parts: Sequence[Tickets], starts: Sequence[int], rounds: int) -> None:
        self.parts = parts
        self.starts = starts
        self.rounds = rounds

    def __len__(self) -> int:
        return len(self.parts) * self.rounds

    def __getitem__(self, index: int) -> Ticket:
        turn, place = divmod(index, len(self.parts))
        return self.parts[place][self.starts[place] + turn]

    def in_columns(self, start: int, stop: int) -> Columns:
        wide, first, last = len(self.parts), start // len(self.parts), -(-stop // len(self.parts))
        parts = zip(self.parts, self.starts, strict=True)
        found = joined_columns([part.in_columns(begin + first, begin + last) for part, begin in parts])
        if found is None:
            return None
        index = np.arange(start, stop)
        return at_places(found, index % wide * (last - first) + index // wide - first)


class Cycle:
    """The slots, whose turn it is, and the elements that are ready."""

    def __init__(
        self, inputs: Inputs, length: int, block_length: int, want: Demand, place: InterleavePosition, *, ahead: bool
    ) -> None:
        self.inputs = inputs
        self.start_position = place
        self.slots: list[CycleSlot | None] = [None] * length
        self.block_length = block_length
        self.want = want
        self.ahead = ahead
        self.index = place.index
        self.turn = place.turn or block_length
        self.ended = False
        self.out: list[Block] = []
        self.count = 0
        self.since = 0.0  # when the first of these was put there
        self.last: Tickets | None = None
        self.events: list[Event] = []
        self.pending: Sequence[tuple[int | None, Position]] = place.pending
        self.before = CycleSnapshot({}, None, place.outer, self.index, self.turn, self.pending)

    def advance(self) -> None:
        self.index = (self.index + 1) % len(self.slots)
        self.turn = self.block_length

    def put(self, block: Block) -> None:
        if not self.out:
            self.since = time.perf_counter()
        self.out.append(block)
        self.count += len(block)

    def emit(self) -> Block:
        block = Block.join(self.out)
        length = len(self.slots), self.block_length
        block = block.ticketed(InterleaveTickets(block.tickets, self.before, self.events, length))
        self.out, self.count = [], 0
        self.mark()
        return block

    def mark(self) -> None:
        """Start a new log of events, from the state now."""
        self.events = []
        slots = {index: slot.state for index, slot in enumerate(self.slots) if slot is not None}
        self.before = CycleSnapshot(slots, self.last, self.start_position.outer, self.index, self.turn, self.pending)

    async def reopen(self) -> Blocks:
        """Fill the slots that were open when a state was saved; yield failures beyond those that are requested."""
        for slot, _ in self.start_position.slots:
            await self.open_at(slot)
            if self.count >= self.want.items:
                yield self.emit()
        if not self.out:
            self.mark()

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
                if self.is_due():
                    yield self.emit()
                await self.open_at(self.index)
            elif slot.left or slot.fill_now(self.share(slot)):
                self.draw(slot)
            else:
                if self.out and not slot.is_over:
                    yield self.emit()
                await self.fill_here(slot)
            if self.count >= self.want.items:
                yield self.emit()
        if self.out:
            yield self.emit()

    def is_due(self) -> bool:
        """Return whether ready elements go out before the next dataset is made: at once, if that may take long."""
        return bool(self.out) and (self.inputs.idle() or time.perf_counter() - self.since > INLINE_GROUP)

    async def open_at(self, slot: int) -> None:
        """Put the next inner dataset into a free slot."""
        opened = await self.inputs.next()
        if opened is None:
            self.ended = True
            return
        self.pending = self.pending[1:]
        if isinstance(opened, tuple):
            self.last, failure = opened
            self.put(not_made(self.last, failure))
            self.events.append(FailedSlot(slot, self.last))
        else:
            self.slots[slot] = opened
            self.last = opened.outer
            self.events.append(SlotOpened(slot, opened.state))

    async def fill_here(self, slot: CycleSlot) -> None:
        """Wait for the slot whose turn it is; free it at its end."""
        if not await slot.fill(self.share(slot)):
            await slot.close()
            self.free(self.index)
            self.advance()
            if not self.out:  # the failure goes out soon
                await yield_to_loop()

    def share(self, slot: CycleSlot) -> int:
        """Return how many elements to request from a slot: its part of the demand, in complete turns.

        If the consumer's buffer keeps what comes too early, small ones are read some turns ahead, more each time.
        """
        opened = len(self.slots) - self.slots.count(None)
        turns = max(1, self.want.items // (opened * self.block_length))
        if turns < MOST_TURNS and self.ahead and (size := len(slot.held)):
            bytes_each = max(1, slot.held.weight) * opened * self.block_length
            turns = max(turns, min(2 * size // self.block_length, MOST_TURNS, MOST_HELD // bytes_each))
        return self.block_length * turns

    def draw(self, slot: CycleSlot) -> None:
        """Take what this slot can give now; with it what the next ones have, if each gives one element."""
        space = self.want.items - self.count
        if self.block_length == 1:
            self.put(self.draw_turns(space))
            return
        part = self.take(self.index, slot, min(self.turn, slot.left, space))
        self.put(part)
        self.turn -= len(part)
        if self.turn == 0:
            self.advance()

    def take(self, index: int, slot: CycleSlot, count: int) -> Block:
        if slot.inner is not None:
            self.events.append(SlotDrawn(index, self.turn, slot.inner, slot.start, count))
        return slot.take(count)

    def free(self, index: int) -> None:
        """Empty a slot whose dataset has ended."""
        self.slots[index] = None
        self.events.append(SlotClosed(index))

    def draw_turns(self, space: int) -> Block:
        """Take one item of each slot in turn as long as there are some, and the same again if all have more."""
        order, complete = self.ready_turns(space)
        rounds = min(space // len(order), *[slot.left for _, slot in order]) if complete else 1
        parts = [slot.held for _, slot in order]
        starts = [slot.start for _, slot in order]
        drawn = [(index, slot.inner, slot.start) for index, slot in order if slot.inner is not None]
        self.events.append(RoundsDrawn(drawn, rounds))
        for _, slot in order:
            slot.start += rounds
        self.index = (order[-1][0] + 1) % len(self.slots)
        if rounds == 1:
            items = [part.items[start] for part, start in zip(parts, starts, strict=True)]
        else:
            taken = [part.items[start : start + rounds] for part, start in zip(parts, starts, strict=True)]
            items = list[Any](chain.from_iterable(zip(*taken, strict=True)))
        failed = any(part.failed for part in parts) and has_failure(items)
        return Block(items, Turns([part.tickets for part in parts], starts, rounds), failed)

    def ready_turns(self, most: int) -> tuple[list[tuple[int, CycleSlot]], bool]:
        """Return the slots that give the next elements without waiting, and whether they are all that are open."""
        order: list[tuple[int, CycleSlot]] = []
        for index in chain(range(self.index, len(self.slots)), range(self.index)):
            slot = self.slots[index]
            if slot is None:
                if self.ended:
                    continue
                return order, False  # the next dataset has its turn here
            if len(order) == most or not (slot.left or slot.fill_now(self.share(slot))):
                return order, False
            order.append((index, slot))
        return order, True

    async def as_ready(self) -> Blocks:
        """Yield elements from any inner dataset that has some ready."""
        while True:
            await self.admit_ready()
            for index, slot in enumerate(self.slots):
                if slot is None:
                    continue
                if not (slot.left or slot.fill_now(self.share(slot))):
                    if slot.is_over:
                        self.free(index)
                    continue
                if self.count >= self.want.items:
                    yield self.emit()
                self.put(self.take(index, slot, min(slot.left, self.want.items - self.count)))
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
                await self.open_at(index)

    def may_open(self) -> bool:
        """Return whether the next inner dataset, or a failure in its place, is ready."""
        return not self.ended and not self.inputs.idle() and self.count < self.want.items

    def anything(self) -> bool:
        """Return whether some slot has items or has ended, or a free one can be filled."""
        if any(slot is not None and slot.is_ready for slot in self.slots):
            return True
        return not self.ended and None in self.slots and not self.inputs.idle()
