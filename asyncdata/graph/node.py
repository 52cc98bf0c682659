"""Node: one transformation of an immutable tree, the facts about it that rules may use, and how it is drawn."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, ClassVar, Final, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

from asyncdata.errors import PlanError, ResumeError
from asyncdata.executors.element_rng import Chance
from asyncdata.executors.function_call import Call, describe
from asyncdata.executors.scope import Scope
from asyncdata.graph.stages import Stage
from asyncdata.options import AUTOTUNE, INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, Options
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.meter import metered
from asyncdata.runtime.resharding import Resharding, Share, replaying_tickets
from asyncdata.runtime.source_state import has_offset
from asyncdata.runtime.tickets import END, FRESH, Position, ReplayedTickets, Start, Ticket, Tickets, plain

__all__ = (
    "ELSEWHERE",
    "EVERYTHING",
    "PHYSICAL",
    "REPLACEABLE",
    "Node",
    "OneForOne",
    "PlaceBelow",
    "Planned",
    "StateFree",
    "Unary",
    "UnseekableError",
    "another",
    "beginning",
    "check_arguments",
    "check_called",
    "check_count",
    "check_integer",
    "check_parallel",
    "finite",
    "in_turn",
    "node_of",
    "nodes_of",
    "nothing",
    "parallel_label",
    "regrouped",
    "render",
    "repeated",
    "repeated_ones",
    "scaled",
    "shuffles",
    "snake_case",
)

P = TypeVar("P")

EVERYTHING: Final = 1 << 31
"""A buffer of this size holds the entire input."""

PHYSICAL: Final = {"counts": "never"}
"""Metadata of a field on which no element depends: how many threads work, how far is read ahead."""

ELSEWHERE: Final = {"counts": "elsewhere"}
"""Metadata of a field that is compared by other means: seeds, shares, paths."""

REPLACEABLE: Final = {"counts": "stored"}
"""Metadata of a field that may change before a run resumes from a state, but not for stored elements: functions, data
in memory, and arguments that are documented as free to change."""


class UnseekableError(Exception):
    """The place of an element is known only by reading; never seen by users."""


@dataclass(frozen=True, eq=False)
class Node:
    """One step of a pipeline. Identity is equality; whatever starts or remembers something lives in its stage."""

    may_be_unordered: ClassVar[bool] = False
    """Whether its position may be one without a fixed order."""
    sealed: ClassVar[bool] = False
    """Whether its input must run as it was built, since a file describes it; rules do not change that."""
    splits_elements: ClassVar[bool] = False
    """Whether it gives several elements for each one, which is best read while the one before is split."""
    shuffles: ClassVar[bool] = False
    """Whether it gives all elements of its input, once, in a drawn order."""
    retains_elements: ClassVar[bool] = False
    """Whether it holds elements of its input for long; these should not be in memory that is reused soon."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes that this one reads, in the order of its fields."""
        found: list[Node] = []
        for name in names_of(type(self)):
            value = getattr(self, name)
            if isinstance(value, Node):
                found.append(value)
            elif isinstance(value, tuple):
                found.extend(part for part in value if isinstance(part, Node))  # pyright: ignore[reportUnknownVariableType]
        return tuple(found)

    def with_inputs(self, *inputs: Node) -> Self:
        """Return this node reading `inputs` instead."""
        rest = iter(inputs)
        changed: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Node):
                changed[field.name] = next(rest)
            elif isinstance(value, tuple) and any(isinstance(part, Node) for part in value):  # pyright: ignore[reportUnknownVariableType]
                changed[field.name] = tuple(rest)
        return dataclasses.replace(self, **changed)

    def over(self, *inputs: Node) -> Self:
        """Return this node over inputs with other elements, without the elements that it has cached."""
        return self.with_inputs(*inputs)

    def stage(self) -> Stage:
        """Return how this node runs."""
        raise NotImplementedError

    def open(self, scope: Scope, want: Demand, start: Start = FRESH) -> Blocks:
        """Start to run the pipeline up to this node."""
        if start is FRESH:  # as an inner pipeline mostly is, one for each element
            return self.run(scope, want, start)
        if start.skip:
            return self.skip_then_run(scope, want, start)
        if not self.preserves_tickets and not self.may_be_unordered:
            start = start.within()
        if start.back and not self.preserves_tickets:
            return self.replay_then_run(scope, want, start)
        return self.run(scope, want, start) if start.back or start.position != END else nothing()

    def at_once(self, most: int) -> Iterator[Block] | None:
        """Return all elements of a new run without running it, if it reads at most so many elements in memory and calls
        no function of the user's; else `None`. For small pipelines inside others, where a run costs more.
        """
        return None

    def run(self, scope: Scope, want: Demand, start: Start) -> Blocks:
        """Run from a position on, which only a transparent node's inputs may have to give something before."""
        meter = scope.meters.steps.get(self)
        if meter is None:  # of a pipeline inside a step: its work is that step's
            return self.open_stage(self.stage(), scope.with_meter(scope.meter.within), want, start)
        if (stage := self.stage()).counts:
            return self.open_stage(stage, scope.with_meter(meter), want, start)
        return metered(self.open_stage(stage, scope.with_meter(meter.within), want, start), meter, not self.inputs)

    def open_stage(self, stage: Stage, scope: Scope, want: Demand, start: Start) -> Blocks:
        """Start a stage over the inputs, from a position on."""
        inputs = [node.open for node in self.inputs]
        if start.position is None:
            return stage.open(scope, inputs, want, start)
        return self.parse_position(start.position, lambda _: stage.open(scope, inputs, want, start))

    def parse_position(self, position: Position, parse: Callable[[Any], P]) -> P:
        """Return `parse(position)`; `ResumeError` if the position does not have the form of this node's."""
        try:
            return parse(position)
        except (TypeError, ValueError, LookupError, AttributeError, OverflowError, RecursionError) as error:
            if position is None or isinstance(error, ResumeError):
                raise
            raise ResumeError(
                f"{self.label()}: the state's position {position!r:.80} does not fit this step: the state is of "
                "another pipeline, or damaged; start without it"
            ) from error

    async def skip_then_run(self, scope: Scope, want: Demand, start: Start) -> Blocks:
        """Skip the first elements, if only reading them shows where they end."""
        skip = start.skip
        async with aclosing(self.open(scope, want, dataclasses.replace(start, skip=0))) as source:
            async for block in source:
                if len(part := block.after_skip(skip)):
                    yield part
                skip = max(0, skip - len(block))

    async def replay_then_run(self, scope: Scope, want: Demand, start: Start) -> Blocks:
        """Yield the elements that were read and not delivered, then run from the position on."""
        async with aclosing(self.again(scope, want, start)) as source:
            async for block in source:
                yield block
        if start.position != END:
            async with aclosing(self.run(scope, want, Start(start.position))) as source:
                async for block in source:
                    yield block

    async def again(self, scope: Scope, want: Demand, start: Start) -> Blocks:
        """Yield the elements that were read and not delivered; all of them must still be there."""
        done, meter = 0, None if self.inputs else scope.meters.steps.get(self)
        self.check_back(scope, start)
        found = self.fetch(scope, want, start.back)
        async with aclosing(found if meter is None else metered(found, meter, leaf=True)) as source:
            async for block in source:
                tickets = ReplayedTickets(start.back, done, done + len(block), start.position)
                done += len(block)
                yield block.ticketed(tickets)
        if done != len(start.back):
            raise self.lost(start.back[done])

    def lost(self, ticket: Ticket) -> ResumeError:
        """Return the error for an element to be given again that is not there."""
        return ResumeError(
            f"{self.label()}: {describe(ticket)} existed when the state was saved, and does not exist now"
        )

    def check_back(self, scope: Scope, start: Start) -> None:
        """Raise `ResumeError` if an element that must be given again cannot have been read before the position."""
        limit = self.read_before(start.position)
        if not self.inputs and finite(self.cardinality):
            limit = self.cardinality if limit is None else min(limit, self.cardinality)
        if limit is None:
            return
        for number in start.back:
            if isinstance(number, int) and not 0 <= number < limit:
                raise ResumeError(
                    f"{self.label()}: the state says that element {number} was read, but only {limit} were before the "
                    "position where it resumes (the state is damaged; start without it)"
                )

    def read_before(self, position: Position) -> int | None:
        """Return how many elements were read before a position, whose tickets are their ordinals; `None` if unknown."""
        return None

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Yield exactly the elements with these tickets, in this order."""
        raise NotImplementedError

    def resharded(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        """Return where one share resumes, of the elements left by shares that stopped at these positions."""
        starts = [Start.of(position) for position in positions]
        if any(start.skip for start in starts):
            raise ResumeError("a state taken right after skip() cannot be merged with others; read one element first")
        back = resharding.own_part([ticket for start in starts for ticket in start.back])
        inner = [start.position for start in starts]
        return replaying_tickets(END if set(map(repr, inner)) == {repr(END)} else self.reshard(inner, resharding), back)

    def reshard(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        """Divide the rest of the data, where all elements read were delivered and some share is not at its end."""
        raise ResumeError(
            f"{self.label()} after shard() counts or holds the elements of one share, so the number of shares cannot "
            "change; put it before shard(), or change the number at the end of an epoch"
        )

    @property
    def share(self) -> Share | None:
        """Which of how many shares this node takes; it is part of a state."""
        return None

    @property
    def own_order(self) -> str:
        """Why each process reads other elements, or in another order, so that `shard` cannot divide them by number."""
        return ""

    def divided(self, share: Share) -> Node | None:
        """Return a source that gives a share of its elements by itself; `None` if they are divided by number."""
        return None

    @property
    def shared(self) -> bool:
        """Whether it gives one of several shares."""
        return self.share is not None or any(node.shared for node in self.inputs)

    def seek(self, count: int) -> Position:
        """Return the position after the first `count` elements, without reading them; else `UnseekableError`.

        Where elements fail, a batch has as many as if they had not.
        """
        raise UnseekableError(self.label())

    @property
    def may_grow(self) -> bool:
        """Whether its source may have more elements later, which a run from a state at its end gives."""
        return any(node.may_grow for node in self.inputs)

    @property
    def source_fails(self) -> bool:
        """Whether `seek` may leave out the failure of a source, which skipping must not."""
        return False

    @property
    def stores_elements(self) -> bool:
        """Whether it stores the elements of its input for later runs, also of datasets with other options."""
        return self.sealed

    @property
    def chance(self) -> Chance | None:
        """The seed of a node that has one; it is part of a state."""
        return None

    def with_seed(self, seed: int) -> Self:
        return dataclasses.replace(self, seed=seed)

    @property
    def random_access(self) -> bool:
        """Whether element i can be had without those before it: `address` gives its ticket, `fetch` the element."""
        return False

    def address(self, places: Sequence[int]) -> Sequence[Ticket]:
        """Return the tickets of the elements at these places, of an addressable node."""
        raise NotImplementedError

    @property
    def preserves_tickets(self) -> bool:
        """Whether each of its elements has the ticket of its input element, and the node has no state."""
        return False

    @property
    def gives_all(self) -> bool:
        """Whether its elements are those of a source from the first on, one for one."""
        return not self.inputs

    @property
    def elementwise(self) -> bool:
        """Whether output i depends on input i alone, and its function may be called in any order or not at all."""
        return False

    @property
    def dataset_function(self) -> Call | None:
        """The function that makes datasets of its elements, whose steps are not in the plan; `None` for most nodes."""
        return None

    @property
    def exclusion(self) -> Sequence[Mapping[str, Any]]:
        """The records that it leaves out, though the plan in a state does not say so."""
        return ()

    @property
    def left_out(self) -> Callable[[Ticket], bool] | None:
        """Which elements are not there, of those that its input has; `None` if all are."""
        return None

    def settled(self, options: Options, numbered: bool) -> Self:
        """Return the node with what the options leave open filled in; `numbered` if a step after it divides shares."""
        return self

    def repeated_as_one(self, count: int) -> Node | None:
        """Return a node that gives its elements `count` times faster than `repeat` after it; `None` if none does."""
        return None

    @property
    def holds(self) -> int:
        """How many elements of its input it holds at most: read, but not part of its output yet."""
        return 0

    def batched(self, read: float) -> float:
        """Return how many elements of its input are in one of its own, having read so many for each; 1 if it makes and
        splits no batches."""
        return 1.0

    @property
    def in_order(self) -> bool:
        """Whether the order of its elements does not depend on which is ready first."""
        return all(node.in_order for node in self.inputs)

    @property
    def repeatable(self) -> bool:
        """Whether running it again in the same epoch gives the same elements in the same order."""
        return self.in_order and all(node.repeatable for node in self.inputs)

    @property
    def waits(self) -> bool:
        """Whether it may wait for anything but its inputs, also to fetch elements: see `Stage.waits`."""
        return self.stage().waits

    @property
    def needs_loop(self) -> bool:
        """Whether it needs an event loop in a thread of its own, where it may also block while it waits."""
        return self.waits

    @property
    def reads_elsewhere(self) -> bool:
        """Whether another machine must be asked before there is a first element, which takes a while."""
        return any(node.reads_elsewhere for node in self.inputs)

    @property
    def once(self) -> bool:
        """Whether it can be run only once, because a source is an iterator."""
        return any(node.once for node in self.inputs)

    @property
    def process_bound_reason(self) -> str | None:
        """Why it cannot run in another process, and what could; `None` if it can, as far as its parts can be
        pickled."""
        return None

    @property
    def cardinality(self) -> int:
        """How many elements come out; `INFINITE_CARDINALITY` or `UNKNOWN_CARDINALITY` where that is no number."""
        return UNKNOWN_CARDINALITY

    @property
    def signature(self) -> Any:
        """The structure of elements, as `TensorSpec`s; `None` if only an element shows it."""
        return None

    @property
    def identity(self) -> str | None:
        """The text of this node in a state, so that the state is not used with another node; `None` if the node does
        not matter."""
        return self.label()

    @property
    def contents(self) -> tuple[Any, ...]:
        """The fields that stored elements depend on: all but the inputs, unless their metadata say otherwise."""
        return tuple([getattr(self, name) for name in counted_names(type(self), "stored") if not self.is_input(name)])

    @property
    def unlabelled(self) -> dict[str, Any]:
        """The part of a state's plan that the text leaves out: fields that the label does not show.

        Functions are compared by their names, but for the arguments that this package has put into them.
        """
        names = [name for name in counted_names(type(self), "state") if not self.is_input(name)]
        return {name: getattr(self, name) for name in names}

    def is_input(self, name: str) -> bool:
        """Return whether a field is an input, or several."""
        value: Any = getattr(self, name)
        return isinstance(value, Node) or (isinstance(value, tuple) and any(isinstance(part, Node) for part in value))  # pyright: ignore[reportUnknownVariableType]

    def difference(self, words: str) -> str:
        """Return how this node differs from its text in a state, beyond the text itself; empty if unknown."""
        return ""

    @property
    def resume_note(self) -> str | None:
        """How this node continues from a state, in words; `None` where it continues at the element."""
        return None

    def label(self) -> str:
        """Return the node alone, as it is drawn: its method's name, and arguments without its inputs."""
        parts: list[str] = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.repr and not isinstance(value, Node) and value != field.default and value is not None:
                parts.append(f"{value}" if not parts else f"{field.name}={value}")
        return f"{snake_case(type(self).__name__)}({', '.join(parts)})"

    def __str__(self) -> str:
        return render(self)


