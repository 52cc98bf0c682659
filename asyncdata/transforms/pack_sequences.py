"""pack_sequences: sequences of tokens side by side in rows of one length, and which token is whose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from asyncdata.errors import PlanError, StructureError
from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.plan import Unary, check_count
from asyncdata.runtime.block import Block, Blocks, Demand, Failure
from asyncdata.runtime.executors import noted
from asyncdata.runtime.scope import Scope
from asyncdata.runtime.stage import Fold, Step
from asyncdata.runtime.tickets import END, Given, Listed, Position, Start, Ticket, Tickets, decode, encode
from asyncdata.structure import TensorSpec
from asyncdata.transforms.batch import exactly

__all__ = ("PackSequences",)

STRATEGIES: Final = ("first_fit", "concat")
OVERLONG: Final = ("error", "truncate", "split")
ADDED: Final = ("segment_ids", "positions")

Sequences = dict[str, npt.NDArray[Any]]
"""The tokens of one element by their names."""


class Piece(NamedTuple):
    """The ticket of what stands in a row: tokens `start` to `stop` of an element."""

    element: Ticket
    start: int
    stop: int

    def __str__(self) -> str:
        return str(self.element)


@dataclass(frozen=True, eq=False)
class PackSequences(Unary):
    """Rows of `length` tokens, each of one or several elements."""

    length: int
    strategy: str = "first_fit"
    overlong: str = "error"
    num_packing_bins: int = 64
    pad_value: Any = 0
    drop_remainder: bool = False

    def checked(self) -> PackSequences:
        """Return the node if its arguments make sense."""
        check_count("pack_sequences", "length", self.length, 1)
        check_count("pack_sequences", "num_packing_bins", self.num_packing_bins, 1)
        for name, known in (("strategy", STRATEGIES), ("overlong", OVERLONG)):
            if getattr(self, name) not in known:
                raise PlanError(f"pack_sequences({name}=) must be one of {known}, got {getattr(self, name)!r}")
        if self.strategy == "concat" and self.overlong != "error":
            raise PlanError(
                "pack_sequences(overlong=) is for strategy='first_fit'; 'concat' splits wherever a row ends"
            )
        return self

    def stage(self) -> Fold:
        return Fold(lambda _: Packer(self))

    @property
    def cardinality(self) -> int:
        return 0 if self.input.cardinality == 0 else UNKNOWN_CARDINALITY

    @property
    def signature(self) -> Any:
        spec = self.input.signature
        named: Any = {"tokens": spec} if isinstance(spec, TensorSpec) else spec
        if not isinstance(named, dict):
            return None
        found = cast("dict[str, Any]", named)
        if not all(isinstance(part, TensorSpec) for part in found.values()):
            return None
        kinds = {**{name: part.dtype for name, part in found.items()}, **dict.fromkeys(ADDED, np.int32)}
        return {name: TensorSpec((self.length,), kind) for name, kind in kinds.items()}

    async def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        """Pack the same pieces again; what is no row is an element that failed."""
        rows = [pieces_of(ticket) for ticket in tickets]
        inner = Demand()
        start = Start(END, [piece.element for row in rows for piece in row])
        async with aclosing(self.input.open(scope, inner, start)) as source:
            for place, row in enumerate(rows):
                found = await exactly(source, inner, len(row))
                if found is None:
                    return
                if isinstance(tickets[place], Tickets):
                    item = self.row([*zip(row, found.items, strict=True)], tickets[place])
                else:
                    item = self.refused(found.items[0], tickets[place])
                yield Block([item], Given(tickets, place, place + 1, END), type(item) is Failure)

    def refused(self, item: Any, ticket: Ticket) -> Any:
        """Return the failure that an element is, or that becomes of it."""
        if type(item) is Failure:
            return item
        found = self.sequences(item, ticket)
        return found if type(found) is Failure else self.too_long(found, ticket)

    def sequences(self, item: Any, ticket: Ticket) -> Sequences | Failure:
        """Return the tokens of an element, or a failure if it is no sequence."""
        named = cast("dict[str, Any]", item) if isinstance(item, dict) else {"tokens": item}
        arrays = {name: np.asarray(part) for name, part in named.items()}
        wrong = next((name for name, array in arrays.items() if array.ndim != 1 or name in ADDED), None)
        if wrong is None and len({len(array) for array in arrays.values()}) == 1:
            return arrays
        shapes = ", ".join(f"{name}: {array.shape}" for name, array in arrays.items())
        hint = f"; {', '.join(ADDED)} are added here" if wrong in ADDED else ""
        error = StructureError(f"an element must be a sequence, or a dict of such of one length, got {shapes}{hint}")
        return noted(error, self.label(), ticket)

    def too_long(self, found: Sequences, ticket: Ticket) -> Failure:
        """Return the failure of a sequence that no row can hold."""
        size = len(next(iter(found.values())))
        error = StructureError(
            f"a sequence of {size} tokens fits no row of {self.length}; make rows longer, or say overlong='truncate' "
            "or overlong='split'"
        )
        return noted(error, self.label(), ticket)

    def row(self, parts: Sequence[tuple[Piece, Any]], ticket: Ticket) -> Any:
        """Return a row of pieces of elements, or the failure in its place."""
        try:
            made = self.joined([(piece, as_sequences(item)) for piece, item in parts])
        except (StructureError, ValueError, TypeError, MemoryError) as error:
            return noted(error, self.label(), ticket)
        sizes = [piece.stop - piece.start for piece, _ in parts]
        return {**made, **whose(sizes, self.length)}

    def joined(self, parts: Sequence[tuple[Piece, Sequences]]) -> Sequences:
        """Return the tokens of a row by their names."""
        names = parts[0][1].keys()
        for _, found in parts:
            if found.keys() != names:
                raise StructureError(f"elements of one row have the parts {list(names)} and {list(found)}")
        return {name: self.padded([found[name][piece.start : piece.stop] for piece, found in parts]) for name in names}

    def padded(self, parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return sequences one after the other, and padding up to the length of a row."""
        made = np.full(self.length, self.pad_value, np.result_type(*parts))
        np.concatenate(parts, out=made[: sum(map(len, parts))])
        return made

    def label(self) -> str:
        given = {name: getattr(self, name) for name in ("strategy", "overlong", "num_packing_bins", "pad_value")}
        shown = [f"{name}={value!r}" for name, value in given.items() if value != getattr(PackSequences, name)]
        last = ["drop_remainder=True"] if self.drop_remainder else []
        return f"pack_sequences({', '.join([str(self.length), *shown, *last])})"


