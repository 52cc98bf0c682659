"""pack_sequences: sequences of different lengths put into rows of one length.

Each row has the segments and positions of its sequences, so that a model can tell them apart: packing without
cross-contamination, as in Krell et al. 2021 (https://arxiv.org/abs/2107.02027). They pack a data set whose lengths are
known; this packs a stream. A sequence goes to the oldest open row that has space for it (first fit), or to the fullest
of them (best fit). If none has, and no more may be open, the fullest row is given out, which wastes least (Csirik and
Johnson 2001, "Bounded space on-line bin packing: best is better than first").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple, cast

import numpy as np

from asyncdata.errors import PlanError, ResumeError, StructureError
from asyncdata.executors.function_call import describe, noted
from asyncdata.executors.scope import Scope
from asyncdata.graph.members import alone, remade
from asyncdata.graph.node import Node, Unary, check_count, regrouped
from asyncdata.graph.stages import Fold, Step
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.resharding import Resharding, named, replaying_tickets
from asyncdata.runtime.tickets import END, ExplicitTickets, Position, ReplayedTickets, Start, Ticket, Tickets
from asyncdata.transforms.token_rows import FIELDS, Piece, RowLayout, Tokens

__all__ = ("PackSequences", "is_cut")

CUT: Final = "cut"
"""Marks the ticket of a part of a sequence: (CUT, the sequence's, start, stop)."""

CLOSED: Final = (CUT,)
"""In a journal: the row was given out."""

FIRST_FIT: Final = "first_fit"
BEST_FIT: Final = "best_fit"
FITTING: Final = (FIRST_FIT, BEST_FIT)
STRATEGIES: Final = (*FITTING, "concat_then_split")
OVERLONG: Final = ("error", "truncate", "split")
OPEN_ROWS: Final = 64


@dataclass(frozen=True, eq=False)
class PackSequences(Unary):
    """Sequences put into rows of `length` tokens."""

    length: int
    strategy: str = FIRST_FIT
    open_rows: int = OPEN_ROWS
    overlong: str = "error"
    padding: Any = field(default=0, repr=False)
    fields: tuple[str, ...] = ()
    max_sequences: int | None = None

    retains_elements = True

    @property
    def holds(self) -> int:
        return self.length * self.open_rows

    @staticmethod
    def of(
        plan: Node,
        length: int,
        strategy: str,
        open_rows: int | None,
        overlong: str | None,
        padding: Any,
        fields: Sequence[str] | None = None,
        max_sequences: int | None = None,
    ) -> PackSequences:
        """Return the node for the user's arguments."""
        check_count("pack_sequences", "length", length, 1)
        named = checked_fields(fields)
        check_choice("strategy", strategy, STRATEGIES)
        for value in cast("dict[str, Any]", padding).values() if isinstance(padding, dict) else (padding,):
            if not isinstance(value, (int, float, complex, np.generic)):
                raise PlanError(
                    f"pack_sequences(padding_values=) is a number or a dict of numbers, got {padding!r:.80}"
                )
        if overlong is not None:
            check_choice("overlong", overlong, OVERLONG)
        if strategy in FITTING:
            rows = OPEN_ROWS if open_rows is None else check_count("pack_sequences", "open_rows", open_rows, 1)
            if max_sequences is not None:
                check_count("pack_sequences", "max_sequences", max_sequences, 1)
            return PackSequences(plan, length, strategy, rows, overlong or "error", padding, named, max_sequences)
        for name, value in (("open_rows", open_rows), ("overlong", overlong), ("max_sequences", max_sequences)):
            if value is not None:
                raise PlanError(
                    f"pack_sequences({name}=) is for 'first_fit' and 'best_fit': strategy={strategy!r} has one open "
                    "row, and cuts sequences at its end"
                )
        return PackSequences(plan, length, strategy, 1, "split", padding, named)

    def stage(self) -> Fold:
        return Fold(lambda _: Packer(self))

    @property
    def layout(self) -> RowLayout:
        """How rows are made."""
        return RowLayout(self.length, self.padding, self.fields)

    @property
    def cardinality(self) -> int:
        return regrouped(self.input.cardinality)

    @property
    def signature(self) -> Any:
        return self.layout.signature(self.input.signature)

    def label(self) -> str:
        fields = f", fields={self.fields}" if self.fields else ""
        strategy = "" if self.strategy == FIRST_FIT else f", strategy={self.strategy!r}"
        if self.strategy not in FITTING:
            return f"pack_sequences({self.length}{strategy}{fields})"
        rows = "" if self.open_rows == OPEN_ROWS else f", open_rows={self.open_rows}"
        overlong = "" if self.overlong == "error" else f", overlong={self.overlong!r}"
        most = "" if self.max_sequences is None else f", max_sequences={self.max_sequences}"
        return f"pack_sequences({self.length}{strategy}{rows}{overlong}{most}{fields})"

    async def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Put the members of each row together again; anything else is a failed element."""
        rows = iter([ticket for ticket in tickets if isinstance(ticket, Tickets)])
        whole, layout = [*map(uncut_row, tickets)], self.layout
        made = remade(self.input, scope, whole, lambda found: self.row_again(layout, found, next(rows)))
        async with aclosing(made) as source:
            place = 0
            async for block in source:
                (item,) = block.items
                if type(item) is not Failure and not isinstance(tickets[place], Tickets):
                    item = self.failure_again(layout, item, whole[place])
                yield Block([item], ReplayedTickets(tickets, place, place + 1, END), type(item) is Failure)
                place += 1

    def row_again(self, layout: RowLayout, found: Block, members: Tickets) -> Any:
        """Return the row that these members make, or the failure of one of them."""
        pieces: list[Piece] = []
        for item, member in zip(found.items, members, strict=True):
            if type(item) is Failure:
                return item
            tokens = self.sequence(layout, item)
            pieces.append(Piece(tokens, *part_of(member, tokens.size)))
        return layout.row(pieces)

    def failure_again(self, layout: RowLayout, item: Any, ticket: Ticket) -> Failure:
        """Return why an element that came out as a failure is in no row."""
        try:
            error = odd_one(self.sequence(layout, item))
        except Exception as found:
            error = found
        return self.failure(error, ticket)

    def failure(self, error: BaseException, ticket: Ticket) -> Failure:
        """Return an error as this step's failure."""
        return noted(error, f"pack_sequences({self.length})", ticket)

    def sequence(self, layout: RowLayout, item: Any) -> Tokens:
        """Return an element as a sequence that rows can take; `StructureError` if they cannot."""
        tokens = layout.tokens(item)
        if tokens.size <= self.length or self.overlong == "split":
            return tokens
        if self.overlong == "truncate":
            return Tokens({name: array[: self.length] for name, array in tokens.features.items()}, self.length)
        raise StructureError(
            f"the sequence has {tokens.size} tokens and a row {self.length}: give overlong='truncate' or "
            "overlong='split', or filter it out"
        )

    def reshard(self, positions: Sequence[Position], resharding: Resharding) -> Position:
        places = [PackingPosition.of(at) for at in positions]
        rows = resharding.own_part([row for place in places for row in place.rows()])
        begun = resharding.own_part([one for place in places for one in place.begun()])
        return rows_position(self.input.resharded([place.rest for place in places], resharding), rows, begun)


def checked_fields(fields: Sequence[str] | None) -> tuple[str, ...]:
    """Return the fields of a row, none for segments and positions; `PlanError` if one is unknown."""
    if fields is None:
        return ()
    named = (fields,) if isinstance(fields, str) else tuple(fields)
    if not named or len({*named}) < len(named) or not {*named} <= {*FIELDS}:
        raise PlanError(f"pack_sequences(fields=) must be some of {', '.join(map(repr, FIELDS))}, got {fields!r:.80}")
    return named


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise `PlanError` if a value is none of the choices."""
    if value not in choices:
        raise PlanError(f"pack_sequences({name}=) must be one of {', '.join(map(repr, choices))}, got {value!r:.80}")


Member = Any
"""The ticket of a sequence in a row, or of the part of it that is there."""


class OpenSequence(NamedTuple):
    """A sequence whose first `offset` tokens have been put into rows; the others follow."""

    ticket: Ticket
    offset: int


def rows_position(inner: Position, rows: Sequence[Sequence[Member]], begun: Sequence[OpenSequence]) -> Position:
    """Return the sequences in open rows and the begun ones as JSON; the input gives those sequences first."""
    members = [*chain.from_iterable(rows)]
    cuts = [[number, *member[2:]] for number, member in enumerate(members) if is_cut(member)]
    position: dict[str, Any] = {"rows": [len(row) for row in rows]}
    if cuts:
        position["cuts"] = cuts
    if begun:
        position["begun"] = [one.offset for one in begun]
    return {**position, "input": replaying_tickets(inner, [*map(uncut, members), *[one.ticket for one in begun]])}


@dataclass(frozen=True)
class PackingPosition:
    """A decoded position: the elements that the input gives first, their places in rows, and where the input
    resumes."""

    back: Sequence[Ticket]
    sizes: Sequence[int]
    cuts: dict[int, tuple[int, int]]
    offsets: Sequence[int]
    rest: Position

    @staticmethod
    def of(position: Position) -> PackingPosition:
        place = named(position, "input")
        sizes, offsets = place.get("rows", []), place.get("begun", [])
        cuts = {number: (start, stop) for number, start, stop in place.get("cuts", [])}
        start, count = Start.of(place["input"]), sum(sizes) + len(offsets)
        if len(start.back) < count:
            raise ValueError(f"{count} elements are in the buffer, but {len(start.back)} are listed")
        return PackingPosition(
            start.back[:count], sizes, cuts, offsets, replaying_tickets(start.position, start.back[count:])
        )

    def rows(self) -> list[list[Member]]:
        """Return the members of each open row."""
        parts = iter(enumerate(self.back))
        numbered = ([next(parts) for _ in range(size)] for size in self.sizes)
        return [[cut(ticket, self.cuts.get(number)) for number, ticket in row] for row in numbered]

    def begun(self) -> list[OpenSequence]:
        """Return the sequences of which a part is still to be put into rows."""
        return [*map(OpenSequence, self.back[sum(self.sizes) :], self.offsets)]


def cut(ticket: Ticket, part: tuple[int, int] | None) -> Member:
    """Return the ticket of a part of a sequence."""
    return ticket if part is None else (CUT, ticket, *part)


def is_cut(member: Member) -> bool:
    """Return whether this is a part of a sequence."""
    return isinstance(member, tuple) and member[:1] == (CUT,)


def uncut(member: Member) -> Ticket:
    """Return the ticket of the entire sequence."""
    return member[1] if is_cut(member) else member


def uncut_row(ticket: Ticket) -> Ticket:
    """Return the ticket of a row with sequences in the place of their parts."""
    if not isinstance(ticket, Tickets):
        return ticket
    return ReplayedTickets([*map(uncut, ticket)], 0, len(ticket), END)


def odd_one(tokens: Tokens) -> StructureError:
    """Return the error of a sequence that is not like those in open rows."""
    return StructureError(f"the sequence has features {[*tokens.features]}, but those in open rows have others")


def part_of(member: Member, size: int) -> tuple[int, int]:
    """Return where a member starts and ends in its sequence of so many tokens."""
    return member[2:] if is_cut(member) else (0, size)


class Row:
    """An open row: pieces of sequences and their tickets."""

    __slots__ = ("members", "pieces")

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.pieces: list[Piece] = []


class PackingJournal:
    """The content of the open rows at some time, and the changes since: this gives the content at any later time."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.begin = [list(row.members) for row in rows]
        self.held = sum(map(len, self.begin))
        self.entries: list[tuple[int, Member]] = []

    def at(self, count: int) -> list[list[Member]]:
        """Return the members of each row after so many entries."""
        rows = [list(row) for row in self.begin]
        for place, member in self.entries[:count]:
            if member is CLOSED:
                del rows[place]
            elif place == len(rows):
                rows.append([member])
            else:
                rows[place].append(member)
        return rows


class PackingState(NamedTuple):
    """A position: after some entries of a journal and `done` of some elements, with some of them begun."""

    journal: PackingJournal
    entries: int
    tickets: Tickets
    done: int
    begun: Sequence[OpenSequence] = ()

    def position(self) -> Position:
        return rows_position(self.tickets.at(self.done), self.journal.at(self.entries), self.begun)


class Packer(Step):
    """The open rows, oldest first, and the free space of each."""

    def __init__(self, node: PackSequences) -> None:
        self.node = node
        self.length = node.length
        self.layout = node.layout
        self.rows: list[Row] = []
        self.space = np.zeros(0, np.int64)
        self.journal = PackingJournal(())
        self.tickets: Tickets = ReplayedTickets((), 0, 0, None)
        self.seen = 0
        self.begun: list[OpenSequence] = []
        self.out: list[tuple[Any, Ticket, PackingState]] = []
        self.start_position: PackingPosition | None = None
        self.back: list[Any] = []  # sequences that were in rows when the state was saved, until all are there

    def resume(self, position: Position) -> Start:
        place = PackingPosition.of(position)
        self.start_position = place if place.back else None
        return Start.of(position["input"])

    def need(self, want: int) -> int:
        return want if self.start_position is None else min(4096, len(self.start_position.back) - len(self.back))

    def feed(self, block: Block) -> Block:
        self.tickets, self.seen = block.tickets, 0
        if self.start_position is not None:
            self.seen = min(len(block), len(self.start_position.back) - len(self.back))
            self.back += block.items[: self.seen]
            if len(self.back) < len(self.start_position.back):
                return Block([])
            begun = self.put_back(self.start_position)
        else:
            begun = []
        if len(self.journal.entries) > max(64, self.journal.held):
            self.journal = PackingJournal(self.rows)
        before = self.state()
        for one, tokens in begun:
            del self.begun[0]
            self.put(tokens, one)
        for place in range(self.seen, len(block)):
            self.seen = place + 1
            self.take(block.items[place], block.tickets[place])
        return self.given(before)

    def state(self, *begun: OpenSequence) -> PackingState:
        """Return the position, with a sequence that has been begun."""
        return PackingState(self.journal, len(self.journal.entries), self.tickets, self.seen, [*begun, *self.begun])

    def given(self, before: PackingState) -> Block:
        """Return the output so far."""
        items, tickets, states = zip(*self.out, strict=True) if self.out else ((), (), ())
        self.out = []
        after = [before, *states]
        failed = Failure in set(map(type, items))
        return Block([*items], ExplicitTickets(tickets, lambda count: after[count].position()), failed)

    def take(self, item: Any, ticket: Ticket) -> None:
        """Put an element into rows; one that failed, or is no sequence, passes at once."""
        try:
            tokens = None if type(item) is Failure else self.accepted(item)
        except Exception as error:  # also errors of an element's own methods
            item, tokens = self.node.failure(error, ticket), None
        if tokens is None:
            self.out.append((item, alone(ticket), self.state()))
        else:
            self.put(tokens, OpenSequence(ticket, 0))

    def accepted(self, item: Any) -> Tokens:
        """Return an element as a sequence that rows can take; `StructureError` if they cannot."""
        tokens = self.node.sequence(self.layout, item)
        if self.rows and self.rows[0].pieces[0].tokens.features.keys() != tokens.features.keys():
            raise odd_one(tokens)
        return tokens

    def put(self, tokens: Tokens, begun: OpenSequence) -> None:
        """Put the rest of a sequence into rows; give out rows that are full or must make space."""
        ticket, offset = begun
        while offset < tokens.size:
            place, size = self.choose(tokens.size - offset)
            if place == len(self.rows) >= self.node.open_rows and size < self.length:
                self.close(int(self.space.argmin()), OpenSequence(ticket, offset))
                continue
            self.put_part(place, tokens, ticket, offset, offset + size)
            offset += size
            if not self.space[place]:
                self.close(place, *[OpenSequence(ticket, offset)][: offset < tokens.size])

    def choose(self, left: int) -> tuple[int, int]:
        """Return the row for a sequence, and how many of its tokens go there; the row after the last is a new one."""
        if not self.rows:
            return 0, min(left, self.length)
        if self.node.strategy not in FITTING:
            return len(self.rows) - 1, min(left, int(self.space[-1]))
        fits = self.space >= left
        best = self.node.strategy == BEST_FIT
        place = int(np.where(fits, self.space, self.length + 1).argmin() if best else fits.argmax())
        return (place if fits[place] else len(self.rows)), min(left, self.length)

    def put_part(self, place: int, tokens: Tokens, ticket: Ticket, start: int, stop: int) -> None:
        """Put a part of a sequence into a row."""
        if place == len(self.rows):
            self.rows.append(Row())
            self.space = np.append(self.space, self.length)
        member = ticket if stop - start == tokens.size else (CUT, ticket, start, stop)
        row = self.rows[place]
        row.pieces.append(Piece(tokens, start, stop))
        row.members.append(member)
        full = len(row.pieces) == self.node.max_sequences
        self.space[place] = 0 if full else self.space[place] - (stop - start)
        self.journal.entries.append((place, member))

    def close(self, place: int, *begun: OpenSequence) -> None:
        """Give a row out."""
        row = self.rows.pop(place)
        self.space = np.delete(self.space, place)
        self.journal.entries.append((place, CLOSED))
        members = ReplayedTickets(row.members, 0, len(row.members), END)
        try:
            item: Any = self.layout.row(row.pieces)
        except Exception as error:
            item = self.node.failure(error, members)
        self.out.append((item, members, self.state(*begun)))

    def put_back(self, place: PackingPosition) -> list[tuple[OpenSequence, Tokens]]:
        """Restore the rows from the sequences; return the sequences that had been begun."""
        found = map(self.still, self.back, place.back)
        for members in place.rows():
            number = len(self.rows)
            for member, tokens in zip(members, found, strict=False):
                start, stop = part_of(member, tokens.size)
                self.put_part(number, tokens, uncut(member), start, stop)
            if self.space[number] < 0:
                raise ResumeError(
                    f"{self.node.label()}: a row of the state has more tokens than {self.length}, or sequences"
                )
        self.begun = [*place.begun()]
        self.journal, self.start_position, self.back = PackingJournal(self.rows), None, []
        return [*zip(self.begun, found, strict=True)]

    def still(self, item: Any, ticket: Ticket) -> Tokens:
        """Return the sequence that lay in a row when the state was saved."""
        try:
            if type(item) is not Failure:
                return self.accepted(item)
            cause = item.error
        except Exception as error:
            cause = error
        what = f"{describe(ticket)} was a sequence that fits"
        raise ResumeError(f"{self.node.label()}: {what} when the state was saved, and is not now") from cause

    def flush(self) -> Iterator[Block]:
        while self.rows:
            before = self.state()
            self.close(0)
            yield self.given(before)
