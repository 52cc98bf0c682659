"""sample_from_datasets and choose_from_datasets: elements of several datasets, one of which is chosen for each place.

Which dataset gives sampled element t is a function of the seed, t, and how many datasets had ended by then: a hash of t
against the cumulated weights of those that are left. So it is the same on every machine, and no state is needed but the
books: how many elements each dataset has given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from functools import partial
from operator import index
from typing import Any, Final, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from asyncdata.elements.spec import TensorSpec
from asyncdata.elements.structure import shared_spec
from asyncdata.elements.validation import check_choice, check_flag
from asyncdata.errors import PlanError, ResumeError
from asyncdata.executors.element_rng import Chance, drawn_seed, epoch_key, mixed
from asyncdata.executors.function_call import Call, noted
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import ELSEWHERE, REPLACEABLE, Node, Unary, check_integer, finite, nothing
from asyncdata.graph.stages import Merge, Opener, Produce, yield_to_loop
from asyncdata.options import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.resharding import Resharding
from asyncdata.runtime.tickets import END, NOTHING, FilteredTickets, Position, Start, Ticket, natural
from asyncdata.transforms.concatenate import from_parts
from asyncdata.transforms.mixture_position import MixtureHistory, begun_at
from asyncdata.transforms.mixture_reader import Choices, MixtureReader
from asyncdata.transforms.mixture_shares import resharded_mixture
from asyncdata.transforms.mixture_turns import CostTurns, TurnsPlace, priced
from asyncdata.transforms.mixture_weights import ENDLESS, Schedule, Weights, WeightsByStep, check_weights
from asyncdata.transforms.repeat import Repeat
from asyncdata.transforms.shard import Shard
from asyncdata.transforms.shuffle import Shuffle, ShuffleRepeat

__all__ = ("Choose", "Removed", "Sample")

AT_ONCE: Final = 1024
"""For how many elements datasets are chosen at once, unless more are requested: enough to spread NumPy's overhead."""

NONE: Final = np.zeros(0, np.intp)


class MixPlace(NamedTuple):
    """A position: how far the choices went, the position of each dataset, and which of them have ended."""

    choices: Position
    inputs: Sequence[Position]
    ended: Sequence[int]
    given: Sequence[int]
    """How many elements each dataset has given, as far as the state knows."""

    @staticmethod
    def of(position: Any, name: str, first: Position, count: int, named: bool = False) -> MixPlace:
        """Return the decoded position of so many inputs; `name` is the key of the choices.

        If they are `named`, some may be new: they are the last.
        """
        if position is None:
            return MixPlace(first, [None] * count, [], [0] * count)
        inputs = list[Position](position["inputs"])
        new = count - len(inputs) if named else 0
        given = [*map(natural, position.get("given", [0] * len(inputs)))]
        place = MixPlace(position[name], inputs + [None] * new, position["ended"], given + [0] * new)
        if {len(place.inputs), len(place.given)} != {count} or any(not 0 <= number < count for number in place.ended):
            raise ValueError(f"it does not fit {count} datasets")
        return place


class Chooser(Protocol):
    """Chooses the inputs of the next elements."""

    async def ahead(self, most: int) -> Choices:
        """Return the choices for at most `count` of the next elements; none at the end."""
        ...

    def advance(self, count: int) -> Callable[[int], dict[str, Position]]:
        """Record that so many have been drawn; return a function that gives the position after any number of them."""
        ...

    def drop(self, number: int) -> None:
        """Choose an input that has ended no more."""
        ...


