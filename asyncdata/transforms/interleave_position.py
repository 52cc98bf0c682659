"""The position of an interleave after any element, and its form in a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, final

from asyncdata.runtime.tickets import Position, Tickets, TicketWrapper, replaying

__all__ = (
    "CycleSnapshot",
    "Event",
    "FailedSlot",
    "InterleavePosition",
    "InterleaveTickets",
    "RoundsDrawn",
    "SlotClosed",
    "SlotDrawn",
    "SlotOpened",
    "SlotState",
)


@dataclass(frozen=True)
class InterleavePosition:
    """The position of an interleave in a state: the positions of its input and of each slot's dataset, and whose turn
    it was.

    To resume, the input opens the slots again and each dataset resumes where it was. After resharding, more datasets
    may be open than there are slots: `waiting` holds the positions of the others.
    """

    outer: Position = None
    slots: Sequence[tuple[int, Position]] = ()
    index: int = 0
    turn: int | None = None
    waiting: Sequence[Position] = ()

    @property
    def pending(self) -> list[tuple[int | None, Position]]:
        """The slots that the datasets of the input's first elements had, if they had one, and where they were."""
        return [*((slot, begin) for slot, begin in self.slots), *((None, begin) for begin in self.waiting)]

    @property
    def begun(self) -> list[Position]:
        """Where the datasets of the input's first elements were."""
        return [begin for _, begin in self.pending]


class SlotState(NamedTuple):
    """An open slot: the element it is for, and where its dataset resumes, after `done` of some tickets."""

    outer: Tickets
    begin: Position
    inner: Tickets | None
    done: int

    def position(self) -> Position:
        """Return where the slot's dataset resumes."""
        return self.begin if self.inner is None else self.inner.at(self.done)


class SlotOpened(NamedTuple):
    """A slot was opened for an element."""

    slot: int
    state: SlotState


class SlotClosed(NamedTuple):
    """A slot's dataset has ended."""

    slot: int


class FailedSlot(NamedTuple):
    """An element for which no dataset could be made went out as a failure, in the turn of a slot."""

    slot: int
    outer: Tickets


class SlotDrawn(NamedTuple):
    """`size` elements of a slot went out, from element `start` of its tickets on, when its turn was `turn` long."""

    slot: int
    turn: int
    inner: Tickets
    start: int
    size: int


class RoundsDrawn(NamedTuple):
    """One element of each slot went out in turn, `size` times; each slot with its tickets and where they began."""

    slots: Sequence[tuple[int, Tickets, int]]
    size: int


Event: TypeAlias = SlotOpened | SlotClosed | FailedSlot | SlotDrawn | RoundsDrawn


class CycleSnapshot(NamedTuple):
    """The position of an interleave before some events: its open slots, the last element opened, and whose turn it was.

    `pending` has the slots of the next elements' datasets that were started before and are not open again yet.
    """

    slots: Mapping[int, SlotState]
    outer: Tickets | None
    begin: Position
    slot: int
    turn: int
    pending: Sequence[tuple[int | None, Position]]


@final
class InterleaveTickets(TicketWrapper):
    """The tickets of elements that an interleave put out together."""

    __slots__ = ("before", "events", "length")

    def __init__(self, base: Tickets, before: CycleSnapshot, events: Sequence[Event], length: tuple[int, int]) -> None:
        super().__init__(base)
        self.before = before
        self.events = events
        self.length = length

    def at(self, count: int) -> Position:
        follow = PositionReplay(self.before, *self.length)
        for event in self.events:
            if count == 0:
                break
            count = follow.after(event, count)
        return follow.position()


class PositionReplay:
    """Replays events up to some element, and returns the position of the interleave then."""

    def __init__(self, snapshot: CycleSnapshot, cycle_length: int, block_length: int) -> None:
        self.slots = dict(snapshot.slots)
        self.outer = snapshot.outer
        self.begin = snapshot.begin
        self.index = snapshot.slot
        self.turn = snapshot.turn
        self.pending = snapshot.pending
        self.cycle_length = cycle_length
        self.block_length = block_length

    def after(self, event: Event, count: int) -> int:
        """Go through one event, or the first `count` of its elements; return how many of `count` are left."""
        match event:
            case SlotOpened(slot, state):
                self.slots[slot], self.outer = state, state.outer
                self.pending = self.pending[1:]
            case SlotClosed(slot):
                del self.slots[slot]
            case FailedSlot(slot, outer):
                self.outer = outer
                if not self.pending or self.pending[0][0] is None:  # else it was opened again, out of turn
                    self.index, self.turn = slot, self.block_length
                self.pending = self.pending[1:]
                return count - 1
            case SlotDrawn(slot, turn, inner, start, size):
                size = min(size, count)
                self.slots[slot] = self.slots[slot]._replace(inner=inner, done=start + size)
                self.pass_on(slot, turn - size)
                return count - size
            case RoundsDrawn(slots, size):
                return self.rounds(slots, size, count)
        return count

    def rounds(self, slots: Sequence[tuple[int, Tickets, int]], size: int, count: int) -> int:
        """Go through rounds of one element each."""
        out = min(size * len(slots), count)
        for place, (slot, inner, start) in enumerate(slots):
            drawn = (out - place + len(slots) - 1) // len(slots)
            self.slots[slot] = self.slots[slot]._replace(inner=inner, done=start + drawn)
        self.pass_on(slots[(out - 1) % len(slots)][0], 0)
        return count - out

    def pass_on(self, slot: int, turn: int) -> None:
        """Record whose turn it is after a draw from `slot` that left so much of its turn."""
        self.index, self.turn = (slot, turn) if turn > 0 else ((slot + 1) % self.cycle_length, self.block_length)

    def position(self) -> Position:
        """Return where to resume: the open slots' elements come first, to open their datasets at their positions."""
        outer = self.begin if self.outer is None else self.outer.at(1)
        opened = [[slot, state.position()] for slot, state in self.slots.items()]
        place = {
            "outer": replaying(outer, [state.outer for state in self.slots.values()]),
            "slots": [*opened, *([slot, begin] for slot, begin in self.pending if slot is not None)],
            "index": self.index,
            "turn": self.turn,
        }
        waiting = [begin for slot, begin in self.pending if slot is None]
        return {**place, "waiting": waiting} if waiting else place
