"""Tickets: identify the elements of a block, and give the position after some of them have been delivered.

An element's ticket identifies its origin, and is the same in every run: its ordinal in its source, the pair (parent's
ticket, child's ticket) after repeat, flat_map and the like, the tickets of its members after batch. A *position* is
where a pipeline, up to some node, resumes; it consists of JSON values. Blocks carry both as one lazy object, so that a
state costs something only when it is requested.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias, cast, final

import numpy as np
import numpy.typing as npt

from asyncdata.runtime.columns import check_listed
from asyncdata.runtime.source_state import RestorableItem, SourceSnapshot

if TYPE_CHECKING:
    from asyncdata.runtime.columns import Columns
    from asyncdata.runtime.orders import Ordered

__all__ = (
    "END",
    "FRESH",
    "NAMES",
    "NOTHING",
    "UNORDERED",
    "ChildTickets",
    "ExplicitTickets",
    "FilteredTickets",
    "JoinedTickets",
    "Numbered",
    "Ordinals",
    "Position",
    "ReplayedTickets",
    "SelectedTickets",
    "Start",
    "Ticket",
    "TicketWrapper",
    "Tickets",
    "TicketsAfterSkip",
    "UnorderedTickets",
    "WrappedTickets",
    "children",
    "decode",
    "decode_all",
    "decode_run",
    "encode",
    "encode_all",
    "encode_runs",
    "is_named",
    "name_of",
    "natural",
    "plain",
    "replaying",
    "replaying_first",
)

Ticket: TypeAlias = Any
Position: TypeAlias = Any

END: Final = "end"
"""The position after everything."""

NAMES: Final = -(1 << 40)
"""No name is a greater number, and nothing is counted by smaller ones. A name tells stored elements from those of
another run; nothing else depends on it, such as random numbers of an element."""

UNORDERED: Final = "unordered"
"""The key of the position of a step without order. Its elements to repeat are not those that a later step repeats, as
a filter may be between them."""


class Numbered(NamedTuple):
    """The ticket of an element of `enumerate`."""

    number: int
    ticket: Ticket


def natural(number: Any) -> int:
    """Return a number in a position; `ValueError` if it is negative."""
    if (found := operator.index(number)) < 0:
        raise ValueError(f"{found} is negative")
    return found


class Tickets:
    """The tickets of consecutive elements. Immutable, and therefore thread-safe."""

    __slots__ = ()

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, index: int) -> Ticket:
        """Return the ticket of element `index`, which is not negative."""
        raise NotImplementedError

    def at(self, count: int) -> Position:
        """Return the position after the first `count` elements, and all before them, have been delivered."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Ticket]:
        return map(self.__getitem__, range(len(self)))

    def between(self, start: int, stop: int) -> Iterable[Ticket]:
        """Return the tickets of elements `start` to `stop`, sooner than one by one where that is possible."""
        return map(self.__getitem__, range(start, stop))

    @property
    def elsewhere(self) -> bool:
        """Whether another process has them, and must be asked for them as JSON."""
        return False

    def encoded(self, start: int, stop: int) -> list[Any]:
        """Return the tickets of elements `start` to `stop` as JSON, one by one."""
        return [encode(self[place]) for place in range(start, stop)]

    def in_columns(self, start: int, stop: int) -> Columns:
        """Return the tickets of elements `start` to `stop` if they are known to be integers, or tuples of integers of
        one shape, as arrays; else `None`."""
        return None

    def ordered(self, start: int, stop: int) -> Ordered | None:
        """Return at which places of an order that can be computed again elements `start` to `stop` stand, if known."""
        return None

    def members(self, start: int, stop: int) -> tuple[Tickets, Sequence[int]] | None:
        """Return the tickets of all members of batches `start` to `stop`, and how many each has, if that is simple."""
        return None

    def slice(self, start: int, stop: int) -> Tickets:
        """Return the tickets of elements `start` to `stop`."""
        stop = min(stop, len(self))
        return self if start == 0 and stop == len(self) else TicketSlice(self, start, stop)

    def run_from(self, ordinal: int) -> bool:
        """Return whether the tickets are known to be `ordinal`, `ordinal + 1` and so on."""
        return False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)})"


