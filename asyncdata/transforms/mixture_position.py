"""The position of a mixture of datasets after any element, computed from the draws from each input.

Positions of inputs are computed when a state is requested, and only for inputs that were drawn from since the last
state. The result is stored in a list that is copied and never changed, so a state of ten thousand inputs costs little
more than that copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np

from asyncdata.graph.node import Node, beginning
from asyncdata.runtime.columns import Columns, at_places, joined_columns
from asyncdata.runtime.tickets import ExplicitTickets, Position, Ticket, Tickets
from asyncdata.transforms.mixture_reader import Choices, DrawnBlock, DrawnPiece, MixtureReader

__all__ = ("MixtureHistory", "begun_at")

Place: TypeAlias = tuple[Tickets, int]
"""The position of an input: after so many elements of some tickets."""


class InputPlace(NamedTuple):
    """The position of an input, and how many elements it has given by then."""

    position: Place
    given: int


def begun_at(position: Position) -> Tickets:
    """Return the tickets of no elements, with a position to begin at."""
    return ExplicitTickets((), lambda _: position)


class DrawRecord:
    """The draws of one block: the input of each element, the pieces of each input, and how many elements it had given
    before."""

    __slots__ = ("before", "cached_ranks", "chosen", "pieces")

    def __init__(self, chosen: Choices, pieces: dict[int, list[DrawnPiece]], before: dict[int, int]) -> None:
        self.chosen = chosen
        self.pieces = pieces
        self.before = before
        self.cached_ranks: list[int] | None = None

    def __len__(self) -> int:
        return len(self.chosen)

    def tickets(self) -> Iterator[Ticket]:
        """Yield the ticket of each element: its input's number, and its ticket there."""
        inner = {index: chain.from_iterable(map(rest, pieces)) for index, pieces in self.pieces.items()}
        chosen = self.chosen.tolist()
        return zip(chosen, map(next, map(inner.__getitem__, chosen)), strict=True)

    def in_columns(self, start: int, stop: int) -> Columns:
        """Return the tickets of some elements as arrays; `None` if those of an input are not known so."""
        order = np.argsort(self.chosen[:stop], kind="stable")
        counts = np.bincount(self.chosen[:stop]).tolist()
        found = joined_columns(
            [
                tickets.in_columns(begin, end)
                for index, count in enumerate(counts)
                for tickets, begin, end in firsts(self.pieces.get(index, ()), count)
            ]
        )
        places = np.empty_like(order)
        places[order] = np.arange(stop)
        if found is None:
            return None
        return {"0": self.chosen[start:stop].astype(np.int64), "1": at_places(found, places[start:stop])}

    def ranks(self) -> list[int]:
        """Return for each element how many had been drawn from its input by then, itself included."""
        if self.cached_ranks is None:
            order = np.argsort(self.chosen, kind="stable")
            grouped = self.chosen[order]
            numbers = np.arange(len(grouped))
            first = numbers.copy()
            first[1:][grouped[1:] == grouped[:-1]] = 0
            ranks = np.empty_like(numbers)
            ranks[order] = numbers + 1 - np.maximum.accumulate(first)
            self.cached_ranks = ranks.tolist()
        return self.cached_ranks

    def drawn(self, start: int, stop: int) -> Iterator[tuple[int, InputPlace]]:
        """Yield each input from which elements `start` to `stop` came, and its position after them."""
        counts = dict(zip(self.chosen[start:stop].tolist(), self.ranks()[start:stop], strict=True))
        return (
            (index, InputPlace(self.position_of(index, count), self.before[index] + count))
            for index, count in counts.items()
        )

    def position_of(self, index: int, count: int) -> Place:
        """Return the position of an input when `count` elements had been drawn from it."""
        for tickets, start in self.pieces[index]:
            if start + count <= len(tickets):
                return tickets, start + count
            count -= len(tickets) - start
        raise IndexError(count)


def firsts(pieces: Sequence[DrawnPiece], count: int) -> Iterator[tuple[Tickets, int, int]]:
    """Yield which elements of which tickets the first `count` of some pieces are."""
    for tickets, start in pieces:
        end = min(len(tickets), start + count)
        if end > start:
            yield tickets, start, end
        count -= end - start


def rest(piece: DrawnPiece) -> Iterable[Ticket]:
    return piece.tickets.slice(piece.start, len(piece.tickets))


class InputPositions(NamedTuple):
    """The positions of all inputs after `done` elements of a record, and how many elements each has given; the lists
    must not be changed."""

    journal: MixtureJournal
    number: int
    done: int
    inputs: list[Position]
    given: list[int]


