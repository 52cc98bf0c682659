"""The replay buffer of `from_channel`: a window of elements, from which each is drawn a number of times.

An element that comes in fills the window. Then elements are drawn until one was drawn `replay` times and leaves; the
next one takes its place. At the end the window is drained. So each element is given `replay` times, and which one is
drawn is a function of the elements before it, the number of the draw and the key alone.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, ClassVar, Final, Generic, Literal, NamedTuple, TypeVar, final

from asyncdata.elements.isolation import isolated
from asyncdata.errors import PlanError
from asyncdata.executors.element_rng import Chance, drawn_seed, epoch_key, mixed
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import ELSEWHERE, REPLACEABLE, Node, Unary, check_count, check_integer, regrouped
from asyncdata.graph.stages import Apply, Fold, Opener, Stage, Step
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.resharding import named
from asyncdata.runtime.tickets import END, ExplicitTickets, Position, Start, Ticket, decode_all, encode_all, natural
from asyncdata.transforms.concatenate import from_parts
from asyncdata.transforms.keyed import Labeller

__all__ = ("ReplayBuffer", "replayed")

SampleFrom = Literal["fifo", "uniform", "priority"]

E = TypeVar("E")

AHEAD: Final = 256
"""So many random numbers are made at once."""


@final
class Priority(Labeller):
    """A user's function that returns the priority of an element."""

    __slots__ = ()

    def label_of(self, found: Any) -> float:
        number = float(found)
        if not 0 <= number < math.inf:
            raise ValueError(f"{self.name} must return a finite number of at least 0, got {found!r:.60}")
        return number


def replayed(plan: Node, sample: object, window: object, replay: object, priority: Any, seed: object) -> Node:
    """Return a source and the replay buffer that the arguments of `from_channel` ask for, if any."""
    method = "from_channel"
    if sample not in ("fifo", "uniform", "priority"):
        raise PlanError(f"{method}(sample=) must be 'fifo', 'uniform' or 'priority', got {sample!r:.80}")
    if window is None and sample != "fifo":
        raise PlanError(f"{method}(sample={sample!r}) needs window=, the number of items that it draws from")
    if (sample == "priority") != (priority is not None) or not (priority is None or callable(priority)):
        raise PlanError(f"{method}: sample='priority' needs priority=, a function of an item, and others take none")
    size = 1 if window is None else check_count(method, "window", window, 1)
    times = check_count(method, "replay", replay, 1)
    if sample == "fifo" and times == 1:
        return plan
    call = None if priority is None else Priority("from_channel_priority", priority)
    number = drawn_seed() if seed is None else check_integer(method, "seed", seed)
    return ReplayBuffer(plan, sample, size, times, call, number, seed is None)


@dataclass(frozen=True, eq=False)
class ReplayBuffer(Unary):
    """Each element `replay` times, drawn from a window of `size`; a failure comes once, in its place."""

    sample: SampleFrom
    size: int
    replay: int
    priority: Priority | None = field(default=None, repr=False, metadata=REPLACEABLE)
    seed: int = field(default=0, repr=False, metadata=ELSEWHERE)
    drawn: bool = field(default=False, repr=False, metadata=ELSEWHERE)

    retains_elements = True

    @property
    def holds(self) -> int:
        return self.size

    @property
    def chance(self) -> Chance | None:
        return None if self.sample == "fifo" else Chance(self.seed, self.drawn)

    @property
    def cardinality(self) -> int:
        return regrouped(self.input.cardinality)  # unknown, as failures come once

    def label(self) -> str:
        return f"from_channel(sample={self.sample}, window={self.size}, replay={self.replay})"

    def stage(self) -> Stage:
        fold = Fold(lambda scope: Replayer(self, epoch_key(self.seed, scope.epoch)))
        return fold if self.priority is None else PrioritizedStage(fold, self.priority)

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        return from_parts(lambda _, inner, start: self.elements(scope, inner, start), want, tickets)

    async def elements(self, scope: Scope, want: Demand, start: Start) -> Blocks:
        """Yield elements of the input, each once; one without a priority fails again."""
        call = self.priority
        inner = self.input.open(scope, want, start)
        if call is not None:
            inner = Apply((call,)).open(scope, [self.input.open], want, start)
        async with aclosing(inner) as source:
            async for block in source:
                items = block.items if call is None else [unlabelled(pair) for pair in block.items]
                yield Block(items, block.tickets, block.failed)


