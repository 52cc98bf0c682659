"""Logs: a file that says, for each step of a run, which elements were delivered, written with each state.

A log is text, one JSON value a line. Each run, from its start or from a state, begins with a dict: what all its states
share, how many elements had been delivered before (`begin`), the time, and which of several processes it is (`rank`). A
list follows for each element: its number in the epoch, its ticket as in an origin, or `null` if that is not known, and
a third item, 1, if it failed; or a dict for many that are alike: the first one and how many they are (`steps`), how
many members each has if they are batches (`each`), and the tickets of all (`of`), or their places in an order that can
be computed again, which a dict before it describes (`order`, a hash of it). Such lines may be deflated together
(`lines`). A dict says where the run continues after so many elements (`at`, `position`), as in a state. All that is
written at once ends with a dict that says why (`state`, `end`, `left`, `more`), after how many elements, and has a hash
of the run up to there: so a damaged file, or one that two runs wrote at once, is seen. A run that goes on in another
part begins there in the same way, with the last hash of the part before (`follows`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from threading import RLock
from typing import Any, Final, Literal, Self, TypeAlias

from asyncdata.errors import PlanError, ResumeError, StageError
from asyncdata.identity.exclusion import left_in
from asyncdata.persistence.run_log_files import LogFiles
from asyncdata.persistence.run_log_lines import Delivered, text_of
from asyncdata.runtime.tickets import Position, Ticket, Tickets, encode
from asyncdata.states import ResumePoint, shares_of
from asyncdata.system.rank import this_rank

__all__ = ("FORMAT", "HEAD", "IN_ANY_ORDER", "WITH_REPLACEMENT", "Occasion", "RunLog", "chained")

FORMAT: Final = 4
"""Logs of format 1 have no orders, those before 3 no compressed tickets, those before 4 no lines that are deflated."""

HEAD: Final = ("log", "each", "follows", "begin", "time", "rank")
"""What the beginning of a run has besides what all its states share."""

WITH_REPLACEMENT: Final = "with replacement"
"""What the step of a log says whose records are named by their draws: the number of the batch, its size, the place in
it, and the index."""

IN_ANY_ORDER: Final = "in any order"
"""What it says if batches come as they are ready."""

Occasion: TypeAlias = Literal["state", "end", "left", "more"]
"""Why something is written: a state is taken, the data has ended, the iterator was closed, or much has come."""


class RunLog:
    """Collects the tickets of what one iteration delivers, and appends them to its file. Thread-safe.

    Nothing is done for each element: a block's are noted when the next block begins, or when a state is taken.
    """

    def __init__(
        self,
        record: str | os.PathLike[str],
        shares: Sequence[Sequence[int]],
        begin: int,
        first: Position = None,
        each: Sequence[int] = (),
        left_in: Callable[[Any], Any] | None = None,
    ) -> None:
        self.files = LogFiles(record, shares)
        self.begin = self.noted = begin
        self.first = first
        self.left_in = left_in
        self.each = each
        self.pending = Delivered()
        self.orders = set[str]()
        """The names of the orders that are in this part."""
        self.chain = b""
        self.bytes_since = 0
        """How much was written since the last position."""
        self.last: tuple[int, Occasion] | None = None
        self.lock = RLock()

    @classmethod
    def of(cls, record: str | os.PathLike[str], place: ResumePoint) -> Self:
        """Return the log of a run of a plan from a place on."""
        first = place.start.position_with_skip()
        return cls(record, shares_of(place.plan), place.delivered, first, place.each, left_in(place.plan))

    def note(self, delivered: int, tickets: Tickets | None, count: int, failed: bool = False) -> None:
        """Note the first `count` elements of a block, before which so many were delivered; `None` if not known.

        What was noted already stays: a signal handler may have ended this before.
        """
        with self.lock:
            start = self.noted - delivered
            if start >= count:
                return
            if tickets is None or failed or tickets.elsewhere or self.left_in is not None:
                self.add_encoded(encoded(tickets, start, count), failed)
                return
            try:
                self.add_tickets(tickets, start, count)
            except (StageError, ResumeError):  # a source cannot say it
                self.add_encoded([None] * (delivered + count - self.noted), failed)

    def add_tickets(self, tickets: Tickets, start: int, stop: int) -> None:
        """Note elements of a block, together where that can be."""
        try:
            members, sizes = tickets.members(start, stop) or (tickets.slice(start, stop), None)
            ordered = members.ordered(0, len(members))
            if ordered is None and stop - start > 1 and ends_in_order(members):
                middle = (start + stop) // 2  # one order ends here, and another begins
                self.add_tickets(tickets, start, middle)
                self.add_tickets(tickets, middle, stop)
            else:
                self.noted = self.pending.add_alike(self.noted, members, sizes, ordered)
        except (ValueError, OverflowError):
            self.add_singly(tickets, start, stop)

    def add_singly(self, tickets: Tickets, start: int, stop: int) -> None:
        """Note elements whose tickets are not alike."""
        for ticket in tickets.between(start, stop):
            self.add_ticket(ticket)

    def add_ticket(self, ticket: Ticket) -> None:
        """Note an element: a batch of tickets that are alike together with others of such."""
        if isinstance(ticket, Tickets):
            with suppress(ValueError, OverflowError):
                ordered = ticket.ordered(0, len(ticket))
                self.noted = self.pending.add_alike(self.noted, ticket, [len(ticket)], ordered)
                return
        self.add_encoded([encode(ticket)], False)

    def add_encoded(self, found: Sequence[Any], failed: bool) -> None:
        """Note elements by their tickets as JSON."""
        for ticket in found:
            self.add(self.noted, ticket if ticket is None or self.left_in is None else self.left_in(ticket), failed)

    def add(self, place: int, ticket: Any, failed: bool) -> None:
        """Note an element, by its number in the epoch and its ticket as JSON."""
        self.noted = self.pending.add(place, ticket, failed)

    def pass_over(self, delivered: int) -> None:
        """Note nothing of the elements up to this number, which were left out."""
        with self.lock:
            self.noted = max(self.noted, delivered)

    def is_long(self) -> bool:
        """Return whether so much has come that it must be written."""
        return self.pending.is_long

    def write(
        self, header: Callable[[], Mapping[str, Any]], why: Occasion, position: Callable[[], Position] | None = None
    ) -> None:
        """Append what is noted to the file, unless nothing has come since; with a state, also where it continues."""
        with self.lock:
            now = (self.noted, why)
            new = len(self.pending) or (why == "end" and self.last != now)
            if not new and not (why == "state" and self.each and self.last is None):  # who goes on with others' shares
                return
            part = self.files.next_part()
            chain = self.chain if part == self.files.number else b""
            lines = [] if chain else self.head(header())
            orders = {*self.orders} if chain else set[str]()
            lines += self.pending.lines(orders)
            if position is not None:
                lines += self.where(position, sum(map(len, lines)), "unordered" in header())
            body = "".join([f"{line}\n" for line in lines]).encode()
            chain, first = chained(chain, body, why, self.noted), not chain
            self.files.write(part, body + f"{text_of({why: self.noted, 'sum': chain.hex()})}\n".encode(), first)
            self.chain, self.pending, self.last, self.orders = chain, Delivered(), now, orders

    def where(self, position: Callable[[], Position], new: int, unordered: bool) -> list[str]:
        """Return the line of a position, where it may be needed and does not make the log more than twice as long."""
        self.bytes_since += new
        lines = at(self.noted, position)
        if sum(map(len, lines)) > self.bytes_since and not unordered:
            return []
        self.bytes_since = 0
        return lines

    def head(self, header: Mapping[str, Any]) -> list[str]:
        """Return the lines with which a run begins, or goes on in another part."""
        time = self.files.began.isoformat(timespec="microseconds")
        each = {"each": list(self.each)} if self.each else {}
        begin, follows = (self.begin, {}) if self.last is None else (self.last[0], {"follows": self.chain.hex()})
        line = text_of({"log": FORMAT, **header, **each, **follows, "begin": begin, "time": time, **rank()})
        return [line] if follows else [line, *at(begin, lambda: self.first)]


def rank() -> dict[str, list[int]]:
    """Return which of how many processes this one is, if it is one of several: it may read all that others read."""
    with suppress(PlanError):
        world, number = this_rank()
        return {"rank": [number, world]} if world > 1 else {}
    return {}


def ends_in_order(tickets: Tickets) -> bool:
    """Return whether the first or the last of some elements stands in an order that can be computed again."""
    count = len(tickets)
    return any(tickets.ordered(place, place + 1) is not None for place in ((0, count - 1) if count else ()))


def encoded(tickets: Tickets | None, start: int, stop: int) -> list[Any]:
    """Return tickets as JSON; `None` where only a process knew them that has ended, or a source cannot say it."""
    if tickets is None:
        return [None] * (stop - start)
    try:
        return tickets.encoded(start, stop)
    except (StageError, ResumeError):
        return [None] * (stop - start)


def at(count: int, position: Callable[[], Position]) -> list[str]:
    """Return the line that says where a run continues after so many elements; none if a step cannot say it in JSON."""
    try:
        return [text_of({"at": count, "position": position()})]
    except (StageError, ResumeError, TypeError, ValueError):
        return []


def chained(chain: bytes, body: bytes, why: str, count: int) -> bytes:
    """Return the hash of a run's log up to the end of `body`, before which it was `chain`."""
    return blake2b(chain + body + f"{why} {count}".encode(), digest_size=8).digest()