def snake_case(name: str) -> str:
    """Return the name of a class as that of its method: MovingAverage is moving_average."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class PlaceBelow(NamedTuple):
    """The input's part of a node's position: the input's position, and how many elements were read there."""

    position: Position
    read: int = 0
    exactly: bool = False
    """Whether no more had been read than that."""


@dataclass(frozen=True, eq=False)
class Unary(Node):
    """A node with one input. By default it gives the same number of elements, unchanged."""

    input: Node

    @property
    def inputs(self) -> tuple[Node]:
        return (self.input,)

    @property
    def cardinality(self) -> int:
        return self.input.cardinality

    @property
    def signature(self) -> Any:
        return self.input.signature

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        start = Start(END, tickets)
        return self.run(scope, want, start) if self.preserves_tickets else self.input.open(scope, want, start)

    def reshard(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        if self.preserves_tickets:
            return self.input.resharded(positions, resharding)
        return super().reshard(positions, resharding)

    def check_back(self, scope: Scope, start: Start) -> None:
        if self.preserves_tickets:
            self.input.check_back(scope, start.within())
        else:
            super().check_back(scope, start)

    def read_before(self, position: Position) -> int | None:
        return self.input.read_before(position) if self.preserves_tickets else None

    def place_below(self, position: Position) -> PlaceBelow | None:
        """Return the input's part of a position; `None` if it is not checked."""
        return PlaceBelow(position) if self.preserves_tickets else None


async def nothing() -> Blocks:
    """Yield nothing."""
    for block in ():
        yield block


def shuffles(plan: Node) -> str:
    """Return advice for a plan that has no random access because it shuffles already."""
    if plan.label().startswith("shuffle("):
        return "; it is shuffled already (list_files does so unless shuffle=False)"
    return shuffles(plan.inputs[0]) if plan.inputs else ""


async def picked(
    node: Node,
    scope: Scope,
    want: Demand,
    tickets: Sequence[Ticket],
    start: Start = FRESH,
    check: Callable[[Block, Sequence[Ticket]], None] = lambda block, tickets: None,
) -> Blocks:
    """Yield the elements with these tickets, in this order; the node is run from `start` until all are there.

    `check` raises if a block has other elements than those that had these tickets.
    """
    found: dict[Ticket, Any] = {}
    wanted = {plain(ticket) for ticket in tickets}
    async with aclosing(node.run(scope, Demand(1024), start)) as source:
        while len(found) < len(wanted):
            block = await anext(source, None)
            if block is None:
                break
            check(block, tickets)
            pairs = zip(map(plain, block.tickets), block.items, strict=True)
            found.update((ticket, item) for ticket, item in pairs if ticket in wanted)
    for block in in_turn(found, tickets, want):
        yield block


def beginning(node: Node, first: Tickets) -> Position:
    """Return where a run of a node from its beginning began, whose first tickets these are.

    That is `None`, except above a file that may be written again in another order, and a source with an offset of its
    own: only a position tells.
    """
    if any(one.sealed for one in nodes_of(node)):
        return first.at(0)
    return None if node.repeatable or not has_offset(position := first.at(0)) else position


def repeated_ones(names: Sequence[Ticket]) -> set[Ticket]:
    """Return the tickets that are there more than once, as those of padding are."""
    return {name for name, times in Counter(names).items() if times > 1}


def another(item: Any) -> Any:
    """Return an isolated item that is used more than once, as by windows: a failure is raised each time."""
    return Failure(item.error, item.of_source) if type(item) is Failure else item


def in_turn(found: Mapping[Ticket, Any], tickets: Sequence[Ticket], want: Demand) -> Iterator[Block]:
    """Yield the elements in `found`, by tickets as `plain` has them, in the order of `tickets`, up to a missing one."""
    done, names = 0, list(map(plain, tickets))
    often = repeated_ones(names)
    while done < len(tickets):
        wanted = names[done : done + want.items]
        there = takewhile(found.__contains__, wanted)
        items = [another(found[name]) if name in often else found[name] for name in there]
        if items:
            yield Block(items, ReplayedTickets(tickets, done, done + len(items), END), Failure in set(map(type, items)))
        if len(items) < len(wanted):
            return
        done += len(items)


@dataclass(frozen=True, eq=False)
class StateFree(Unary):
    """A node that is in no state: its elements have the tickets of its input's."""

    @property
    def identity(self) -> None:
        return None

    @property
    def preserves_tickets(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class OneForOne(Unary):
    """A node that makes one element from each element of its input, with the same ticket."""

    @property
    def random_access(self) -> bool:
        return self.input.random_access and self.in_order

    def address(self, places: Sequence[int]) -> Sequence[Ticket]:
        return self.input.address(places)

    def seek(self, count: int) -> Position:
        return self.input.seek(count)

    @property
    def gives_all(self) -> bool:
        return self.input.gives_all


def nodes_of(plan: Node) -> Iterator[Node]:
    """Return the nodes of a plan, sources first."""
    found, rest = list[Node](), [plan]
    while rest:
        found.append(rest.pop())
        rest.extend(found[-1].inputs)
    return reversed(found)


def render(node: Node) -> str:
    """Draw a plan on one line: `range(10) → map(f) → batch(2)`."""
    inputs = node.inputs
    if not inputs:
        return node.label()
    if len(inputs) == 1:
        return f"{render(inputs[0])} → {node.label()}"
    return f"{node.label().partition('(')[0]}({', '.join(map(render, inputs))})"


@runtime_checkable
class Planned(Protocol):
    """An object with a plan: a `Dataset`, as the lower layers see it."""

    @property
    def plan(self) -> Node:
        """The tree of nodes."""
        ...


@functools.cache
def names_of(kind: type[Node]) -> tuple[str, ...]:
    """Return the names of a node's fields: pipelines are opened for each element of a `flat_map`."""
    return tuple([field.name for field in dataclasses.fields(kind)])


@functools.cache
def counted_names(kind: type[Node], where: str) -> tuple[str, ...]:
    """Return the names of the fields that distinguish nodes: for stored elements, or in a state beyond the label."""
    fields = [(field, field.metadata.get("counts")) for field in dataclasses.fields(kind)]
    if where == "stored":
        return tuple([field.name for field, counts in fields if counts in {None, "stored"}])
    return tuple([field.name for field, counts in fields if not field.repr and counts is None])


def node_of(value: object, call: Call) -> Node:
    """Return the plan of the dataset that a user's function returned."""
    plan = value if isinstance(value, Node) else getattr(value, "plan", None)  # to ask for `Planned` takes microseconds
    if isinstance(plan, Node):
        return plan
    cure = "; wrap it: Dataset.from_iterable(...)" if hasattr(value, "__iter__") else ""
    raise TypeError(f"{call.label} must return a Dataset, got {type(value).__name__}: {value!r:.60}{cure}")


def finite(cardinality: int) -> bool:
    """Return whether a cardinality is a number of elements."""
    return cardinality >= 0


def scaled(cardinality: int, change: Callable[[int], int]) -> int:
    """Return `change(cardinality)` where it is a number, else the cardinality itself."""
    return change(cardinality) if finite(cardinality) else cardinality


def regrouped(cardinality: int) -> int:
    """Return the cardinality after grouping or splitting elements: zero stays zero, and infinite stays infinite."""
    return UNKNOWN_CARDINALITY if cardinality > 0 else cardinality


def check_count(method: str, name: str, value: Any, least: int, special: tuple[int, ...] = ()) -> int:
    """Return `value` as an int that is at least `least` or one of `special`; raise `PlanError` otherwise."""
    try:
        number = value.__index__()
    except (AttributeError, TypeError):  # an array has the method, and refuses
        number = None
    if number is None or value is True or value is False:  # shuffle(True) would be a buffer of one element
        raise PlanError(f"{method}({name}=) must be an integer, got {value!r}")
    if number < least and number not in special:
        raise PlanError(f"{method}({name}=) must be at least {least}, got {number}")
    return number


def check_integer(method: str, name: str, value: Any) -> int:
    """Return `value` as an int; raise `PlanError` if it is none."""
    return check_count(method, name, value, -(1 << 63))


def check_parallel(method: str, calls: int | None) -> None:
    """Raise `PlanError` if `num_parallel_calls` is neither a number of calls, nor AUTOTUNE, nor left open."""
    if calls is not None:
        check_count(method, "num_parallel_calls", calls, 1, (AUTOTUNE,))


def repeated(cardinality: int, count: int) -> int:
    """Return the cardinality of `count` repetitions, forever if -1."""
    if count < 0:
        return INFINITE_CARDINALITY if cardinality else 0
    return scaled(cardinality, lambda size: size * count) if count else 0


def check_arguments(call: Call, plan: Node, **named: Any) -> None:
    """Raise `PlanError` if a function cannot be called with the elements of a plan, if their structure is known."""
    if plan.signature is None or not call.spread:
        return
    elements: Any = plan.signature
    kind: Any = type(elements)  # pyright: ignore[reportUnknownVariableType]
    spread = kind is tuple
    parts: tuple[Any, ...] = elements if spread else (elements,)
    given = f"{len(parts)} arguments, one for each part of a tuple" if spread else "one argument"
    also = "".join(f", and {name}=" for name in named)
    check_called(call, f"{given}{also}", parts, named, f"; elements are {elements}")


def check_called(
    call: Call, given: str, parts: Sequence[Any], named: Mapping[str, Any] | None = None, why: str = ""
) -> None:
    """Raise `PlanError` if a function cannot be called with so many arguments."""
    try:
        signature = inspect.signature(call.fn)
    except (ValueError, TypeError):  # a function in C without a signature
        return
    try:
        signature.bind(*parts, **(named or {}))
    except TypeError as error:
        raise PlanError(f"{call.label} is called with {given}: {error}{why}") from None


def parallel_label(workers: int | None) -> str:
    """Return how a node's label shows its parallelism."""
    if workers is None:
        return ""
    return f", num_parallel_calls={'AUTOTUNE' if workers == AUTOTUNE else workers}"