def unlabelled(pair: Any) -> Any:
    return pair if type(pair) is Failure else pair[1]


@dataclass(frozen=True)
class PrioritizedStage:
    """Computes priorities, then draws."""

    fold: Fold
    priority: Priority
    counts: ClassVar[bool] = False

    @property
    def waits(self) -> bool:
        return self.priority.is_async

    def open(self, scope: Scope, inputs: Sequence[Opener], want: Demand, start: Start) -> Blocks:
        def labelled(inner: Scope, demand: Demand, begin: Start) -> Blocks:
            return Apply((self.priority,)).open(inner, inputs, demand, begin)

        return self.fold.open(scope, [labelled], want, start)


class Window(Generic[E]):
    """Some entries, the oldest first, and how often each was given."""

    def __init__(self, entries: Sequence[E], given: Sequence[int], replay: int, in_turn: bool) -> None:
        self.entries = [*entries]
        self.given = [*given]
        self.replay = replay
        self.in_turn = in_turn
        """Whether an entry that was given goes behind the others."""

    def add(self, entry: E) -> None:
        self.entries.append(entry)
        self.given.append(0)

    def draw(self, place: int) -> tuple[E, int]:
        """Give an entry once more; return it, and how often it was given before."""
        entry, before = self.entries[place], self.given[place]
        self.given[place] = before + 1
        if self.in_turn or before + 1 == self.replay:
            del self.entries[place], self.given[place]
            if before + 1 < self.replay:
                self.entries.append(entry)
                self.given.append(before + 1)
        return entry, before


class Journal:
    """The tickets in the window at some time, and what was added and drawn since: so the window at each time."""

    def __init__(self, window: Window[Entry]) -> None:
        self.replay, self.in_turn = window.replay, window.in_turn
        self.tickets, self.given = [entry.ticket for entry in window.entries], [*window.given]
        self.changes: list[tuple[bool, Any]] = []
        """Each is a ticket that came, or a place that was drawn."""

    def at(self, count: int) -> Window[Ticket]:
        """Return the window after so many changes."""
        window = Window[Ticket](self.tickets, self.given, self.replay, self.in_turn)
        for drawn, change in self.changes[:count]:
            window.draw(change) if drawn else window.add(change)
        return window


class Entry(NamedTuple):
    """An element of the window."""

    item: Any
    ticket: Ticket
    weight: float


class Mark(NamedTuple):
    """What has happened: changes of the window, draws, and elements read of the block."""

    changes: int
    draws: int
    read: int


class Given(NamedTuple):
    """An element that was given, and what had happened then."""

    item: Any
    ticket: Ticket
    mark: Mark


@dataclass(frozen=True)
class ReplayPlace:
    """A position: the input's, how many draws there were, and the window: its tickets and how often each was given."""

    input: Position
    draws: int = 0
    held: Sequence[Any] = ()
    given: Sequence[int] = ()


