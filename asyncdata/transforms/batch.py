"""batch: consecutive elements stacked into one."""

from __future__ import annotations

import dis
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, ClassVar, Final, NamedTuple, final

from asyncdata.elements.columns import ColumnBatch, divided
from asyncdata.elements.structure import prefixed, stack
from asyncdata.errors import ResumeError, StructureError, annotate
from asyncdata.executors.function_call import describe, noted
from asyncdata.executors.function_wrappers import unwrapped
from asyncdata.executors.scope import Scope
from asyncdata.graph.members import alone, members_of, remade
from asyncdata.graph.node import Node, PlaceBelow, Unary, nodes_of, repeated_ones, scaled
from asyncdata.graph.stages import Fold, Stage, Step
from asyncdata.runtime.block import Block, Blocks, Demand, Failure, LeftOut, is_left_out
from asyncdata.runtime.resharding import Resharding, listed
from asyncdata.runtime.source_state import RestorableItem
from asyncdata.runtime.tickets import NOTHING, ExplicitTickets, Position, Start, Ticket, Tickets, plain, replaying
from asyncdata.transforms.map import Map

__all__ = ("Batch", "BatchState", "Batcher")

FEW: Final = 32
"""Fewer rows of one array than this are stacked quicker as elements."""

MEMBER: Final = re.compile(r"element (\d+) of the batch")