@final
class Ordinals(Tickets):
    """The tickets of elements `start` to `stop` of a source that can start at any ordinal."""

    __slots__ = ("start", "stop")

    def __init__(self, start: int, stop: int) -> None:
        self.start = start
        self.stop = stop

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, index: int) -> int:
        return self.start + index

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.stop))

    def at(self, count: int) -> int:
        return self.start + count

    def in_columns(self, start: int, stop: int) -> Columns:
        return np.arange(self.start + start, self.start + stop)

    def run_from(self, ordinal: int) -> bool:
        return self.start == ordinal

    def slice(self, start: int, stop: int) -> Ordinals:
        return Ordinals(self.start + start, min(self.start + stop, self.stop))


NOTHING: Final = Ordinals(0, 0)


@final
class TicketSlice(Tickets):
    """A part of other tickets."""

    __slots__ = ("base", "start", "stop")

    def __init__(self, base: Tickets, start: int, stop: int) -> None:
        self.base = base
        self.start = start
        self.stop = stop

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, index: int) -> Ticket:
        return self.base[self.start + index]

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self.base.between(self.start, self.stop))

    def between(self, start: int, stop: int) -> Iterable[Ticket]:
        return self.base.between(self.start + start, self.start + stop)

    def at(self, count: int) -> Position:
        return self.base.at(self.start + count)

    @property
    def elsewhere(self) -> bool:
        return self.base.elsewhere

    def encoded(self, start: int, stop: int) -> list[Any]:
        return self.base.encoded(self.start + start, self.start + stop)

    def ordered(self, start: int, stop: int) -> Ordered | None:
        return self.base.ordered(self.start + start, self.start + stop)

    def in_columns(self, start: int, stop: int) -> Columns:
        return self.base.in_columns(self.start + start, self.start + stop)

    def members(self, start: int, stop: int) -> tuple[Tickets, Sequence[int]] | None:
        return self.base.members(self.start + start, self.start + stop)

    def run_from(self, ordinal: int) -> bool:
        return self.base.run_from(ordinal - self.start)

    def slice(self, start: int, stop: int) -> Tickets:
        return TicketSlice(self.base, self.start + start, min(self.start + stop, self.stop))


@final
class JoinedTickets(Tickets):
    """The tickets of consecutive blocks."""

    __slots__ = ("parts", "stops")

    def __init__(self, parts: Sequence[Tickets]) -> None:
        self.parts = parts
        self.stops = list(accumulate(map(len, parts)))

    def __len__(self) -> int:
        return self.stops[-1]

    def __getitem__(self, index: int) -> Ticket:
        place = bisect_left(self.stops, index + 1)
        return self.parts[place][index - self.stops[place] + len(self.parts[place])]

    def __iter__(self) -> Iterator[Ticket]:
        return chain.from_iterable(self.parts)

    def between(self, start: int, stop: int) -> Iterable[Ticket]:
        return chain.from_iterable(part.between(begin, end) for part, begin, end in self.pieces(start, stop))

    def in_columns(self, start: int, stop: int) -> Columns:
        from asyncdata.runtime.columns import joined_columns

        found = [part.in_columns(begin, end) for part, begin, end in self.pieces(start, stop)]
        return joined_columns(found)

    def ordered(self, start: int, stop: int) -> Ordered | None:
        found = [part.ordered(begin, end) for part, begin, end in self.pieces(start, stop)]
        known = [one for one in found if one is not None]
        if not known or len(known) < len(found) or any(one.order != known[0].order for one in known):
            return None
        return known[0]._replace(places=np.concatenate([one.places for one in known]))

    def pieces(self, start: int, stop: int) -> Iterator[tuple[Tickets, int, int]]:
        """Yield the parts that have elements `start` to `stop`, and which of theirs these are."""
        first = bisect_left(self.stops, start + 1)
        last = bisect_left(self.stops, stop, first)
        for part, end in zip(self.parts[first : last + 1], self.stops[first : last + 1], strict=True):
            begin = end - len(part)
            yield part, max(0, start - begin), min(len(part), stop - begin)

    def run_from(self, ordinal: int) -> bool:
        begins = [stop - len(part) for stop, part in zip(self.stops, self.parts, strict=True)]
        return all(part.run_from(ordinal + begin) for begin, part in zip(begins, self.parts, strict=True))

    def at(self, count: int) -> Position:
        place = bisect_left(self.stops, count)
        return self.parts[place].at(count - self.stops[place] + len(self.parts[place]))

    @staticmethod
    def of(parts: Sequence[Tickets]) -> Tickets:
        """Return the tickets of all parts as one object; consecutive ordinals remain ordinals."""
        first = parts[0]
        if type(first) is Ordinals:
            stop = first.stop
            for part in parts[1:]:
                if type(part) is not Ordinals or part.start != stop:
                    break
                stop = part.stop
            else:
                return Ordinals(first.start, stop)
        return first if len(parts) == 1 else JoinedTickets(parts)