class LastPosition:
    """The result that was computed last. Readers replace it, and never change it."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: InputPositions | None = None


class MixtureJournal:
    """The position of each input at some time, and each record since. The stage adds records; readers only read."""

    __slots__ = ("base", "count", "memo", "previous", "records")

    def __init__(self, base: list[InputPlace], memo: LastPosition, previous: MixtureJournal | None = None) -> None:
        self.base = base
        self.memo = memo
        self.previous = previous
        self.records: list[DrawRecord] = []
        self.count = 0

    def add(self, record: DrawRecord) -> int:
        self.records.append(record)
        self.count += len(record)
        return len(self.records) - 1

    def positions(self, number: int, count: int) -> InputPositions:
        """Return the position of each input after the first `count` elements of a record."""
        known = self.memo.known
        changed = {} if known is None else self.since(known, number, count)
        if known is None or changed is None:
            places = list(self.base)
            for index, place in self.between((0, 0), (number, count)):
                places[index] = place
            inputs = [tickets.at(done) for (tickets, done), _ in places]
            given = [place.given for place in places]
        else:
            inputs, given = known.inputs.copy(), known.given.copy()
            for index, ((tickets, done), total) in changed.items():
                inputs[index], given[index] = tickets.at(done), total
        self.memo.known = found = InputPositions(self, number, count, inputs, given)
        return found

    def since(self, known: InputPositions, number: int, count: int) -> dict[int, InputPlace] | None:
        """Return the changes since the known state, or `None` if that is too long ago, or later."""
        begin, end = (known.number, known.done), (number, count)
        if known.journal is self and begin <= end:
            return dict(self.between(begin, end))
        if known.journal is self.previous:
            before = known.journal.between(begin, known.journal.end())
            return dict(chain(before, self.between((0, 0), end)))
        return None

    def end(self) -> tuple[int, int]:
        """Return the number of the last record, and how many elements it has."""
        return len(self.records) - 1, len(self.records[-1])

    def between(self, begin: tuple[int, int], end: tuple[int, int]) -> Iterator[tuple[int, InputPlace]]:
        """Yield the positions of inputs after each record from one place to another; the last one for each input
        counts."""
        for number in range(begin[0], end[0] + 1):
            record = self.records[number]
            start = begin[1] if number == begin[0] else 0
            yield from record.drawn(start, end[1] if number == end[0] else len(record))


class MixtureHistory:
    """Writes the journal of a run: starts a new one when it is as long as there are inputs, so that it stays short."""

    def __init__(
        self, draws: MixtureReader, given: Sequence[int], inputs: Sequence[Node], counted: bool = False
    ) -> None:
        self.draws = draws
        self.given = list(given)
        """How many elements each input has given."""
        self.inputs = inputs
        self.counted = counted
        """Whether positions say how many elements each input has given."""
        self.journal = self.begun(LastPosition())

    def begun(self, memo: LastPosition, previous: MixtureJournal | None = None) -> MixtureJournal:
        """Return a journal that begins here."""
        return MixtureJournal(list(map(InputPlace, self.draws.places(), self.given)), memo, previous)

    def note(self, chosen: Choices, drawn: DrawnBlock, place: Callable[[int], dict[str, Position]]) -> MixedTickets:
        """Record the draws, and return the tickets; `place` gives the rest of a position."""
        given = self.given
        journal, record = (
            self.journal,
            DrawRecord(chosen, drawn.pieces, {index: given[index] for index in drawn.pieces}),
        )
        number = journal.add(record)
        counts = np.bincount(chosen)
        for index in record.before:
            if index < len(counts):
                given[index] += int(counts[index])
        if journal.count > len(journal.base):
            journal.previous = None  # two are enough, and a chain of them would hold everything in memory
            self.journal = self.begun(journal.memo, journal)
        return MixedTickets(self, journal, number, place)


@final
class MixedTickets(Tickets):
    """The tickets of elements that came from several inputs: pairs of its number and the ticket there."""

    __slots__ = ("chooser_position", "counted", "inputs", "journal", "listed", "number", "record")

    def __init__(
        self,
        history: MixtureHistory,
        journal: MixtureJournal,
        number: int,
        place: Callable[[int], dict[str, Position]],
    ) -> None:
        self.journal = journal
        self.number = number
        self.inputs, self.counted = history.inputs, history.counted
        self.chooser_position = place
        self.record = journal.records[number]
        self.listed: Sequence[Any] = ()

    def __len__(self) -> int:
        return len(self.record)

    def __getitem__(self, index: int) -> Ticket:
        if not self.listed:
            self.listed = list(self.record.tickets())
        return self.listed[index]

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self.listed) if self.listed else self.record.tickets()

    def in_columns(self, start: int, stop: int) -> Columns:
        return self.record.in_columns(start, stop)

    def at(self, count: int) -> Position:
        found = self.journal.positions(self.number, count)
        books = {"given": list(found.given)} if self.counted else {}
        positions = found.inputs[: len(self.inputs)]
        for index, pieces in self.record.pieces.items():
            if index < len(positions) and positions[index] is None:
                positions[index] = beginning(self.inputs[index], pieces[0].tickets)
        return {**self.chooser_position(count), **books, "inputs": positions}
