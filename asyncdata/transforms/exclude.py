"""exclude: records that are left out, also by runs that resume from states of before."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

from asyncdata.executors.scope import Scope
from asyncdata.graph.node import PHYSICAL, REPLACEABLE, Node, StateFree, regrouped
from asyncdata.graph.stages import Fold, Step
from asyncdata.runtime.block import Block, Blocks, Demand, Failure, LeftOut, is_left_out
from asyncdata.runtime.meter import Meter
from asyncdata.runtime.tickets import FilteredTickets, Ordinals, Start, Ticket

__all__ = ("Absent", "DropEmpty", "Exclude", "Passing", "Transparent", "unexcluded")

Record = Mapping[str, Any]

Passing = Callable[[Block], Block]

LAST: Final = itemgetter(-1)


@dataclass(frozen=True, eq=False)
class Transparent(StateFree):
    """A node that passes on a part of each block, or what it makes of each."""

    may_be_unordered = True

    def stage(self) -> Fold:
        return Fold(lambda scope: Passer(self.passing(scope.meter)))

    def passing(self, meter: Meter) -> Passing:
        """Return what makes the output of a block, and counts for a meter what it leaves out."""
        raise NotImplementedError

    def run(self, scope: Scope, want: Demand, start: Start) -> Blocks:
        inner, meter = Demand(ahead=scope.reads_ahead), scope.meters.steps.get(self, scope.meter.within)
        step = Passer(self.passing(meter))
        return self.stage().run(step, self.input.open(scope, inner, start), inner, want, meter)


@dataclass(frozen=True, eq=False)
class Exclude(Transparent):
    """The elements of its input that are not among some records; with `keep_steps` those are holes for a batch."""

    records: tuple[Record, ...] = field(default=(), repr=False, metadata=REPLACEABLE)
    """What `locate` says of each, as far as it tells it from others."""
    names: Callable[[Ticket], Sequence[Record]] = field(default=lambda _: (), repr=False, metadata=PHYSICAL)
    """Returns the records that an element of the input was made from."""
    by_number: bool = field(default=False, repr=False, metadata=PHYSICAL)
    """Whether the last part of an element's ticket is the number of its record."""
    keep_steps: bool = field(default=False, metadata=REPLACEABLE)

    def passing(self, meter: Meter) -> Passing:
        absent = Absent(self, meter)
        return absent.marked if self.keep_steps else absent.dropped

    @property
    def exclusion(self) -> tuple[Record, ...]:
        return self.records

    @property
    def left_out(self) -> Callable[[Ticket], bool] | None:
        below = self.input.left_out
        if self.keep_steps:
            return below
        absent = Absent(self)
        return absent.has if below is None else lambda ticket: absent.has(ticket) or below(ticket)

    @property
    def cardinality(self) -> int:
        return self.input.cardinality if self.keep_steps else regrouped(self.input.cardinality)

    def label(self) -> str:
        count = f"{len(self.records)} record{'s' if len(self.records) > 1 else ''}"
        return f"exclude({count}{', keep_steps=True' if self.keep_steps else ''})"


@dataclass(frozen=True, eq=False)
class DropEmpty(Transparent):
    """The elements of its input but for batches all of whose records were left out."""

    def passing(self, meter: Meter) -> Passing:
        return without_empty

    def label(self) -> str:
        return "exclude(empty batches)"


def unexcluded(plan: Node) -> Node:
    """Return a plan that leaves out no records."""
    if isinstance(plan, (Exclude, DropEmpty)):
        return unexcluded(plan.input)
    inputs = tuple([unexcluded(node) for node in plan.inputs])
    return plan if inputs == plan.inputs else plan.with_inputs(*inputs)


def without_empty(block: Block) -> Block:
    """Return a block without the batches of which nothing is left."""
    gone = [place for place, item in enumerate(block.items) if is_left_out(item)] if block.failed else []
    return without(block, gone)


def without(block: Block, gone: Sequence[int]) -> Block:
    """Return a block without the items at some places."""
    if not gone:
        return block
    left = sorted({*range(len(block))}.difference(gone))
    return block.at(left, FilteredTickets(block.tickets, left))


class Absent:
    """Tells which elements are left out."""

    def __init__(self, node: Exclude, meter: Meter | None = None) -> None:
        self.node = node
        self.meter = meter
        self.each: dict[Any, list[Record]] = {}
        self.whole: list[Record] = []
        """Files of which all is left out."""
        for record in node.records:
            number = number_in(record)
            (self.whole if number is None else self.each.setdefault(number, [])).append(record)
        self.numbers = sorted(self.each)

    def dropped(self, block: Block) -> Block:
        """Return a block without the elements that are left out."""
        return without(block, self.counted(block))

    def marked(self, block: Block) -> Block:
        """Return a block in which these are holes."""
        places = self.counted(block)
        if not places:
            return block
        items = list(block.items)
        for place in places:
            items[place] = Failure(LeftOut())
        return Block(items, block.tickets, True)

    def counted(self, block: Block) -> list[int]:
        """Return where in a block elements are left out, and count them."""
        places = self.places(block)
        if places and self.meter is not None:
            self.meter.excluded += len(places)
        return places

    def places(self, block: Block) -> list[int]:
        """Return where in a block elements are left out; the failure of a source never is."""
        tickets = block.tickets
        if self.whole or not self.node.by_number:
            found = [place for place, ticket in enumerate(tickets) if self.has(ticket)]
        elif type(tickets) is Ordinals:
            first, last = (bisect_left(self.numbers, end) for end in (tickets.start, tickets.stop))
            near = [number - tickets.start for number in self.numbers[first:last]]
            found = [place for place in near if self.has(tickets[place])]
        else:
            each, listed = self.each, [*tickets]
            numbers = last_parts(listed)
            near = () if each.keys().isdisjoint(numbers) else enumerate(numbers)
            found = [place for place, number in near if number in each and self.has(listed[place])]
        lost = block.source_failures(len(block)) if found else []
        return [place for place in found if place not in lost] if lost else found

    def has(self, ticket: Ticket) -> bool:
        """Return whether the element with this ticket is left out."""
        return any(
            fits(wanted, record)
            for record in self.node.names(ticket)
            for wanted in (*self.each.get(number_in(record), ()), *self.whole)
        )


def last_parts(tickets: list[Ticket]) -> list[Any]:
    """Return the numbers of elements in their sources."""
    numbers: list[Any] = tickets
    while tuples := {kind: issubclass(kind, tuple) for kind in set(map(type, numbers))}:
        if all(tuples.values()):
            numbers = [*map(LAST, numbers)]
        elif any(tuples.values()):  # not all have as many parts
            numbers = [number[-1] if isinstance(number, tuple) else number for number in numbers]
        else:
            break
    return numbers


def number_in(record: Record) -> Any:
    """Return the number of a record in its file or source; `None` of a file."""
    return record.get("record", record.get("index"))


def fits(wanted: Record, record: Record) -> bool:
    """Return whether a record is the one that is wanted, whose file may be named without its folder."""
    return all(
        record.get(name) == value or (name == "file" and str(record.get(name)).endswith((f"/{value}", f"\\{value}")))
        for name, value in wanted.items()
    )


class Passer(Step):
    """Passes on what is left of each block."""

    def __init__(self, passing: Passing) -> None:
        self.passing = passing

    def feed(self, block: Block) -> Block:
        return self.passing(block)