class SelectedTickets(Tickets):
    """The tickets of the elements at some indices of a block."""

    __slots__ = ("base", "places")

    def __init__(self, base: Tickets, places: Sequence[int]) -> None:
        self.base = base
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> Ticket:
        return self.base[self.places[index]]

    def in_columns(self, start: int, stop: int) -> Columns:
        from asyncdata.runtime.columns import at_places

        places = self.places[start:stop]
        found = self.base.in_columns(places[0], places[-1] + 1) if len(places) else None
        return None if found is None else at_places(found, np.asarray(places) - places[0])

    def ordered(self, start: int, stop: int) -> Ordered | None:
        places = self.places[start:stop]
        found = self.base.ordered(places[0], places[-1] + 1) if len(places) else None
        return None if found is None else found._replace(places=found.places[np.asarray(places) - places[0]])

    def read(self, count: int) -> int:
        """Return how many elements of the block are finished after `count` of these: all of them after the last."""
        return len(self.base) if count == len(self.places) else self.places[count - 1] + 1 if count else 0


@final
class FilteredTickets(SelectedTickets):
    """The elements at some indices of a block; the elements between them have been dropped."""

    __slots__ = ()

    def at(self, count: int) -> Position:
        return self.base.at(self.read(count))


@final
class TicketsAfterSkip(SelectedTickets):
    """The elements at some indices of a block, after `skip`: of the others the first `skip` are dropped, also in later
    blocks. A position in between says how many are left to drop, of the output of the plan, or of a `step` in it."""

    __slots__ = ("count", "position", "skip")

    def __init__(self, base: Tickets, places: Sequence[int], skip: int, step: bool = False) -> None:
        super().__init__(base, places)
        self.skip = skip
        self.count, self.position = ("to_skip", "input") if step else ("skip", "from")

    def at(self, count: int) -> Position:
        passed = self.places[count - 1] + 1 if count else 0
        position = self.base.at(passed)
        return {self.count: self.skip - passed, self.position: position} if passed < self.skip else position


class TicketWrapper(Tickets):
    """The tickets of the same elements, with another position."""

    __slots__ = ("base",)

    def __init__(self, base: Tickets) -> None:
        self.base = base

    def __len__(self) -> int:
        return len(self.base)

    def __getitem__(self, index: int) -> Ticket:
        return self.base[index]

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self.base)

    def between(self, start: int, stop: int) -> Iterable[Ticket]:
        return self.base.between(start, stop)

    def in_columns(self, start: int, stop: int) -> Columns:
        return self.base.in_columns(start, stop)

    def ordered(self, start: int, stop: int) -> Ordered | None:
        return self.base.ordered(start, stop)

    def members(self, start: int, stop: int) -> tuple[Tickets, Sequence[int]] | None:
        return self.base.members(start, stop)

    def run_from(self, ordinal: int) -> bool:
        return self.base.run_from(ordinal)