def as_sequences(item: Any) -> Sequences:
    """Return the tokens of a sound element."""
    named = cast("dict[str, Any]", item) if isinstance(item, dict) else {"tokens": item}
    return {name: np.asarray(part) for name, part in named.items()}


def whose(sizes: Sequence[int], length: int) -> Sequences:
    """Return which sequence each token of a row belongs to, counted from 1, and its place there; 0 for padding."""
    segments, places = np.zeros(length, np.int32), np.zeros(length, np.int32)
    begin = 0
    for number, size in enumerate(sizes, 1):
        segments[begin : begin + size] = number
        places[begin : begin + size] = np.arange(size)
        begin += size
    return {"segment_ids": segments, "positions": places}


def pieces_of(ticket: Ticket) -> list[Piece]:
    """Return what stands in the row with this ticket; an element that failed is a piece of its own."""
    return [Piece(*piece) for piece in ticket] if isinstance(ticket, Tickets) else [Piece(ticket, 0, 0)]


@dataclass(eq=False)
class Row:
    """A row that has room."""

    used: int = 0
    pieces: tuple[Piece, ...] = ()
    items: list[Any] = field(default_factory=list[Any])

    def add(self, piece: Piece, item: Any) -> None:
        """Put a piece behind the others; `pieces` is another tuple then, as states may hold the old one."""
        self.used += piece.stop - piece.start
        self.pieces = (*self.pieces, piece)
        self.items.append(item)


class Spot(NamedTuple):
    """A position: after `done` of some elements, with rows that are begun; the first `ready` of them are to go out."""

    tickets: Tickets
    done: int
    rows: tuple[tuple[Piece, ...], ...]
    ready: int = 0

    def position(self) -> Position:
        """Return it as JSON."""
        told = [[encode(tuple(piece)) for piece in row] for row in self.rows]
        return {"input": self.tickets.at(self.done), "rows": told, "ready": self.ready}


