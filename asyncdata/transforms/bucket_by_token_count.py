"""bucket_by_token_count: batches of as many elements as fit into a number of tokens, of about one length each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from operator import index, itemgetter
from typing import Any, Final, NamedTuple

from asyncdata.elements.structure import open_level
from asyncdata.errors import PlanError, StructureError
from asyncdata.executors.function_call import Call, noted
from asyncdata.executors.scope import Scope
from asyncdata.graph.members import alone, remade
from asyncdata.graph.node import REPLACEABLE, Node, Unary, check_arguments, check_count, regrouped
from asyncdata.graph.stages import Fold, Step
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.resharding import Resharding, listed
from asyncdata.runtime.tickets import (
    END,
    NOTHING,
    ExplicitTickets,
    Position,
    ReplayedTickets,
    Start,
    Ticket,
    Tickets,
    natural,
    replaying,
)
from asyncdata.transforms.padded_batch import Padding

__all__ = ("BucketByTokenCount",)

METHOD: Final = "bucket_by_token_count"
OVERLONG: Final = ("error", "drop", "keep")


@dataclass(frozen=True, eq=False)
class BucketByTokenCount(Unary):
    """Batches of elements of about one length: with their padding they have at most `max_tokens` tokens."""

    max_tokens: int
    length_func: Call = field(metadata=REPLACEABLE)
    buffer_size: int
    overlong: str
    padding: Padding = field(repr=False)

    retains_elements = True

    @property
    def holds(self) -> int:
        return self.buffer_size

    @staticmethod
    def of(
        plan: Node, max_tokens: int, length_func: Callable[..., int] | None, size: int, overlong: str, values: Any
    ) -> BucketByTokenCount:
        """Return the node for the user's arguments."""
        most = check_count(METHOD, "max_tokens", max_tokens, 1)
        size = check_count(METHOD, "buffer_size", size, 1)
        if overlong not in OVERLONG:
            choices = ", ".join(map(repr, OVERLONG))
            raise PlanError(f"{METHOD}(overlong=) must be one of {choices}, got {overlong!r:.80}")
        call = Call(METHOD, length_of, spread=False) if length_func is None else Call(METHOD, length_func)
        if length_func is None:
            call.label = f"{METHOD}({most})"  # a line inside this package would not help the user
        if call.is_async:
            raise PlanError(f"{METHOD}(length_func=) must be a plain function: {call.name} is a coroutine function")
        check_arguments(call, plan)
        padding = Padding(values=values)
        padding.check(METHOD, plan.signature)
        return BucketByTokenCount(plan, most, call, size, overlong, padding)

    def stage(self) -> Fold:
        return Fold(lambda _: TokenBucketer(self))

    @property
    def cardinality(self) -> int:
        return regrouped(self.input.cardinality)

    @property
    def signature(self) -> Any:
        return self.padding.signature(self.input.signature, None)

    def label(self) -> str:
        name = "" if self.length_func.fn is length_of else f", {self.length_func.name[len(METHOD) + 1 : -1]}"
        overlong = "" if self.overlong == "error" else f", overlong={self.overlong!r}"
        return f"{METHOD}({self.max_tokens}{name}, buffer_size={self.buffer_size}{overlong})"

    def lengths(self, block: Block) -> list[int | Failure | None]:
        """Return the length of each element; a failure in the place of one that has none, `None` for one to drop."""
        found = self.length_func.run(block).items
        return [self.length(value, ticket) for value, ticket in zip(found, block.tickets, strict=True)]

    def length(self, value: Any, ticket: Ticket) -> int | Failure | None:
        if type(value) is Failure:
            return value
        label = self.length_func.label
        try:
            length = checked_length(value)
        except Exception as error:  # also errors of its own `__index__`
            return noted(error, label, ticket)
        if length <= self.max_tokens or self.overlong == "keep":
            return length
        if self.overlong == "drop":
            return None
        error = (
            f"the element has {length} tokens, but a batch holds {self.max_tokens}: give overlong='drop' or "
            "overlong='keep'"
        )
        return noted(StructureError(error), label, ticket)

    def make_result(self, items: list[Any], tickets: Tickets) -> Any:
        """Return a batch, or the failure in its place."""
        try:
            return self.padding.stack(items)
        except Exception as error:  # also errors of an element's own methods
            return noted(error, f"{METHOD}({self.max_tokens})", tickets)

    async def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Stack the members of each batch again; anything else is a failed element."""
        batches = remade(self.input, scope, tickets, lambda found: self.make_result(found.items, found.tickets))
        async with aclosing(batches) as source:
            async for block in source:
                is_batch = isinstance(block.tickets[0], Tickets) or block.failed
                yield block if is_batch else Block([*self.lengths(block)], block.tickets, True)

    def reshard(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        return [self.input.resharded([listed(at)[0] for at in positions], resharding), 0]


def checked_length(value: Any) -> int:
    """Return the result of a length function as a number; raise if it is not one."""
    try:
        length = index(value)
    except TypeError:
        raise TypeError(f"a length must be an integer, got {value!r:.80}") from None
    if length < 0:
        raise ValueError(f"a length is at least 0, got {length}")
    return length


def length_of(element: Any) -> int:
    """Return the length that all parts of an element have."""
    level = open_level(element)
    if level is None:
        try:
            return len(element)
        except TypeError as error:
            raise TypeError(f"{element!r:.60} has no length: give length_func") from error
    lengths = dict(zip(level.names, map(length_of, level.parts), strict=True))
    if len(set(lengths.values())) != 1:
        raise StructureError(f"the parts of the element have lengths {lengths}: give length_func")
    return next(iter(lengths.values()))


class BufferedElement(NamedTuple):
    """An element in the buffer."""

    length: int
    item: Any
    ticket: Ticket


class TokenBufferState(NamedTuple):
    """A position: after `done` of some elements, with others held, and how many of these were being given out."""

    tickets: Tickets
    done: int
    held: Sequence[BufferedElement]
    start: int
    stop: int
    leaving: int

    def position(self) -> Position:
        """Return it as the position to continue at: the input's, and how many of its elements were being given out."""
        back = [one.ticket for one in self.held[self.start : self.stop]]
        inner = replaying(self.tickets.at(self.done), [ReplayedTickets(back, 0, len(back), END)])
        return [inner, self.leaving]