@final
class UnorderedTickets(TicketWrapper):
    """Elements in the order of completion; those in `missing` were also read, up to the end of `last`.

    The position contains the input's, which first repeats the missing elements; these then come out in any order.
    """

    __slots__ = ("last", "missing")

    def __init__(self, base: Tickets, last: Tickets, missing: Sequence[Tickets]) -> None:
        super().__init__(base)
        self.last = last
        self.missing = missing

    def at(self, count: int) -> Position:
        behind = self.base.slice(count, len(self.base))
        return {UNORDERED: replaying(self.last.at(len(self.last)), [behind, *self.missing])}


@final
class WrappedTickets(TicketWrapper):
    """The same elements, with a position that includes the state of a transformation."""

    __slots__ = ("wrap",)

    def __init__(self, base: Tickets, wrap: Callable[[int, Position], Position]) -> None:
        super().__init__(base)
        self.wrap = wrap

    def at(self, count: int) -> Position:
        return self.wrap(count, self.base.at(count))


@final
class ChildTickets(Tickets):
    """Elements from inside element `parent`; `wrap` makes the position from the inner one."""

    __slots__ = ("inner", "parent", "wrap")

    def __init__(self, parent: Ticket, inner: Tickets, wrap: Callable[[Position], Position]) -> None:
        self.parent = parent
        self.inner = inner
        self.wrap = wrap

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, index: int) -> Ticket:
        return (self.parent, self.inner[index])

    def in_columns(self, start: int, stop: int) -> Columns:
        found = self.inner.in_columns(start, stop) if type(self.parent) is int and start < stop else None
        return None if found is None else {"0": np.full(stop - start, self.parent, np.int64), "1": found}

    def ordered(self, start: int, stop: int) -> Ordered | None:
        found = self.inner.ordered(start, stop) if type(self.parent) is int else None
        return None if found is None else found._replace(order=found.order.within(self.parent))

    def at(self, count: int) -> Position:
        return self.wrap(self.inner.at(count))


@final
class ExplicitTickets(Tickets):
    """Tickets one by one, each with the position that follows it; `positions` has one more, the first.

    Where the tickets are integers, they may be in an array, `known`, too; and `places` may say where in an order each
    stands.
    """

    __slots__ = ("known", "places", "positions", "tickets")

    def __init__(
        self,
        tickets: Sequence[Ticket],
        positions: Callable[[int], Position],
        known: npt.NDArray[np.int64] | None = None,
        places: Ordered | None = None,
    ) -> None:
        self.tickets = tickets
        self.positions = positions
        self.known = known
        self.places = places

    def __len__(self) -> int:
        return len(self.tickets)

    def __getitem__(self, index: int) -> Ticket:
        return self.tickets[index]

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self.tickets)

    def between(self, start: int, stop: int) -> Iterable[Ticket]:
        return self.tickets[start:stop]

    def in_columns(self, start: int, stop: int) -> Columns:
        return None if self.known is None else self.known[start:stop]

    def ordered(self, start: int, stop: int) -> Ordered | None:
        return self.places and self.places._replace(places=self.places.places[start:stop])

    def at(self, count: int) -> Position:
        return self.positions(count)


@final
class ReplayedTickets(Tickets):
    """Elements that are repeated, `back[start:stop]`, before a pipeline continues at `position`."""

    __slots__ = ("back", "position", "start", "stop")

    def __init__(self, back: Sequence[Ticket], start: int, stop: int, position: Position) -> None:
        self.back = back
        self.start = start
        self.stop = stop
        self.position = position

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, index: int) -> Ticket:
        return self.back[self.start + index]

    def between(self, start: int, stop: int) -> Iterable[Ticket]:
        return self.back[self.start + start : self.start + stop]

    def at(self, count: int) -> Position:
        return replaying(self.position, [ReplayedTickets(self.back, self.start + count, len(self.back), END)])