@dataclass(frozen=True, eq=False)
class Batch(Unary):
    """Every `size` consecutive elements as one, their leaves stacked along a new first axis."""

    size: int
    drop_remainder: bool = False
    stacks: ClassVar[bool] = True
    """Whether it stacks elements unchanged, so that columns of arrays can be joined."""
    copies: ClassVar[bool] = True
    """Whether its results share no memory with its elements."""

    @property
    def holds(self) -> int:
        return self.size

    def stage(self) -> Stage:
        return Fold(lambda _: self.step())

    def check_back(self, scope: Scope, start: Start) -> None:
        given = {plain(ticket): ticket for ticket in start.back}  # one ticket may be needed twice, if cut into two rows
        members = [*chain.from_iterable(map(members_of, given.values()))]
        inner = Start.of(listed(start.position)[0], members)
        if twice := repeated_ones([*map(plain, inner.back)]):
            raise ResumeError(
                f"{self.written}: the state lists {describe(next(iter(twice)))} twice (the state is damaged; start "
                "without it)"
            )
        self.input.check_back(scope, inner)

    def place_below(self, position: Position) -> PlaceBelow:
        return PlaceBelow(listed(position)[0])

    def step(self) -> Batcher:
        """Return the step that collects elements."""
        return Batcher(self)

    def at_once(self, most: int) -> Iterator[Block] | None:
        blocks = self.input.at_once(min(most, self.size))
        return None if blocks is None else self.batches_of_all(blocks)

    def batches_of_all(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """Yield the batches of some blocks, which are all there are."""
        step = self.step()
        for block in blocks:
            if len(out := step.feed(block)):
                yield out
        yield from step.flush()

    @property
    def kind(self) -> str:
        """Its name for users."""
        return "batch"

    @property
    def written(self) -> str:
        """How users wrote it, for messages."""
        return f"{self.kind}({self.size})"

    def join(self, items: list[Any]) -> Any:
        """Return one element made from these."""
        return stack(items)

    def make_result(self, items: list[Any], tickets: Tickets, at: int) -> Any:
        """Return a batch of elements whose tickets start at `at`, or the failure in its place."""
        try:
            check_given(self, items)
            return self.join(items)
        except Exception as error:  # also errors of an element's own methods
            members = tickets.slice(at, at + len(items))
            name_member(error, members)
            return noted(error, self.written, members)

    def made_of_rest(self, items: list[Any], tickets: Tickets, at: int) -> Any:
        """Return a batch of those of some elements that are not left out."""
        rest = [item for item in items if not is_left_out(item)]
        return self.make_result(rest, tickets, at) if rest else Failure(LeftOut())

    def batch_of(self, block: Block) -> Any:
        """Return a batch of all elements of a block, or the failure in its place; columns are joined without making
        elements."""
        if block.failed:
            return self.made_of_rest(block.items, block.tickets, 0)
        if not block.columns or not self.stacks:
            return self.make_result(block.items, block.tickets, 0)
        return self.joined(block.columns, block.tickets, 0, len(block))

    def joined(self, columns: Sequence[ColumnBatch], tickets: Tickets, start: int, stop: int) -> Any:
        """Return a batch of columns, whose elements have the tickets from `start` to `stop`, or the failure."""
        try:
            return ColumnBatch.stacked(columns)
        except Exception as error:
            members = tickets.slice(start, stop)
            name_member(error, members)
            return noted(error, self.written, members)

    def batched(self, read: float) -> float:
        return max(1.0, min(read, self.size))  # some may wait for the others of their batch

    @property
    def cardinality(self) -> int:
        rounding = 0 if self.drop_remainder else self.size - 1
        return scaled(self.input.cardinality, lambda count: (count + rounding) // self.size)

    @property
    def row_count(self) -> int | None:
        """How many rows each batch has if none fails, `None` if not all have as many."""
        return self.size if self.drop_remainder else None

    @property
    def signature(self) -> Any:
        return prefixed(self.input.signature, self.size if self.drop_remainder else None)

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        return remade(self.input, scope, tickets, self.batch_of, in_batches=True)

    def seek(self, count: int) -> Position:
        return [self.input.seek(count * self.size)]

    def reshard(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        return [self.input.resharded([listed(at)[0] for at in positions], resharding)]


def name_member(error: Exception, members: Tickets) -> None:
    """Say in a note which item of a channel the member of a batch is of which an error tells."""
    found = MEMBER.search(str(error)) if isinstance(error, StructureError) else None
    ticket = members[int(found[1])] if found and int(found[1]) < len(members) else None
    if isinstance(ticket, RestorableItem) and ticket.channel_place is not None:
        annotate(error, f"that is {describe(ticket)}")


class Batcher(Step):
    """Collects elements. A failure passes at once and leaves the batch under construction as it is."""

    def __init__(self, node: Batch) -> None:
        self.size = node.size
        self.drop_remainder = node.drop_remainder
        self.node = node
        self.held: list[Block] = []
        self.count = 0
        self.overtaken = 0  # held elements that later failures have passed
        self.last: Tickets = NOTHING

    def resume(self, position: Position) -> Start:
        return Start.of(position[0])

    def need(self, want: int) -> int:
        return want * self.size - self.count

    def feed(self, block: Block) -> Block:
        self.last = block.tickets
        if not block.failed and self.count + block.count < self.size:
            self.hold(block)
            return Block([])
        before = self.state_at(block.tickets, 0)
        if not block.failed:
            self.hold(block)
            return self.cut(before)
        out: list[Block] = []
        for piece in block.pieces():
            if piece.failed and not is_left_out(piece.items[0]):
                self.overtaken = self.count
                after = self.state_at(piece.tickets, 1)
                out.append(Block(piece.items, tickets_of_one(alone(piece.tickets[0]), before, after), True))
                continue
            self.hold(piece)
            if self.count >= self.size:
                out.append(self.cut(before))
        return Block.join(out) if out else Block([])

    def hold(self, block: Block) -> None:
        """Add elements to the batch under construction."""
        self.held.append(block)
        self.count += block.count

    def state_at(self, tickets: Tickets, done: int) -> BatchState:
        """Return the position after `done` of some elements."""
        return BatchState(tickets, done, [piece.tickets for piece in self.held], self.overtaken > 0)

    def cut(self, before: BatchState) -> Block:
        """Return every full batch that is held."""
        block, stops = Block.join(self.held), self.stops()
        end, columns, tickets = stops[-1], block.columns, block.tickets
        spans = zip(chain((0,), stops), stops, strict=False)
        if not columns or not self.node.stacks or (end < FEW * len(stops) and columns[0].bare):
            made, items = self.node.made_of_rest if block.failed else self.node.make_result, block.items
            batches = [made(items[start:stop], tickets, start) for start, stop in spans]
        elif len(stops) == 1 and end == self.count:
            batches = [self.node.joined(columns, tickets, 0, end)]
        else:
            columns = ColumnBatch.gathered(columns)
            batches = columns[0].small_batches(stops) if len(columns) == 1 else []
            if not batches:
                joined, parts = self.node.joined, divided(columns, stops)
                batches = [joined(part, tickets, *span) for part, span in zip(parts, spans, strict=False)]
        self.count -= end
        self.overtaken = max(0, self.overtaken - end)
        last = self.held[-1]  # it filled the first of these batches; a part of `block` would hold all before it
        self.held = [last.slice(len(last) - self.count, len(last))] if self.count else []
        return Block(batches, BatchTickets(block.tickets, stops, before), Failure in set(map(type, batches)))

    def stops(self) -> Sequence[int]:
        """Return where in the held elements each full batch ends."""
        return range(self.size, self.count + 1, self.size)

    def flush(self) -> Iterator[Block]:
        if self.held and not self.drop_remainder:
            joined = Block.join(self.held)
            batch = self.node.batch_of(joined)
            before, after = self.state_at(self.last, len(self.last)), BatchState(self.last, len(self.last))
            self.held, self.count, self.overtaken = [], 0, 0
            yield Block([batch], tickets_of_one(joined.tickets, before, after), type(batch) is Failure)


class BatchState(NamedTuple):
    """A position in the input: after `done` of some elements, with others held that were read before."""

    tickets: Tickets
    done: int
    held: Sequence[Tickets] = ()
    overtaken: bool = False

    def position(self) -> Position:
        """Return the position to resume at: a list, as members come first, not batches.

        It is before the first held element, unless failures after it have been delivered.
        """
        if self.held and not self.overtaken:
            return [self.held[0].at(0)]
        return [replaying(self.tickets.at(self.done), self.held)]


@final
class BatchTickets(Tickets):
    """The tickets of full batches, cut from elements that follow each other at `stops`.

    `before` is the position before.
    """

    __slots__ = ("base", "before", "stops")

    def __init__(self, base: Tickets, stops: Sequence[int], before: BatchState) -> None:
        self.base = base
        self.stops = stops
        self.before = before

    def __len__(self) -> int:
        return len(self.stops)

    def __getitem__(self, index: int) -> Ticket:
        return self.base.slice(self.begin(index), self.stops[index])

    def begin(self, index: int) -> int:
        """Return how many members come before those of a batch."""
        return self.stops[index - 1] if index else 0

    def members(self, start: int, stop: int) -> tuple[Tickets, Sequence[int]] | None:
        bounds = [self.begin(start), *self.stops[start:stop]]
        return self.base.slice(bounds[0], bounds[-1]), [after - before for before, after in pairwise(bounds)]

    def at(self, count: int) -> Position:
        return BatchState(self.base, self.stops[count - 1]).position() if count else self.before.position()


def tickets_of_one(ticket: Ticket, before: BatchState, after: BatchState) -> Tickets:
    """Return the tickets of one item, a failure or the last batch, with the positions before and after it."""
    return ExplicitTickets([ticket], lambda count: (after if count else before).position())


def check_given(node: Node, items: Sequence[Any]) -> None:
    """Raise `StructureError` if all elements are `None` and come from a function of `map`, which may lack a
    `return`."""
    if items[0] is not None or any(item is not None for item in items):
        return
    for one in nodes_of(node):
        for call in one.functions if isinstance(one, Map) else ():
            if returns_none(call.fn):
                raise StructureError(f"all elements of the batch are None: {call.name} may lack a `return`")


def returns_none(fn: Any) -> bool:
    """Return whether a Python function, where it returns, returns the constant `None`."""
    fn = unwrapped(fn)
    code = getattr(getattr(fn, "__func__", fn), "__code__", None)
    if code is None:
        return False
    pairs = [*pairwise(dis.get_instructions(code))]
    if any(one.opname == "RETURN_VALUE" and one.is_jump_target for _, one in pairs):  # `x if y else None`
        return False
    returned = [before for before, one in pairs if one.opname == "RETURN_VALUE"]
    returned += [one for _, one in pairs if one.opname == "RETURN_CONST"]
    return bool(returned) and all("CONST" in one.opname and one.argval is None for one in returned)