class Sampler:
    """Chooses by a hash of each element's number."""

    def __init__(self, weights: WeightsByStep, key: int, number: int, ended: Sequence[int]) -> None:
        self.weights = weights
        self.key = key
        self.number = number
        self.ended = list(ended)
        self.chosen = NONE

    async def ahead(self, most: int) -> Choices:
        if not len(self.chosen):
            goal = max(most, AT_ONCE) if self.weights.looks_ahead else most
            self.chosen = self.choices(self.number, self.number + goal)
        return self.chosen[:most]

    def choices(self, start: int, stop: int) -> Choices:
        """Return which input each of elements `start` to `stop` comes from, if none ends before; fewer if the weights
        of a later step are none."""
        parts, begin, found = list[Choices](), start, self.weights.at(start)
        while (likely := self.weights.left(found.weights, begin, self.ended, bool(parts))) is not None:
            weights, end = found
            try:
                while end < stop and (found := self.weights.at(end)).weights == weights:
                    end = found.end
            except Exception:  # the turn of this step may never come
                stop = end
            parts.append(self.drawn(likely, begin, min(stop, end)))
            if (begin := end) >= stop:
                break
        return parts[0] if len(parts) == 1 else np.concatenate([NONE, *parts])

    def drawn(self, likely: npt.NDArray[np.float64], start: int, stop: int) -> Choices:
        """Return which input each of some elements comes from, all with the same weights."""
        cumulated = np.cumsum(likely / likely.max())
        hashes = mixed(start, stop, self.key + len(self.ended) & 0xFFFFFFFFFFFFFFFF) >> np.uint64(11)
        spots = hashes * (cumulated[-1] * 2.0**-53)
        found = cast("Choices", np.searchsorted(cumulated, spots, side="right"))
        last: int = np.flatnonzero(likely)[-1]  # if rounding leads beyond it, it is chosen
        return np.minimum(found, last)

    def advance(self, count: int) -> Callable[[int], dict[str, Position]]:
        start, ended = self.number, self.ended
        self.number += count
        self.chosen = self.chosen[count:]
        return lambda done: {"number": start + done, "ended": list(ended)}

    def drop(self, number: int) -> None:
        self.ended = [*self.ended, number]
        self.chosen = NONE


class Follower:
    """Chooses by the elements of another dataset; an invalid choice is a failure in its element's place."""

    def __init__(self, source: Blocks, demand: Demand, place: MixPlace, draws: MixtureReader) -> None:
        self.source = source
        self.demand = demand
        self.inputs = len(place.inputs)
        self.draws = draws
        self.ended = list(place.ended)
        self.read = Block([], NOTHING)
        self.chosen = NONE
        self.places = NONE

    async def ahead(self, most: int) -> Choices:
        while not len(self.chosen) and len(self.ended) < self.inputs:
            self.demand.items = most
            block = await anext(self.source, None)
            if block is None:
                break
            self.hold(block)
            if not len(self.chosen):
                await yield_to_loop()
        return self.chosen[:most]

    def hold(self, block: Block) -> None:
        """Take up a block of choices."""
        self.read, self.places = block, np.arange(len(block))
        chosen = choices_at_once(block, self.inputs)
        if chosen is None:
            found = choices_one_by_one(block, self.inputs)
            refused = [place for place, one in enumerate(found) if isinstance(one, Failure)]
            failures = [found[place] for place in refused]
            self.draws.put(self.inputs, Block(failures, FilteredTickets(block.tickets, refused), True))
            chosen = np.array([self.inputs if isinstance(one, Failure) else one for one in found], np.intp)
        self.chosen = chosen
        if self.ended:
            self.select(~np.isin(chosen, self.ended))

    def select(self, mask: npt.NDArray[np.bool_]) -> None:
        self.chosen, self.places = self.chosen[mask], self.places[mask]

    def advance(self, count: int) -> Callable[[int], dict[str, Position]]:
        tickets, places, ended = self.read.tickets, self.places, self.ended
        self.chosen, self.places = self.chosen[count:], self.places[count:]

        def place(done: int) -> dict[str, Position]:
            used = int(places[done - 1]) + 1 if done else int(places[0])
            return {"choices": tickets.at(used), "ended": list(ended)}

        return place

    def drop(self, number: int) -> None:
        self.ended = [*self.ended, number]
        self.select(self.chosen != number)
        if len(self.ended) == self.inputs:
            self.chosen = NONE


def choices_at_once(block: Block, inputs: int) -> Choices | None:
    """Return a block's choices if all are sound."""
    if block.failed:
        return None
    try:
        numbers = np.array(block.items)
    except Exception:  # also errors of an element's own methods; found one by one
        return None
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or (numbers < 0).any() or (numbers >= inputs).any():
        return None
    return numbers.astype(np.intp)


def choices_one_by_one(block: Block, inputs: int) -> list[int | Failure]:
    """Return each choice of a block, or why it is none."""
    pairs = zip(block.items, block.tickets, strict=True)
    return [item if type(item) is Failure else choice(item, inputs, ticket) for item, ticket in pairs]