def children(parent: Ticket, inner: Tickets) -> Tickets:
    """Return the tickets of elements from inside element `parent`, where a position is [parent, inner position]."""
    return ChildTickets(parent, inner, lambda position: [encode(parent), position])


@dataclass(frozen=True)
class Start:
    """The start of a run of a pipeline: first the elements with the tickets `back`, then all from `position` on.

    The first `skip` of all of these are dropped.
    """

    position: Position = None
    back: Sequence[Ticket] = field(default=())
    skip: int = 0

    @classmethod
    def of(cls, position: Position, back: Sequence[Ticket] = ()) -> Self:
        """Return the start at a position, which may itself have elements to repeat; `back` comes before these."""
        skip = 0
        while isinstance(position, dict) and "from" in position:
            encoded = cast("dict[str, Any]", position)
            back = [*back, *decode_all(encoded.get("back", ()))]
            skip += encoded.get("skip", 0)
            position = encoded["from"]
        return cls(position, back, skip)

    def within(self) -> Start:
        """Return the start for a node below all steps without order, whose elements are ordered again."""
        position, back = self.position, self.back
        if not isinstance(position, dict) or UNORDERED not in position:
            return self
        return Start.of(cast("dict[str, Any]", position)[UNORDERED], back).within()

    def position_with_skip(self) -> Position:
        position = replaying(self.position, [ReplayedTickets(self.back, 0, len(self.back), END)])
        return {"skip": self.skip, "from": position} if self.skip else position


FRESH: Final = Start()


def replaying(position: Position, back: Sequence[Tickets]) -> Position:
    """Return the position that repeats the elements `back` first."""
    encoded = joined(chain.from_iterable(map(encode_runs, back)))
    if not encoded:
        return position
    goal: Position = position
    while isinstance(goal, dict) and "back" in goal:
        inner = cast("dict[str, Any]", goal)
        encoded += inner["back"]
        goal = inner["from"]
    return {"from": cast("Any", goal), "back": encoded}


def replaying_first(element: Tickets, by_place: bool) -> Position:
    """Return the position that repeats this element first: the position before it, or its ticket."""
    return element.at(0) if by_place else replaying(element.at(1), [element.slice(0, 1)])


def encode_runs(tickets: Tickets) -> list[Any]:
    """Return tickets as JSON; a run of consecutive ordinals becomes the first one and their number."""
    if is_run(tickets):
        return [{"run": [tickets[0], len(tickets)]}]
    if isinstance(tickets, JoinedTickets) and any(map(is_run, tickets.parts)):
        return list(chain.from_iterable(map(encode_runs, tickets.parts)))
    return encode_all([*tickets])


def is_run(tickets: Tickets) -> bool:
    """Return whether tickets are known to be consecutive ordinals."""
    return len(tickets) > 2 and isinstance(first := tickets[0], int) and tickets.run_from(first)


def encode_all(tickets: Sequence[Ticket]) -> list[Any]:
    """Return tickets as JSON, packed if there are many."""
    from asyncdata.runtime.position_codec import pack_tickets

    packed = pack_tickets(tickets)
    return [encode(ticket) for ticket in tickets] if packed is None else [packed]


def decode_all(encoded: object) -> list[Ticket]:
    """Return the tickets that `encode_all` encoded; `ValueError` for what is no list of them."""
    if not isinstance(encoded, (list, tuple)):
        raise ValueError(f"{encoded!r:.80} is no list of tickets")  # noqa: TRY004  as for all of a state
    runs = [decode_run(one) for one in cast("Sequence[Any]", encoded)]
    check_listed(sum([run.stop - run.start if isinstance(run, range) else len(run) for run in runs]))
    return list(chain.from_iterable(runs))


