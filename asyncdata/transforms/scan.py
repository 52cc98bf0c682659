"""scan: a function of each element and of a state that is carried along."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from operator import index
from types import CoroutineType
from typing import Any, Final, NamedTuple, cast, final

import numpy as np
import numpy.typing as npt

from asyncdata.elements.structure import leaves_of
from asyncdata.errors import ResumeError
from asyncdata.executors.function_call import Call
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import REPLACEABLE, Node, Unary, beginning, check_called, picked
from asyncdata.graph.stages import CallStep, FoldCalls
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.state_values import from_json_value, to_json_value
from asyncdata.runtime.tickets import Position, Start, Ticket, Tickets, TicketWrapper, replaying

__all__ = ("Scan",)

SCALARS: Final = frozenset({type(None), bool, int, float, str, bytes, complex})


@dataclass(frozen=True, eq=False)
class Scan(Unary):
    """The second part of the result of `function(state, element)`; the first is the state for the next element."""

    function: Call = field(metadata=REPLACEABLE)
    initial: Any = field(repr=False)

    @staticmethod
    def of(plan: Node, fn: Callable[[Any, Any], Any], initial: Any) -> Scan:
        """Return the node; `PlanError` if `fn` is no function of a state and an element."""
        call = Call("scan", fn)
        check_called(call, "a state and an element", ("state", "element"))
        return Scan(plan, call, initial)

    def stage(self) -> FoldCalls:
        is_async = self.function.is_async
        return FoldCalls(lambda: ScanStep(self), is_async, one_by_one=is_async)

    @property
    def signature(self) -> None:
        return None

    @property
    def resume_note(self) -> str | None:
        return None if is_serializable(self.initial) else f"{self.label()} is run again from the beginning"

    def label(self) -> str:
        return self.function.name

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        return picked(self, scope, want, tickets)

    def check(self, since: ScanCheckpoint) -> None:
        """Raise if to continue from a place would mean to continue from another one than it was."""
        if not since.known and since.done and (self.input.once or not self.input.in_order):
            raise ResumeError(
                f"{self.label()}: its scan state has other types than numbers, strings, arrays, tuples, lists and "
                "dicts, and its input cannot be read again in the same order; return a state of those types"
            )


class ScanCheckpoint(NamedTuple):
    """A place to resume from, the state there if it can be saved, and how many elements came after it.

    If the state cannot be saved, the place is the start.
    """

    begin: Callable[[], Position]
    done: int = 0
    known: bool = False
    state: Any = None

    @staticmethod
    def of(begin: Callable[[], Position], state: Any) -> ScanCheckpoint | None:
        """Return a place with its state, if that can be saved."""
        return ScanCheckpoint(begin, 0, True, copied(state)) if is_serializable(state) else None

    def then(self, tickets: Tickets, state: Any) -> ScanCheckpoint:
        """Return from where to continue after some more elements."""
        here = ScanCheckpoint.of(lambda: tickets.at(len(tickets)), state)
        return here or self._replace(done=self.done + len(tickets))

    def position(self, done: int, begin: Position) -> Position:
        """Return the position so many elements after this place."""
        return [begin, {"state": to_json_value(self.state)} if self.known else None, done]


@final
class Scanned(TicketWrapper):
    """The tickets of a group; where to resume before and after it."""

    __slots__ = ("after", "before", "node")

    def __init__(self, base: Tickets, before: ScanCheckpoint, after: ScanCheckpoint, node: Scan) -> None:
        super().__init__(base)
        self.before = before
        self.after = after
        self.node = node

    def at(self, count: int) -> Position:
        before, base = self.before, self.base
        if count == len(base):
            self.node.check(self.after)
            return self.after.position(self.after.done, self.after.begin())
        if before.known and not before.done and not self.node.input.in_order:  # the same elements, in this order
            return before.position(count, replaying(base.at(len(base)), [base]))
        self.node.check(before._replace(done=before.done + count))
        return before.position(before.done + count, before.begin())


class ScanStep(CallStep):
    """Carries the state. After each group it can be saved, so that no more than a group is done again."""

    def __init__(self, node: Scan) -> None:
        self.node = node
        self.function = node.function
        self.state: Any = None
        self.since: ScanCheckpoint | None = None
        self.begin: Position = None
        self.saved: dict[str, Any] | None = None
        self.again = 0

    def resume(self, position: Position) -> Start:
        self.begin, self.saved, self.again = place_of(position)
        return Start.of(self.begin)

    def started(self, first: Tickets) -> ScanCheckpoint:
        """Take the state that the run begins with, and return the place to continue from."""
        begin, saved = self.begin, self.saved
        self.state = copied_whole(self.node.initial) if saved is None else from_json_value(saved["state"])
        place = (lambda: beginning(self.node.input, first)) if begin is None else lambda: begin
        return ScanCheckpoint.of(place, self.state) or ScanCheckpoint(place)

    async def feed(self, group: Block) -> Block:
        """Return the function's results for the elements, without those that an earlier run has delivered."""
        before = self.started(group.tickets) if self.since is None else self.since
        found = await self.over(group)
        after = self.since = before.then(group.tickets, self.state)
        again, self.again = self.again, max(0, self.again - len(group))
        block = Block(found, Scanned(group.tickets, before, after, self.node), Failure in set(map(type, found)))
        return block.slice(again, len(group)) if again else block

    async def over(self, group: Block) -> list[Any]:
        """Return the function's results for some elements. One that fails does not change the state."""
        if self.function.is_async:
            return [await self.run_one_async(item, group.tickets[at]) for at, item in enumerate(group.items)]
        return [self.run_one(item, group.tickets, at) for at, item in enumerate(group.items)]

    def run_one(self, item: Any, tickets: Tickets, place: int) -> Any:
        """Return the function's result for one element."""
        if type(item) is Failure:
            return item
        try:
            return self.moved(self.function.fn(self.state, item))
        except (Exception, CancelledError) as error:
            return self.function.failure(error, tickets[place])

    async def run_one_async(self, item: Any, ticket: Ticket) -> Any:
        """Await the function on one element."""
        if type(item) is Failure:
            return item
        pair = await self.function.run_async((self.state, item), ticket)
        try:
            return pair if type(pair) is Failure else self.moved(pair)
        except TypeError as error:
            return self.function.failure(error, ticket)

    def moved(self, pair: Any) -> Any:
        """Store the state from the function's result, and return the element."""
        if type(pair) in (tuple, list) and len(pair) == 2:
            self.state, found = pair
            return found
        if type(pair) is CoroutineType:
            pair.close()
            raise self.function.not_awaited()
        raise TypeError(f"{self.function.label} must return a state and an element, got {pair!r:.80}")


