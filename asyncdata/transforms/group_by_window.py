"""group_by_window and bucket_by_sequence_length: elements of the same key, put together when there are enough."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any, ClassVar, Final, final

from asyncdata.elements.structure import stack
from asyncdata.errors import PlanError
from asyncdata.executors.function_call import Call, noted
from asyncdata.executors.scope import Scope
from asyncdata.graph.members import alone, remade
from asyncdata.graph.node import (
    EVERYTHING,
    REPLACEABLE,
    Node,
    Unary,
    check_arguments,
    check_called,
    check_count,
    regrouped,
)
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
    replaying,
)
from asyncdata.transforms.flat_map import FlatMap
from asyncdata.transforms.keyed import Keyer, in_key_order
from asyncdata.transforms.map import Map
from asyncdata.transforms.padded_batch import Padding
from asyncdata.transforms.window import Make, Members

__all__ = ("Buckets", "KeyWindows")


METHOD: Final = "bucket_by_sequence_length"

AT_ONCE: Final = 4096
"""At most so many elements are requested at once before a group is full."""

FEWEST: Final = 64
"""A journal has at least so many entries before a new one is started."""


@dataclass(frozen=True, eq=False)
class Groups(Unary):
    """Elements of one key put together, from pairs of keys and elements, whenever there are enough of that key."""

    retains_elements = True

    @property
    def least(self) -> int:
        """How many elements make the smallest group."""
        raise NotImplementedError

    def size_of(self, key: Any) -> int:
        """Return how many elements of a key make a group."""
        raise NotImplementedError

    @property
    def sizing(self) -> str:
        """Its name for messages."""
        return self.label()

    def make_result(self, key: Any, items: list[Any], tickets: Tickets) -> Any:
        """Return the element for a group, or the failure in its place."""
        raise NotImplementedError

    @property
    def gives_incomplete(self) -> bool:
        """Whether groups that are not full are given at the end."""
        return True

    def stage(self) -> Fold:
        return Fold(lambda _: Grouper(self))

    @property
    def cardinality(self) -> int:
        return regrouped(self.input.cardinality)

    @property
    def may_grow(self) -> bool:
        return False  # the incomplete groups that it gives at the end would be others if more elements came

    @property
    def signature(self) -> None:
        return None

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        return remade(self.input, scope, tickets, self.remake)

    def remake(self, members: Block) -> Any:
        """Return a group that is made once more."""
        if members.failed:
            return next(item for item in members.items if type(item) is Failure)
        return self.make_result(members.items[0][0], [item for _, item in members.items], members.tickets)

    def reshard(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        return [self.input.resharded([listed(at)[0] for at in positions], resharding)]


class Group:
    """The elements of one key; `tickets` only grows."""

    __slots__ = ("items", "key", "size", "tickets")

    def __init__(self, key: Any, size: int) -> None:
        self.key = key
        self.size = size
        self.items: list[Any] = []
        self.tickets: list[Ticket] = []

    def members(self) -> Tickets:
        """Return the tickets of all."""
        return ReplayedTickets(self.tickets, 0, len(self.tickets), END)


class GroupJournal:
    """How many elements each open group had at some time, and the groups that elements were added to since.

    A new journal is started when there are as many entries as open groups. Its cost grows with the open groups, so the
    cost per element does not depend on their number.
    """

    __slots__ = ("begin", "entries")

    def __init__(self, groups: Iterable[Group]) -> None:
        self.begin = [(group, len(group.tickets)) for group in groups]
        self.entries: list[Group] = []

    @property
    def is_long(self) -> bool:
        """Whether to begin a new one."""
        return len(self.entries) > max(FEWEST, len(self.begin))

    def at(self, count: int) -> list[Tickets]:
        """Return the tickets of each group that was open after `entries` entries."""
        sizes = dict(self.begin)
        for group in self.entries[:count]:
            size = sizes[group] = sizes.get(group, 0) + 1
            if size == group.size:
                del sizes[group]
        return [ReplayedTickets(group.tickets[:size], 0, size, END) for group, size in sizes.items()]


class Grouper(Step):
    """The groups that are not full yet. A failure passes at once."""

    def __init__(self, node: Groups) -> None:
        self.node = node
        self.groups: dict[Any, Group] = {}
        self.journal = GroupJournal(())
        self.last: Tickets = NOTHING
        self.most = min(node.least, AT_ONCE)
        self.left = self.most  # how many elements fill a group at the earliest, at most `most`
        self.lacking = [0] * (self.most + 1)  # how many groups lack so many elements, below `most`

    def resume(self, position: Position) -> Start:
        return Start.of(position[0])

    def need(self, want: int) -> int:
        return self.left + want - 1

    def feed(self, block: Block) -> Block:
        self.last = block.tickets
        if self.journal.is_long:
            self.journal = GroupJournal(self.groups.values())
        came = GroupTickets(block.tickets, self.journal)
        out: list[Any] = []
        for place, (pair, ticket) in enumerate(zip(block.items, block.tickets, strict=True)):
            group = pair if type(pair) is Failure else self.group(pair[0], ticket)
            if isinstance(group, Failure):
                out.append(group)
                came.add(alone(ticket), place)
            elif self.is_filled(group, block.items[place][1], ticket):
                came.add(group.members(), place)
                out.append(self.node.make_result(group.key, group.items, group.members()))
                group.items = []  # the journal holds the group for a while
                del self.groups[group.key]
        self.left = self.left or self.earliest()
        return Block(out, came, Failure in set(map(type, out)))

    def is_filled(self, group: Group, item: Any, ticket: Ticket) -> bool:
        """Add an element to a group, and return whether it is full now."""
        group.items.append(item)
        group.tickets.append(ticket)
        self.journal.entries.append(group)
        left = group.size - len(group.items)
        if left < self.most:
            self.lacking[left] += 1
            self.lacking[left + 1] -= 1
            self.left = min(self.left, left)
        return not left

    def earliest(self) -> int:
        """Return how many elements fill a group at the earliest.

        It is called when a group was full, and takes as many steps as elements come before the next one is.
        """
        return next((left for left in range(1, self.most) if self.lacking[left]), self.most)

    def group(self, key: Any, ticket: Ticket) -> Group | Failure:
        """Return the group of a key, or the failure of the function that gives its size."""
        group = self.groups.get(key)
        if group is None:
            try:
                size = self.node.size_of(key)
            except Exception as error:
                return noted(error, self.node.sizing, ticket)
            group = self.groups[key] = Group(key, size)
        return group

    def flush(self) -> Iterator[Block]:
        every = [*self.groups.values()]
        groups = [self.groups[key] for key in in_key_order(self.groups)] if self.node.gives_incomplete else []
        for place, group in enumerate(groups):
            item = self.node.make_result(group.key, group.items, group.members())
            tickets = ExplicitTickets([group.members()], self.rest(every, groups, place))
            yield Block([item], tickets, type(item) is Failure)

    def rest(self, every: list[Group], groups: list[Group], place: int) -> Callable[[int], Position]:
        """Return from where to continue at the end, before and after one of the groups that are given then."""
        last = self.last

        def position(count: int) -> Position:
            gone = set(groups[: place + count])
            return [replaying(last.at(len(last)), [one.members() for one in every if one not in gone])]

        return position


@final
class GroupTickets(Tickets):
    """The items given out for one input block, groups and failures, and the place of each in the block and the
    journal."""

    __slots__ = ("base", "before", "journal", "out")

    def __init__(self, base: Tickets, journal: GroupJournal) -> None:
        self.base = base
        self.journal = journal
        self.before = len(journal.entries)
        self.out: list[tuple[Ticket, int, int]] = []

    def add(self, ticket: Ticket, place: int) -> None:
        """Record the output for the element at this place."""
        self.out.append((ticket, place + 1, len(self.journal.entries)))

    def __len__(self) -> int:
        return len(self.out)

    def __getitem__(self, index: int) -> Ticket:
        return self.out[index][0]

    def at(self, count: int) -> Position:
        _, come, entries = self.out[count - 1] if count else (None, 0, self.before)
        return [replaying(self.base.at(come), self.journal.at(entries))]


@dataclass(frozen=True, eq=False)
class KeyWindows(Groups):
    """Groups as pairs of a key and a dataset."""

    make: Make = field(repr=False, metadata=REPLACEABLE)
    size: int | None = None
    size_func: Call | None = field(default=None, metadata=REPLACEABLE)

    @property
    def holds(self) -> int:
        return EVERYTHING  # for each key nearly a window, and there may be any number of keys

    @staticmethod
    def of(plan: Node, key: Any, reduce: Any, size: int | None, size_func: Any, make: Make) -> FlatMap:
        """Return the plan that makes a dataset of each group; `PlanError` unless one of the two sizes is given."""
        method = "group_by_window"
        if (size is None) == (size_func is None):
            raise PlanError(f"{method} needs either window_size or window_size_func")
        call = None if size_func is None else Call("window_size_func", size_func, spread=False)
        if call is not None and call.is_async:
            raise PlanError(f"{call.name} is a coroutine function; a plain one is needed")
        if call is not None:
            call.label = f"{method}({call.label.replace('(', '=', 1)}"
        number = None if size is None else check_count(method, "window_size", size, 1)
        keyed, reduced = Keyer(method, key), Call(method, reduce)
        check_arguments(keyed, plan)
        check_called(reduced, "a key and a window", ("key", "window"))
        return Reduced(KeyWindows(Map(plan, (keyed,)), make, number, call), reduced)

    @property
    def least(self) -> int:
        return self.size or 1

    def size_of(self, key: Any) -> int:
        if self.size_func is None:
            return self.least
        size = index(self.size_func.fn(key))
        if size < 1:
            raise ValueError(f"{self.size_func.name} must return at least 1, got {size} for the key {key!r}")
        return size

    @property
    def sizing(self) -> str:
        return super().sizing if self.size_func is None else self.size_func.label

    def make_result(self, key: Any, items: list[Any], tickets: Tickets) -> Any:
        return key, self.make(Members(items))

    def label(self) -> str:
        return f"windows({self.size if self.size_func is None else self.size_func.name})"


@dataclass(frozen=True, eq=False)
class Reduced(FlatMap):
    """The elements of a user's function for each window of one key."""

    travels: ClassVar[bool] = False

    @property
    def cardinality(self) -> int:
        return regrouped(self.input.cardinality)


