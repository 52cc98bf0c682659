"""group_by_reducer: one element for each key, folded from all elements that have it."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import index
from types import CoroutineType
from typing import Any, Final

from asyncdata.errors import PlanError
from asyncdata.executors.function_call import Call
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import EVERYTHING, REPLACEABLE, Node, Unary, beginning, check_arguments, check_called, picked
from asyncdata.graph.stages import CallStep, FoldCalls
from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.tickets import (
    END,
    NOTHING,
    ExplicitTickets,
    FilteredTickets,
    Numbered,
    Position,
    ReplayedTickets,
    Start,
    Ticket,
    Tickets,
    decode_all,
    encode,
    plain,
    replaying,
)
from asyncdata.transforms.keyed import Keyer, in_key_order
from asyncdata.transforms.map import Map

__all__ = ("GroupByReducer", "Reducer")

METHOD: Final = "group_by_reducer"
AT_ONCE: Final = 1024

KEY, FAILED = "key", "failed"
"""The first part of tickets: a key's element continues with the key's number, a failure with its own ticket."""


@dataclass(frozen=True)
class Reducer:
    """How elements of one key are folded into one, as in tf.data.experimental.Reducer; each may be a coroutine
    function.

    >>> import asyncdata as ad
    >>> mean = ad.Reducer(lambda key: (0, 0), lambda state, x: (state[0] + x, state[1] + 1), lambda sum, n: sum / n)
    >>> list(ad.Dataset.range(6).group_by_reducer(lambda x: x % 2, mean))
    [2.0, 3.0]
    """

    init_func: Callable[[Any], Any]
    """Returns the first state for a key."""

    reduce_func: Callable[[Any, Any], Any]
    """Returns the next state, for a state and an element."""

    finalize_func: Callable[..., Any]
    """Returns the element for the last state; a tuple is unpacked into arguments."""


@dataclass(frozen=True, eq=False)
class Calls:
    """The functions of a `Reducer`."""

    init: Call
    reduce: Call
    finalize: Call

    @staticmethod
    def of(reducer: Any) -> Calls:
        """Return the functions; `PlanError` if they are none."""
        if not isinstance(reducer, Reducer):
            raise PlanError(f"{METHOD}(reducer=) must be an asyncdata.Reducer, got {reducer!r:.80}")
        init, reduce = Call(METHOD, reducer.init_func, spread=False), Call(METHOD, reducer.reduce_func)
        check_called(init, "a key", ("key",))
        check_called(reduce, "a state and an element", ("state", "element"))
        return Calls(init, reduce, Call(METHOD, reducer.finalize_func))

    @property
    def are_async(self) -> bool:
        return any(call.is_async for call in (self.init, self.reduce, self.finalize))


@dataclass(frozen=True, eq=False)
class GroupByReducer(Unary):
    """Folds, by `calls`, the second parts of all pairs with the same first part, a key; in the order of keys."""

    calls: Calls = field(metadata=REPLACEABLE)

    @staticmethod
    def of(plan: Node, key_func: Callable[..., Any], reducer: Any) -> GroupByReducer:
        """Return the node above one that pairs elements with their keys."""
        keyer = Keyer(METHOD, key_func)
        check_arguments(keyer, plan)
        return GroupByReducer(Map(plan, (keyer,)), Calls.of(reducer))

    @property
    def cardinality(self) -> int:
        return 0 if self.input.cardinality == 0 else UNKNOWN_CARDINALITY

    @property
    def signature(self) -> None:
        return None

    @property
    def holds(self) -> int:
        return 0 if self.input.in_order else EVERYTHING

    @property
    def resume_note(self) -> str:
        return f"{METHOD}() reads everything again"

    def label(self) -> str:
        return self.calls.reduce.name

    def stage(self) -> FoldCalls:
        return FoldCalls(lambda: ReducerStep(self.calls, self.input), self.calls.are_async)

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        return picked(self, scope, want, tickets)


@dataclass(frozen=True)
class ReducerPosition:
    """A position: which failures were delivered, by their tickets, how many keys' elements were, and where the input
    begins.

    Where the input may have other elements or tickets when it is run again, no failures, but from where it goes on,
    having repeated what was folded.
    """

    failed: Sequence[Ticket]
    groups: int
    begin: Position = None

    @staticmethod
    def of(position: Any) -> ReducerPosition:
        return ReducerPosition(decode_all(position["failed"]), index(position["groups"]), position.get("input"))

    def position(self) -> Position:
        place: dict[str, Any] = {"failed": [encode(ticket) for ticket in self.failed], "groups": self.groups}
        return place if self.begin is None else {**place, "input": self.begin}


class ReducerStep(CallStep):
    """Reads everything, with a state for each key; failures pass, the elements of the keys follow at the end.

    What an input without a fixed order gives when it is run again may be other elements, or have other tickets. So its
    positions list what was folded, and continue behind it.
    """

    def __init__(self, calls: Calls, node: Node) -> None:
        self.calls = calls
        self.input = node
        self.first: Tickets | None = None
        self.states: dict[Any, Any] = {}
        self.failed: list[Ticket] = []
        self.past: set[Ticket] = set()
        self.folded: list[Tickets] = []
        self.last: Tickets = NOTHING
        self.groups = 0

    def resume(self, position: Position) -> Start:
        place = ReducerPosition.of(position)
        self.failed, self.past, self.groups = list(place.failed), set(map(plain, place.failed)), place.groups
        return Start.of(place.begin)

    def need(self, want: int) -> int:
        return AT_ONCE

    def beginning(self) -> Position:
        return None if self.first is None else beginning(self.input, self.first)

    async def feed(self, group: Block) -> Block:
        """Fold pairs of keys and elements; return the failures that were not delivered yet, in their places."""
        self.first = group.tickets if self.first is None else self.first
        found: list[Any] = []
        places: list[int] = []
        good: list[int] = []
        for place, pair in enumerate(group.items):
            failure = pair if type(pair) is Failure else await self.fold(pair, group.tickets[place])
            if failure is None:
                good.append(place)
            elif plain(group.tickets[place]) not in self.past:
                found.append(failure)
                places.append(place)
        tickets = [group.tickets[place] for place in places]
        positions = self.by_failures(tickets) if self.input.in_order else self.by_folded(group.tickets, places, good)
        return Block(found, ExplicitTickets([(FAILED, ticket) for ticket in tickets], positions), True)

    def by_failures(self, tickets: Sequence[Ticket]) -> Callable[[int], Position]:
        """Return the positions after more failures, by all that were delivered."""
        failed, before = self.failed, len(self.failed)
        failed += tickets
        return lambda count: ReducerPosition(failed[: before + count], self.groups, self.beginning()).position()

    def by_folded(self, last: Tickets, places: Sequence[int], good: Sequence[int]) -> Callable[[int], Position]:
        """Return the positions after failures at some places of a block, by what was folded; `good` are the others."""
        folded, before = self.folded, len(self.folded)
        folded.append(FilteredTickets(last, good))
        self.last = last

        def position(count: int) -> Position:
            come = places[count - 1] + 1 if count else 0
            here = FilteredTickets(last, [place for place in good if place < come])
            return behind([*folded[:before], here], last, come, self.groups)

        return position

    async def fold(self, pair: tuple[Any, Any], ticket: Ticket) -> Failure | None:
        """Take one element into the state of its key; if that fails the state stays as it was."""
        key, element = pair
        if key not in self.states:
            first = await await_call(self.calls.init, key, ticket)
            if type(first) is Failure:
                return first
            self.states[key] = first
        state = await await_call(self.calls.reduce, (self.states[key], element), ticket)
        if type(state) is Failure:
            return state
        self.states[key] = state
        return None

    async def flush(self) -> Blocks:
        for number, key in enumerate(in_key_order(self.states)):
            if number >= self.groups:
                yield await self.result(number, key)

    async def result(self, number: int, key: Any) -> Block:
        """Return the element for the state of a key, as a block."""
        made = await await_call(self.calls.finalize, self.states.pop(key), Numbered(number, key))
        if type(made) is Failure:
            made.error.add_note(f"key {key!r:.80}")
        return Block([made], ExplicitTickets([(KEY, number)], self.by_groups(number)), type(made) is Failure)

    def by_groups(self, number: int) -> Callable[[int], Position]:
        """Return the positions before and after the element of a key."""
        failed, folded, last = self.failed, self.folded, self.last
        if self.input.in_order:
            return lambda count: ReducerPosition(failed, number + count, self.beginning()).position()
        return lambda count: behind(folded, last, len(last), number + count)


def behind(folded: Sequence[Tickets], last: Tickets, come: int, groups: int) -> Position:
    """Return the position that repeats what was folded, and continues behind so many elements of the last block."""
    return ReducerPosition((), groups, replaying(last.at(come), folded)).position()


async def await_call(call: Call, item: Any, ticket: Ticket) -> Any:
    """Return the result of a function for an item, or the failure; await it if it is a coroutine function."""
    if call.is_async:
        return await call.run_async(item, ticket)
    try:
        found = call.call_one(item)
    except (Exception, CancelledError) as error:
        return call.failure(error, ticket)
    return (
        found
        if type(found) is not CoroutineType
        else call.refuse([found], ReplayedTickets([ticket], 0, 1, END)).items[0]
    )