def place_of(position: Any) -> tuple[Position, dict[str, Any] | None, int]:
    """Return a position: the input's, the state there, and how many elements from there on were delivered."""
    begin, saved, again = position
    if saved is not None:
        from_json_value(saved["state"])
    return begin, saved, index(again)


def is_serializable(state: Any) -> bool:
    """Return whether a state can be written down."""
    kind: type[Any] = type(state)  # pyright: ignore[reportUnknownVariableType]
    if kind in SCALARS:
        return True
    if kind is np.ndarray or issubclass(kind, np.generic):
        return state.dtype.kind not in "OTV"
    if kind is dict:
        return all(type(key) in SCALARS for key in state) and all(map(is_serializable, state.values()))
    return kind in (tuple, list) and all(map(is_serializable, state))


def copied(state: Any) -> Any:
    """Return a state that will not be changed."""
    if isinstance(state, np.ndarray):
        return cast("npt.NDArray[Any]", state).copy()
    if isinstance(state, (tuple, list)):
        parts = map(copied, cast("Sequence[Any]", state))
        return tuple(parts) if isinstance(state, tuple) else list(parts)
    if isinstance(state, dict):
        return {key: copied(value) for key, value in cast("dict[Any, Any]", state).items()}
    return state


def copied_whole(value: Any) -> Any:
    """Return a copy of a value, all of it; before NumPy 2.2 its copies of bytes and text lose zeros at the end."""
    return deepcopy(value, {id(one): one for one in characters(value)})


def characters(value: Any) -> list[Any]:
    """Return the bytes and text of NumPy in a value."""
    if isinstance(value, list):
        return [one for part in cast("list[Any]", value) for one in characters(part)]
    leaves = leaves_of(value)
    if len(leaves) == 1 and leaves[0] is value:
        return [value] if isinstance(value, np.character) else []
    return [one for leaf in leaves for one in characters(leaf)]
