"""balance: elements of unlike cost, dealt to several ranks so that all take about as long in each step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import isfinite
from typing import Any, Final, NamedTuple, final

from asyncdata.errors import PlanError, ResumeError
from asyncdata.executors.function_call import Call, noted
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import ELSEWHERE, REPLACEABLE, Node, Unary, check_arguments, check_count, nodes_of, scaled
from asyncdata.graph.stages import Fold, Step
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.resharding import Resharding, Share
from asyncdata.runtime.tickets import (
    END,
    NOTHING,
    ExplicitTickets,
    Position,
    SelectedTickets,
    Start,
    Ticket,
    Tickets,
    natural,
)
from asyncdata.system.rank import this_rank
from asyncdata.transforms.batch import BatchState

__all__ = ("Balance", "number_of")

METHOD: Final = "balance"


@dataclass(frozen=True, eq=False)
class Balance(Unary):
    """The elements of one rank: of each step, `batch_size` that cost about as much as those of any other rank."""

    cost: Call = field(metadata=REPLACEABLE)
    batch_size: int
    ranks: int = field(metadata=ELSEWHERE)
    rank: int = field(metadata=ELSEWHERE)
    steps: int
    drop_remainder: bool

    retains_elements = True

    @staticmethod
    def of(
        plan: Node, cost: Callable[..., Any], size: int, ranks: int | None, rank: int | None, steps: int, drop: bool
    ) -> Balance:
        """Return the node for the user's arguments; the default share is this process's."""
        size = check_count(METHOD, "batch_size", size, 1)
        steps = check_count(METHOD, "steps", steps, 1)
        if ranks is None and rank is None:
            ranks, rank = this_rank(METHOD, "ranks and rank")
        count = check_count(METHOD, "ranks", ranks, 1)
        if (number := check_count(METHOD, "rank", rank, 0)) >= count:
            raise PlanError(f"{METHOD}(rank=) must be less than ranks={count}, got {number}")
        call = Call(METHOD, cost)
        if call.is_async:
            raise PlanError(f"{METHOD}(cost=) must be a plain function: {call.name} is a coroutine function")
        check_arguments(call, plan)
        if count > 1:
            check_alike(plan)
        return Balance(plan, call.prompt(), size, count, number, steps, drop)

    @property
    def dealing(self) -> Dealing:
        """How elements are dealt."""
        return Dealing(self.ranks, self.batch_size, self.steps)

    @property
    def holds(self) -> int:
        return self.dealing.size

    def stage(self) -> Fold:
        return Fold(lambda _: self.step())

    def step(self) -> Balancer:
        """Return the step; `PlanError` if other ranks may read the same elements in another order."""
        if self.ranks > 1 and not self.input.in_order:
            first = next(node for node in nodes_of(self.input) if not node.in_order)
            raise PlanError(
                f"every rank of {METHOD} must read the same elements in the same order, but the order after "
                f"{first.label()} depends on timing: leave that step out"
            )
        return Balancer(self)

    @property
    def identity(self) -> str:
        rest = ", drop_remainder" if self.drop_remainder else ""
        return f"{METHOD}({self.cost.name[len(METHOD) + 1 : -1]}, {self.batch_size}, steps={self.steps}{rest})"

    def label(self) -> str:
        cost = self.cost.name[len(METHOD) + 1 : -1]
        rest = ", drop_remainder=True" if self.drop_remainder else ""
        return f"{METHOD}({cost}, {self.batch_size}, {self.ranks}, {self.rank}, steps={self.steps}{rest})"

    @property
    def share(self) -> Share:
        return Share(self.ranks, self.rank)

    @property
    def cardinality(self) -> int:
        def own(count: int) -> int:
            more = not self.drop_remainder and self.rank < count % self.ranks
            return count // self.ranks + more

        return scaled(self.input.cardinality, own)

    def costs(self, block: Block) -> list[float | Failure]:
        """Return the cost of each element, a failure in the place of one that has none."""
        found = self.cost.run(block).items
        return [self.checked(value, ticket) for value, ticket in zip(found, block.tickets, strict=True)]

    def checked(self, value: Any, ticket: Ticket) -> float | Failure:
        """Return the cost of an element as a number."""
        if type(value) is Failure:
            return value
        try:
            return number_of(value)
        except Exception as error:  # also errors of its own `__float__`
            return noted(error, self.cost.label, ticket)

    async def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Yield elements again; one that has no cost fails again."""
        async with aclosing(self.input.open(scope, want, Start(END, tickets))) as source:
            async for block in source:
                yield without(block, self.costs(block))

    def reshard(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        groups = [(natural(number), natural(given)) for _, number, given in (at or (None, 0, 0) for at in positions)]
        if len(set(groups)) > 1 or groups[0][1]:
            raise ResumeError(
                f"{self.label()}: the ranks are at {groups} (group, elements of it), but the number of ranks can "
                f"change only between two groups: merge states that all ranks saved after a multiple of {self.steps} "
                "steps"
            )
        return [positions[0][0] if positions[0] else None, 0, 0]


def check_alike(plan: Node) -> None:
    """Raise `PlanError` if every process draws another order for itself."""
    for node in nodes_of(plan):
        if node.chance is not None and node.chance.drawn and not node.preserves_tickets:
            raise PlanError(
                f"every rank of {METHOD} must read the same elements in the same order: give {node.label()} a "
                "seed, the same on all ranks"
            )


def number_of(value: Any) -> float:
    """Return a cost as a number that can be added up."""
    if isinstance(value, (str, bytes)):
        raise TypeError(f"a cost is a number, got {value!r:.80}")
    cost = float(value)
    if not (isfinite(cost) and cost >= 0):
        raise ValueError(f"a cost is at least 0 and finite, got {value!r:.80}")
    return cost


def without(block: Block, costs: Sequence[float | Failure]) -> Block:
    """Return a block with failures in the places of elements that have no cost."""
    if Failure not in set(map(type, costs)):
        return block
    items = [cost if type(cost) is Failure else item for item, cost in zip(block.items, costs, strict=True)]
    return Block(items, block.tickets, True)


class Balancer(Step):
    """Collects a group, divides it and gives out one rank's elements. A failure passes at once, on every rank."""

    def __init__(self, node: Balance) -> None:
        self.node = node
        self.dealing = node.dealing
        self.held: list[Block] = []
        self.costs: list[Any] = []  # numbers
        self.overtaken = False  # whether a failure has passed elements that are held
        self.number = 0  # of the group
        self.given = 0  # of its elements that are this rank's, before a state was saved
        self.last: Tickets = NOTHING

    def resume(self, position: Position) -> Start:
        inner, number, given = position
        self.number, self.given = natural(number), natural(given)
        return Start.of(inner)

    def need(self, want: int) -> int:
        return min(4096, self.dealing.size - len(self.costs))

    def feed(self, block: Block) -> Block:
        costs = self.node.costs(block)
        out: list[Block] = []
        place = 0
        for piece in without(block, costs).pieces():
            if piece.failed:
                out.append(self.passing(piece))
            else:
                self.held.append(piece)
                self.costs += costs[place : place + len(piece)]
                self.last = piece.tickets
                if len(self.costs) == self.dealing.size:
                    out.append(self.dealt())
            place += len(piece)
        return Block.join(out) if out else Block([])

    def passing(self, piece: Block) -> Block:
        """Return a failure, which leaves the group as it is."""
        before, self.overtaken = self.state_at(piece.tickets, 0), bool(self.held)
        after, self.last = self.state_at(piece.tickets, 1), piece.tickets
        tickets = ExplicitTickets([piece.tickets[0]], lambda count: (after if count else before).at(0))
        return Block(piece.items, tickets, True)

    def state_at(self, tickets: Tickets, done: int) -> GroupStart:
        """Return the position after `done` of some elements."""
        held = BatchState(tickets, done, [piece.tickets for piece in self.held], self.overtaken)
        return GroupStart(held, self.number, self.given)

    def dealt(self) -> Block:
        """Return this rank's part of the group."""
        shares = self.dealing.shares(self.costs, self.node.drop_remainder)
        places = shares[self.node.rank][self.given :]
        before = self.state_at(self.last, len(self.last))
        joined = Block.join(self.held)
        self.held, self.costs, self.overtaken, self.given = [], [], False, 0
        self.number += 1
        tickets = DealtTickets(joined.tickets, places, before, self.state_at(self.last, len(self.last)))
        return joined.at(places, tickets) if places else Block([])

    def flush(self) -> Iterator[Block]:
        if self.held:
            yield self.dealt()


@final
class GroupStart:
    """The start of a group, and how many of its elements a rank has got."""

    __slots__ = ("given", "input", "number")

    def __init__(self, held: BatchState, number: int, given: int) -> None:
        self.input = held
        self.number = number
        self.given = given

    def at(self, count: int) -> Position:
        """Return it as the position after so many elements more."""
        return [*self.input.position(), self.number, self.given + count]


@final
class DealtTickets(SelectedTickets):
    """The elements of a group, at some places, that one rank gets; and the positions before and after."""

    __slots__ = ("after", "before")

    def __init__(self, base: Tickets, places: Sequence[int], before: GroupStart, after: GroupStart) -> None:
        super().__init__(base, places)
        self.before = before
        self.after = after

    def at(self, count: int) -> Position:
        return self.after.at(0) if count == len(self.places) else self.before.at(count)


class Dealing(NamedTuple):
    """How elements are divided between ranks: `batch_size` to each in a step, `steps` steps at a time."""

    ranks: int
    batch_size: int
    steps: int

    @property
    def size(self) -> int:
        """How many elements are dealt together."""
        return self.ranks * self.batch_size * self.steps

    def shares(self, costs: Sequence[float], drop_remainder: bool = False) -> list[list[int]]:
        """Return the places of each rank's elements of a group, step by step, of elements with these costs.

        Steps are in the order of their first elements, and so are ranks in a step, and elements in a batch. In an
        incomplete group the last elements, too few for a step, form a short step, in which some ranks may have one
        element more than others; or elements are dropped so that all have equally many.
        """
        full = len(costs) // (self.ranks * self.batch_size) * self.ranks
        batches = filled(costs, range(full * self.batch_size), [self.batch_size] * full)
        weighed = sorted([(sum(costs[place] for place in batch), batch) for batch in batches])
        alike = [
            sorted([batch for _, batch in weighed[start : start + self.ranks]]) for start in range(0, full, self.ranks)
        ]
        count, more = divmod(len(costs) - full * self.batch_size, self.ranks)
        last = range(full * self.batch_size, len(costs) - (more if drop_remainder else 0))
        sizes = [count + (rank < more and not drop_remainder) for rank in range(self.ranks)]
        steps = [*sorted(alike), filled(costs, last, sizes)]
        return [[place for step in steps for place in step[rank]] for rank in range(self.ranks)]


def filled(costs: Sequence[float], places: Iterable[int], sizes: Sequence[int]) -> list[list[int]]:
    """Return batches of the given sizes: the costliest element first, each into the cheapest batch so far."""
    batches: list[list[int]] = [[] for _ in sizes]
    cheapest = [(0.0, number) for number, size in enumerate(sizes) if size]
    heapify(cheapest)
    for place in sorted(places, key=lambda place: -costs[place]):
        total, number = heappop(cheapest)
        batches[number].append(place)
        if len(batches[number]) < sizes[number]:
            heappush(cheapest, (total + costs[place], number))
    return [sorted(batch) for batch in batches]