def choice(item: Any, inputs: int, ticket: Ticket) -> int | Failure:
    """Return a choice as a number, or a failure if it is none of an input."""
    try:
        return checked_choice(item, inputs)
    except Exception as error:  # also errors of its own `__index__`
        return noted(error, "choose_from_datasets", ticket)


def checked_choice(item: Any, inputs: int) -> int:
    """Return a choice as a number; an error if it is none of an input."""
    try:
        number = index(item)
    except TypeError:
        raise TypeError(f"a choice must be an integer, got {type(item).__name__}: {item!r:.60}") from None
    if not 0 <= number < inputs:
        raise IndexError(f"there is no dataset {number} among {inputs}")
    return number


async def refused(source: Blocks, inputs: int) -> Blocks:
    """Yield why each of these choices is none."""
    async with aclosing(source):
        async for block in source:
            yield Block(choices_one_by_one(block, inputs), block.tickets, True)


async def mixture(
    draws: MixtureReader, chooser: Chooser, history: MixtureHistory, want: Demand, *, stop: bool
) -> Blocks:
    """Draw elements as they are chosen, until the choices end; or with `stop` until an input has ended."""
    while len(chosen := await chooser.ahead(draws.draw_count(want))):
        drawn = await draws.draw(chosen)
        if drawn.items:
            count = len(drawn.items)
            yield Block(drawn.items, history.note(chosen[:count], drawn, chooser.advance(count)), drawn.failed)
        if drawn.ended is not None:
            if stop:
                return
            chooser.drop(drawn.ended)
            await yield_to_loop()


async def mixture_in_turn(
    draws: MixtureReader, turns: CostTurns, history: MixtureHistory, want: Demand, *, stop: bool
) -> Blocks:
    """Draw elements by their costs, until all inputs have ended; or with `stop` until one has."""
    while same := turns.begin():
        chosen, drawn = await draws.draw_in_turn(turns, min(draws.draw_count(want), same), want)
        if drawn.items:
            yield Block(drawn.items, history.note(chosen, drawn, turns.positions()), drawn.failed)
        if drawn.ended is not None:
            if stop:
                return
            turns.drop(drawn.ended)
            await yield_to_loop()


def drawing(
    scope: Scope,
    inputs: Sequence[Opener],
    begins: Sequence[Position],
    stack: AsyncExitStack,
    names: Sequence[str] = (),
) -> MixtureReader:
    scope = scope.sharing_threads(len(inputs))

    def open_input(number: int, want: Demand) -> Blocks:
        return inputs[number](scope, want, Start.of(begins[number]))

    return MixtureReader(open_input, list(map(begun_at, begins)), stack, names)


@dataclass(frozen=True, eq=False)
class Removed(Node):
    """A dataset of a mixture that is no longer there: the state keeps where it was, in case it comes back."""

    name: str
    words: tuple[str, ...] = field(metadata=ELSEWHERE)
    """Its steps, as they are in a state; and the seeds and shares of some of these."""
    seeds: tuple[tuple[int, int], ...] = field(default=(), metadata=ELSEWHERE)
    shares: tuple[tuple[int, int, int], ...] = field(default=(), metadata=ELSEWHERE)

    def label(self) -> str:
        return f"removed({self.name!r})"

    @property
    def cardinality(self) -> int:
        return 0

    def stage(self) -> Produce:
        return Produce(lambda scope, want, position: nothing(), waits=False)

    def check_back(self, scope: Scope, start: Start) -> None:
        """Do nothing: `fetch` refuses."""

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        raise ResumeError(
            f"the dataset {self.name!r} is no longer there, and the state has elements of it that were read and not "
            "delivered: give it weight 0 until they are delivered, and remove it then"
        )