class TokenBucketer(Step):
    """A buffer that is filled, sorted by length and given out as batches."""

    def __init__(self, node: BucketByTokenCount) -> None:
        self.node = node
        self.held: list[BufferedElement] = []
        self.tickets: Tickets = NOTHING
        self.seen = 0
        self.leaving = 0  # elements that were being given out when the state was saved, and come first
        self.out: list[tuple[Any, Ticket, TokenBufferState]] = []

    def resume(self, position: Position) -> Start:
        inner, leaving = position
        self.leaving = natural(leaving)
        return Start.of(inner)

    def need(self, want: int) -> int:
        return min(4096, self.leaving or self.node.buffer_size - len(self.held))

    def feed(self, block: Block) -> Block:
        self.tickets, self.seen = block.tickets, 0
        before = self.filling()
        for place, (item, length) in enumerate(zip(block.items, self.node.lengths(block), strict=True)):
            self.seen, ending = place + 1, self.leaving == 1
            self.leaving = max(0, self.leaving - 1)
            if type(length) is Failure:
                self.out.append((length, alone(block.tickets[place]), self.filling()))
            elif isinstance(length, int):
                self.held.append(BufferedElement(length, item, block.tickets[place]))
            if ending or len(self.held) >= self.node.buffer_size:
                self.empty()
        return self.given(before)

    def filling(self) -> TokenBufferState:
        """Return the position while the buffer is filled."""
        leaving = len(self.held) + self.leaving if self.leaving else 0
        return TokenBufferState(self.tickets, self.seen, self.held, 0, len(self.held), leaving)

    def empty(self) -> None:
        """Give the buffer out, the shortest elements first."""
        ordered = sorted(self.held, key=itemgetter(0))
        self.held = []
        start = 0
        for stop, one in enumerate([*ordered[1:], None] if ordered else (), 1):
            if one is None or one.length * (stop + 1 - start) > self.node.max_tokens:
                self.batch(ordered, start, stop)
                start = stop

    def batch(self, ordered: Sequence[BufferedElement], start: int, stop: int) -> None:
        """Give out some elements as a batch."""
        members = ordered[start:stop]
        tickets = ReplayedTickets([one.ticket for one in members], 0, len(members), END)
        item = self.node.make_result([one.item for one in members], tickets)
        self.out.append(
            (item, tickets, TokenBufferState(self.tickets, self.seen, ordered, stop, len(ordered), len(ordered) - stop))
        )

    def given(self, before: TokenBufferState) -> Block:
        """Return the output so far."""
        items, tickets, spots = zip(*self.out, strict=True) if self.out else ((), (), ())
        self.out = []
        after = [before, *spots]
        return Block(
            [*items], ExplicitTickets(tickets, lambda count: after[count].position()), Failure in set(map(type, items))
        )

    def flush(self) -> Iterator[Block]:
        if self.held:
            before = self.filling()
            self.empty()
            yield self.given(before)