class Packer(Step):
    """Puts pieces into the rows that are begun, and gives out those that are full, or the oldest of too many."""

    def __init__(self, node: PackSequences) -> None:
        self.node = node
        self.rows: list[Row] = []
        self.expected: list[tuple[Row, Piece]] = []
        self.ready = 0
        self.last: Tickets = Given((), 0, 0, END)
        self.out: list[tuple[Any, Ticket, Spot]] = []

    def resume(self, position: Position) -> Start:
        told = [[Piece(*decode(piece)) for piece in row] for row in position["rows"]]
        self.rows = [Row() for _ in told]
        self.expected = [(row, piece) for row, pieces in zip(self.rows, told, strict=True) for piece in pieces]
        self.ready = position["ready"]
        return Start.of(position["input"], [piece.element for _, piece in self.expected])

    def need(self, want: int) -> int:
        return len(self.expected) or want

    def feed(self, block: Block) -> Block:
        again = min(len(self.expected), len(block))
        for item, (row, piece) in zip(block.items, self.expected[:again], strict=False):
            row.add(piece, item)
        del self.expected[:again]
        self.last = block.tickets
        before = Spot(block.tickets, again, self.told(), self.ready)
        if not self.expected:
            self.give_out(again)
            for place in range(again, len(block)):
                self.place(block.items[place], block.tickets[place], place + 1)
        return self.taken(before)

    def told(self) -> tuple[tuple[Piece, ...], ...]:
        return tuple([row.pieces for row in self.rows])

    def place(self, item: Any, ticket: Ticket, done: int) -> None:
        """Put an element into rows; what fails goes out at once."""
        found = item if type(item) is Failure else self.node.sequences(item, ticket)
        size = 0 if type(found) is Failure else len(next(iter(found.values())))
        if type(found) is not Failure and size > self.node.length and self.must_fit():
            found = self.node.too_long(found, ticket)
        if type(found) is Failure:
            self.out.append((found, ticket, Spot(self.last, done, self.told())))
            return
        full: list[Row] = []
        start = 0
        while start < size:
            row = self.room_for(size - start, full)
            stop = min(size, start + self.node.length - row.used)
            row.add(Piece(ticket, start, stop), found)
            start = size if self.node.overlong == "truncate" else stop
            if row.used == self.node.length:
                full.append(row)
                self.rows.remove(row)
        self.rows[:0] = full
        self.ready = len(full)
        self.give_out(done)

    def must_fit(self) -> bool:
        return self.node.strategy == "first_fit" and self.node.overlong == "error"

    def room_for(self, size: int, full: list[Row]) -> Row:
        """Return the row for a piece: the first that has room; with "concat" the only one."""
        least = 1 if self.node.strategy == "concat" else min(size, self.node.length)
        for row in self.rows:
            if self.node.length - row.used >= least:
                return row
        if len(self.rows) == self.node.num_packing_bins:
            full.append(self.rows.pop(0))
        self.rows.append(Row())
        return self.rows[-1]

    def give_out(self, done: int) -> None:
        """Give out the rows that are ready."""
        for left in range(self.ready - 1, -1, -1):
            row = self.rows.pop(0)
            ticket = Given(row.pieces, 0, len(row.pieces), END)
            item = self.node.row([*zip(row.pieces, row.items, strict=True)], ticket)
            self.out.append((item, ticket, Spot(self.last, done, self.told(), left)))
        self.ready = 0

    def taken(self, before: Spot) -> Block:
        """Return what has gone out."""
        out, self.out = self.out, []
        spots = [before, *[spot for _, _, spot in out]]
        items = [item for item, _, _ in out]
        tickets = Listed([ticket for _, ticket, _ in out], lambda count: spots[count].position())
        return Block(items, tickets, Failure in set(map(type, items)))

    def flush(self) -> Iterator[Block]:
        before = Spot(self.last, len(self.last), self.told())
        if self.rows and not self.node.drop_remainder:
            self.ready = len(self.rows)
            self.give_out(len(self.last))
            yield self.taken(before)