@dataclass(frozen=True, eq=False)
class Sample(Node):
    """Elements of several inputs, one of which is drawn by weight for each place."""

    nodes: tuple[Node, ...]
    weights: Weights = field(metadata=REPLACEABLE)
    seed: int = field(metadata=ELSEWHERE)
    stop: bool = field(default=False, repr=False)
    rerandomize: bool = field(default=False, repr=False)
    drawn: bool = field(default=False, metadata=ELSEWHERE)
    names: tuple[str, ...] = ()
    schedule: Schedule = field(default=None, repr=False, metadata=REPLACEABLE)
    """How the weights change with the number of elements."""
    cost: Call | None = field(default=None, repr=False, metadata=REPLACEABLE)
    """What an element counts: weights are of the sums of that."""
    replaced: tuple[Weights, Schedule] | None = field(default=None, repr=False, metadata=ELSEWHERE)
    """If `set_weights` has set the weights of a run: those of the program, with which the next epoch begins."""

    @staticmethod
    def of(
        plans: tuple[Node, ...],
        weights: Any,
        seed: int | None,
        *,
        stop: bool,
        rerandomize: bool | None,
        names: tuple[str, ...] = (),
        cost: Callable[..., Any] | None = None,
    ) -> Sample:
        """Return the node; without a seed one is drawn."""
        method = "sample_from_datasets"
        chosen = drawn_seed() if seed is None else check_integer(method, "seed", seed)
        stop = check_flag(method, "stop_on_empty_dataset", stop)
        rerandomize = bool(check_choice(method, "rerandomize_each_iteration", rerandomize))
        most, schedule = check_weights(weights, names, len(plans))
        call = None if cost is None else Call(method, cost)
        if call is not None and call.is_async:
            raise PlanError(f"{method}(cost=) must be a plain function: {call.name} is a coroutine function")
        return Sample(plans, most, chosen, stop, rerandomize, seed is None, names, schedule, call)

    @property
    def chance(self) -> Chance:
        return Chance(self.seed, self.drawn)

    @property
    def cardinality(self) -> int:
        sizes = [node.cardinality for node, weight in zip(self.nodes, self.weights, strict=True) if weight]
        if len(sizes) == 1:
            return sizes[0]
        if self.stop:
            return INFINITE_CARDINALITY if all(size == INFINITE_CARDINALITY for size in sizes) else UNKNOWN_CARDINALITY
        if INFINITE_CARDINALITY in sizes:
            return INFINITE_CARDINALITY
        return sum(sizes) if all(map(finite, sizes)) else UNKNOWN_CARDINALITY

    @property
    def present(self) -> list[int]:
        """The places of the inputs that have not been removed."""
        return [place for place, node in enumerate(self.nodes) if not isinstance(node, Removed)]

    @property
    def signature(self) -> Any:
        return shared_spec([self.nodes[place].signature for place in self.present])

    def label(self) -> str:
        """Return the node without its weights: a run may continue with others."""
        names = f": {', '.join(map(repr, self.names))}" if self.names else ""
        cost = "" if self.cost is None else f", cost={self.cost.name.partition('(')[2][:-1]}"
        return f"sample_from_datasets({len(self.nodes)} datasets{names}{cost})"

    def stage(self) -> Merge:
        return Merge(self.blocks, waits=False)

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        def opened(number: int, inner: Demand, start: Start) -> Blocks:
            return self.nodes[number].open(scope, inner, start)

        return from_parts(opened, want, tickets, len(self.nodes))

    def reshard(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        if self.stop and END in positions:
            raise ResumeError(
                f"{self.label()}: one share has ended because a dataset of it has, while others have not, so the rest "
                "cannot be divided: change the number of shares before, or at the end of the epoch"
            )
        by_cost = self.cost is not None
        return resharded_mixture(self.label(), self.nodes, self.names, positions, resharding, by_cost=by_cost)

    def blocks(self, scope: Scope, inputs: Sequence[Opener], want: Demand, position: Position) -> Blocks:
        place = MixPlace.of(position, "number", 0, len(inputs), bool(self.names))
        key = epoch_key(self.seed, scope.epoch if self.rerandomize else ())
        weights = WeightsByStep(self.weights, self.schedule, self.names, self.present)
        number = natural(place.choices)
        if number >= ENDLESS:
            raise ValueError(f"there is no element {number}")
        if self.cost is None:
            return self.draws(scope, inputs, want, place, Sampler(weights, key, number, place.ended))
        ranks: list[int] = mixed(0, len(inputs), key).tolist()
        turns = CostTurns(weights, ranks, number, place.ended, TurnsPlace.of(position, len(inputs)))
        return self.draws(scope, inputs, want, place, turns)

    async def draws(
        self, scope: Scope, inputs: Sequence[Opener], want: Demand, place: MixPlace, chooser: Sampler | CostTurns
    ) -> Blocks:
        """Draw until all inputs have ended."""
        async with AsyncExitStack() as stack:
            draws = drawing(scope, inputs, place.inputs, stack, self.names)
            history = MixtureHistory(draws, place.given, self.nodes, counted=True)
            names = self.names or [str(number) for number in range(len(inputs))]
            repeated = {number: partial(draws.turn, number) for number, node in enumerate(self.nodes) if repeats(node)}
            cost = chooser.cost if isinstance(chooser, CostTurns) else ()
            scope.meter.sources = names, history.given, cost, repeated
            if isinstance(chooser, Sampler):
                blocks = mixture(draws, chooser, history, want, stop=self.stop)
            else:
                assert self.cost is not None
                draws.price = partial(priced, self.cost)
                blocks = mixture_in_turn(draws, chooser, history, want, stop=self.stop)
            async with aclosing(blocks) as drawn:
                async for block in drawn:
                    yield block


def repeats(node: Node) -> bool:
    """Return whether the tickets of a dataset's elements begin with the number of its repetition."""
    while isinstance(node, Unary):
        if isinstance(node, (Repeat, ShuffleRepeat)):
            return not node.preserves_tickets
        if not (node.preserves_tickets or isinstance(node, (Shuffle, Shard))):
            return False
        node = node.input
    return False


@dataclass(frozen=True, eq=False)
class Choose(Node):
    """Elements of several inputs, in the order in which those of another one name them."""

    choices: Node
    nodes: tuple[Node, ...]
    stop: bool = field(default=True, repr=False)

    @staticmethod
    def of(nodes: tuple[Node, ...], choices: Node, *, stop: bool) -> Choose:
        """Return the node; `PlanError` if choices are known not to be integers."""
        spec = choices.signature
        if spec is not None and not is_integer(spec):
            raise PlanError(f"choose_from_datasets(choice_dataset=) must give integers, but its elements are {spec}")
        return Choose(choices, nodes, check_flag("choose_from_datasets", "stop_on_empty_dataset", stop))

    @property
    def cardinality(self) -> int:
        if not self.choices.cardinality:
            return 0
        endless = all(node.cardinality == INFINITE_CARDINALITY for node in self.nodes)
        return self.choices.cardinality if endless else UNKNOWN_CARDINALITY

    @property
    def signature(self) -> Any:
        return shared_spec([node.signature for node in self.nodes])

    def label(self) -> str:
        return f"choose_from_datasets({len(self.nodes)} datasets)"

    def stage(self) -> Merge:
        return Merge(self.blocks, waits=False)

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        count = len(self.nodes)

        def opened(number: int, inner: Demand, start: Start) -> Blocks:
            if number < count:
                return self.nodes[number].open(scope, inner, start)
            return refused(self.choices.open(scope, inner, start), count)

        return from_parts(opened, want, tickets, count + 1)

    def blocks(self, scope: Scope, inputs: Sequence[Opener], want: Demand, position: Position) -> Blocks:
        return self.draws(scope, inputs, want, MixPlace.of(position, "choices", None, len(self.nodes)))

    async def draws(self, scope: Scope, inputs: Sequence[Opener], want: Demand, place: MixPlace) -> Blocks:
        """Draw until the choices are at their end; choices that cannot be are the elements of one more input."""
        choices, *rest = inputs
        async with AsyncExitStack() as stack:
            demand = Demand()
            source = await stack.enter_async_context(aclosing(choices(scope, demand, Start.of(place.choices))))
            draws = drawing(scope, rest, [*place.inputs, None], stack)
            chooser = Follower(source, demand, place, draws)
            history = MixtureHistory(draws, [0] * (len(rest) + 1), self.nodes)
            async with aclosing(mixture(draws, chooser, history, want, stop=self.stop)) as drawn:
                async for block in drawn:
                    yield block


def is_integer(spec: Any) -> bool:
    """Return whether elements are integers, as far as their spec shows."""
    return isinstance(spec, TensorSpec) and spec.shape == () and np.dtype(spec.dtype).kind in "iu"