def joined(encoded: Iterable[Any]) -> list[Any]:
    """Return tickets as JSON, with consecutive ones from one state of a source joined."""
    runs: list[Any] = []
    for one in encoded:
        if runs and follows(runs[-1], one):
            runs[-1] = {**runs[-1], "count": runs[-1].get("count", 1) + one.get("count", 1)}
        else:
            runs.append(one)
    return runs


def follows(last: Any, one: Any) -> bool:
    if not (isinstance(last, dict) and isinstance(one, dict) and "state" in last and "state" in one):
        return False
    before, after = cast("dict[str, Any]", last), cast("dict[str, Any]", one)
    step: int = after["number"] - before["number"]
    return (
        step == before.get("count", 1)
        and step == after["skip"] - before["skip"]
        and before["state"] == after["state"]
        and before.get("failures") == after.get("failures")
        and "failed" not in (*before, *after)
    )


def decode_run(encoded: Any) -> Sequence[Ticket]:
    """Return the tickets that `encode_runs` encoded."""
    if isinstance(encoded, dict) and "run" in encoded:
        first, count = cast("dict[str, list[int]]", encoded)["run"]
        return range(first, first + count)
    if isinstance(encoded, dict) and "packed" in encoded:
        from asyncdata.runtime.position_codec import unpack_tickets

        return unpack_tickets(cast("dict[str, Any]", encoded))
    if isinstance(encoded, dict) and "state" in encoded:
        run = cast("dict[str, Any]", encoded)
        snapshot, number = SourceSnapshot.of(run), run["number"]
        failed = bool(run.get("failed"))
        check_listed(count := run.get("count", 1))
        return [RestorableItem.at(number + place, snapshot, failed) for place in range(count)]
    return [decode(encoded)]


def encode(ticket: Ticket) -> Any:
    """Return a ticket as JSON: a pair as a list, a ticket with members or a state as an object."""
    if isinstance(ticket, tuple):
        return [encode(part) for part in cast("tuple[Any, ...]", ticket)]
    if isinstance(ticket, RestorableItem):
        return ticket.snapshot.position(int(ticket), ticket.failed)
    return {"of": joined(encode_runs(ticket))} if isinstance(ticket, Tickets) else ticket


def decode(encoded: Any, within: bool = False) -> Ticket:
    """Return the ticket that `encode` encoded; `ValueError` for what is none."""
    if isinstance(encoded, list):
        parts = cast("list[Any]", encoded)
        if not parts:
            raise ValueError("an empty list is no element's ticket")
        return tuple([decode(part, True) for part in parts])
    if isinstance(encoded, dict) and "state" in encoded:
        return decode_run(encoded)[0]
    if isinstance(encoded, dict):
        members = decode_all(cast("dict[str, Any]", encoded)["of"])
        return ReplayedTickets(members, 0, len(members), END)
    if type(encoded) is int or type(encoded) is str or (within and encoded is None):
        return encoded
    raise ValueError(f"{encoded!r:.80} is no element's ticket")


def plain(ticket: Any) -> Any:
    """Return a ticket or a path of tickets as nested tuples: hashable, and independent of the blocks of elements and of
    the run that stored these."""
    if not isinstance(ticket, (tuple, list, Tickets)):
        return ticket
    parts = tuple([plain(part) for part in cast("Sequence[Any]", ticket)])
    return parts[1] if is_named(parts) else parts


def is_named(ticket: Any) -> bool:
    """Return whether this is the ticket of a stored element: the name of what stores it, and its number there."""
    parts = cast("tuple[Any, ...]", ticket)
    return isinstance(ticket, tuple) and len(parts) == 2 and type(parts[0]) is int and parts[0] <= NAMES


def name_of(ticket: Any) -> int | None:
    """Return the name of what stores an element, `None` if it has none."""
    return ticket[0] if is_named(ticket) else None