class Replayer(Step):
    """The window, and the draws from it."""

    def __init__(self, node: ReplayBuffer, key: int) -> None:
        self.node = node
        self.key = key
        self.window = Window[Entry]([], [], node.replay, node.sample == "fifo")
        self.journal = Journal(self.window)
        self.draws = 0
        self.random: list[int] = []
        self.random_from = 0
        self.returning: list[int] = []
        """How often each element was given that was in the window, and comes first."""
        self.after: Position = None
        """From where the input resumes, if more of it may come after its end."""

    def resume(self, position: Position) -> Start:
        place = ReplayPlace(**named(position, "input"))
        self.draws, self.after = natural(place.draws), place.input
        tickets, self.returning = decode_all(place.held), [*map(natural, place.given)]
        if len(tickets) != len(self.returning) or not all(times < self.node.replay for times in self.returning):
            raise ValueError(f"{len(tickets)} elements cannot have been given {self.returning!r:.80} times")
        return Start.of(place.input, tickets)

    def need(self, want: int) -> int:
        room = max(len(self.returning), self.node.size - len(self.window.entries))
        return -(-want // self.node.replay) + min(room, 4096)

    def feed(self, block: Block) -> Block:
        start = self.put_back(block)
        if self.node.input.may_grow and len(block):
            self.after = block.tickets.at(len(block))
        if len(self.journal.changes) > 4 * self.node.size + 64:
            self.journal = Journal(self.window)
        begin, out = self.mark(start), list[Given]()
        while not self.returning:
            while len(self.window.entries) >= self.node.size:
                out.append(self.draw(start))
            if start == len(block):
                break
            item, ticket = block.items[start], block.tickets[start]
            start += 1
            if type(item) is Failure:
                out.append(Given(item, (0, ticket), self.mark(start)))
            else:
                self.window.add(self.entry(item, ticket))
                self.journal.changes.append((False, ticket))
        return self.block(out, begin, block.tickets.at)

    def put_back(self, block: Block) -> int:
        """Put elements back that were in the window; return how many."""
        count = min(len(self.returning), len(block))
        for place in range(count):
            self.window.add(self.entry(block.items[place], block.tickets[place]))
        if count:
            begin = len(self.window.given) - count
            self.window.given[begin:], self.returning = self.returning[:count], self.returning[count:]
            self.journal = Journal(self.window)
        return count

    def entry(self, item: Any, ticket: Ticket) -> Entry:
        if self.node.priority is None or type(item) is Failure:
            return Entry(item, ticket, 1.0)
        return Entry(item[1], ticket, item[0])

    def draw(self, read: int) -> Given:
        """Give an element of the window once more."""
        place = self.choose()
        self.draws += 1
        self.journal.changes.append((True, place))
        entry, before = self.window.draw(place)
        item = entry.item
        if type(item) is Failure:  # which it was not when it came
            item = Failure(item.error, item.of_source)
        return Given(item, (before, entry.ticket), self.mark(read))

    def mark(self, read: int) -> Mark:
        return Mark(len(self.journal.changes), self.draws, read)

    def choose(self) -> int:
        """Return the place of the element to be drawn."""
        count = len(self.window.entries)
        if self.node.sample == "fifo":
            return 0
        if not 0 <= self.draws - self.random_from < len(self.random):
            self.random_from = self.draws
            self.random = mixed(self.draws, self.draws + AHEAD, self.key).tolist()
        number = self.random[self.draws - self.random_from] >> 32
        if self.node.sample == "priority":
            sums = [*accumulate(entry.weight for entry in self.window.entries)]
            if sums[-1]:
                return min(bisect_right(sums, number / (1 << 32) * sums[-1]), count - 1)
        return number * count >> 32

    def flush(self) -> Iterator[Block]:
        self.journal = Journal(self.window)
        begin, out = self.mark(0), list[Given]()
        while self.window.entries:
            out.append(self.draw(0))
        if out:
            yield self.block(out, begin, lambda _: self.after if self.node.input.may_grow else END)

    def block(self, out: list[Given], begin: Mark, input_at: Callable[[int], Position]) -> Block:
        """Return the elements that were given, with the position after each."""
        journal, marks = self.journal, [begin, *[one.mark for one in out]]

        def position(count: int) -> Position:
            last = marks[count]
            window = journal.at(last.changes)
            return vars(ReplayPlace(input_at(last.read), last.draws, encode_all(window.entries), window.given))

        items = [one.item for one in out]
        failed = Failure in set(map(type, items))
        items = isolated(items) if self.node.replay > 1 else items
        return Block(items, ExplicitTickets([one.ticket for one in out], position), failed)