class Bucketing(Keyer):
    """A user's function that returns the length of an element; makes pairs of its bucket's number and the element."""

    __slots__ = ("boundaries", "bounded")

    def __init__(self, fn: Callable[..., Any], boundaries: Sequence[int], bounded: bool) -> None:
        super().__init__(METHOD, fn)
        self.boundaries = boundaries
        self.bounded = bounded

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (self.boundaries, self.bounded)

    def label_of(self, found: Any) -> int:
        length = super().label_of(found)
        bucket = bisect_right(self.boundaries, length)
        if self.bounded and bucket == len(self.boundaries):
            raise ValueError(
                f"an element of length {length} is not below the last boundary, {self.boundaries[-1]}, which "
                "pad_to_bucket_boundary requires; filter such elements, or add a boundary"
            )
        return bucket


@dataclass(frozen=True, eq=False)
class Buckets(Groups):
    """Batches of elements of about one length; without `paddings` they are stacked as they are."""

    sizes: Sequence[int]
    paddings: Sequence[Padding] | None = field(repr=False)
    drop_remainder: bool = False

    @property
    def holds(self) -> int:
        return sum(self.sizes)

    @property
    def identity(self) -> str:
        return super().label()

    def label(self) -> str:
        return f"{METHOD}{self.identity.removeprefix('buckets')}"

    @staticmethod
    def of(
        plan: Node, length: Any, bounds: Any, sizes: Any, padding: Padding | None, bounded: bool, drop_remainder: bool
    ) -> Buckets:
        """Return the plan for the user's arguments; without `padding` nothing is padded."""
        boundaries, counts = counts_of("bucket_boundaries", bounds), counts_of("bucket_batch_sizes", sizes)
        if sorted(set(boundaries)) != boundaries or (bounded and not boundaries):
            some = "some integers" if bounded else "integers"
            raise PlanError(f"{METHOD}(bucket_boundaries=) must be {some} in ascending order, got {bounds!r:.80}")
        if len(counts) != len(boundaries) + 1:
            raise PlanError(
                f"{METHOD}(bucket_batch_sizes=) needs one size more than there are boundaries: "
                f"{len(boundaries) + 1}, got {len(counts)}"
            )
        if padding is None and bounded:
            raise PlanError(f"{METHOD}: with no_padding=True nothing is padded: leave pad_to_bucket_boundary out")
        paddings = None
        if padding is not None:
            padding.check(METHOD, plan.signature)
            limits = [bound - 1 if bounded else None for bound in [*boundaries, 0]]
            paddings = [Padding(padding.shapes, padding.values, limit) for limit in limits]
        bucketing = Bucketing(length, boundaries, bounded)
        check_arguments(bucketing, plan)
        return Buckets(Map(plan, (bucketing,)), tuple(counts), paddings, drop_remainder)

    @property
    def least(self) -> int:
        return min(self.sizes)

    @property
    def gives_incomplete(self) -> bool:
        return not self.drop_remainder

    def size_of(self, key: int) -> int:
        return self.sizes[key]

    def make_result(self, key: int, items: list[Any], tickets: Tickets) -> Any:
        try:
            return stack(items) if self.paddings is None else self.paddings[key].stack(items)
        except Exception as error:  # also errors of an element's own methods
            return noted(error, f"{METHOD}({len(items)})", tickets)


def counts_of(name: str, values: Any) -> list[int]:
    """Return an argument that is a list of numbers from 1 on; `PlanError` if it is none."""
    try:
        found = [*values]
    except TypeError:
        raise PlanError(f"{METHOD}({name}=) must be a list of integers, got {values!r:.80}") from None
    return [check_count(METHOD, name, value, 1) for value in found]
