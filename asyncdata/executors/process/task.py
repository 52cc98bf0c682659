"""Tasks: how a group of elements is sent to a worker process, processed there, and put back in its place."""

from __future__ import annotations

import copyreg
import os
import pickle
import time
import traceback
from collections.abc import Callable, Sequence
from itertools import chain
from math import inf
from typing import Any, Final, NamedTuple, cast, final

import numpy as np

from asyncdata.elements.columns import ColumnBatch
from asyncdata.errors import WorkerCrashed
from asyncdata.executors.function_call import ENDLESS, LATE, Deadline, ElementIndex, ElementNote, never, noted
from asyncdata.executors.function_times import FunctionKey
from asyncdata.executors.group_work import GroupWork
from asyncdata.executors.process.exceptions import pickled_error, unpickled_error, words_of
from asyncdata.executors.process.shm_arena import pickled_by_value
from asyncdata.memory.buffer_pool import Empty
from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.retry_count import RETRIED
from asyncdata.runtime.tickets import FilteredTickets, Position, Ticket, Tickets, plain
from asyncdata.system.thread_usage import queued

__all__ = (
    "IsolatedElement",
    "RemoteError",
    "Task",
    "TaskInput",
    "TaskResult",
    "carry_out",
    "crashed",
    "fit",
    "reached",
    "sent_back",
    "sent_to_worker",
    "unpack_item",
)


CHECKS: Final = 16
"""How often at most it is seen, while a worker has a group, whether that takes too long."""


class TaskInput(NamedTuple):
    """The good elements of a group in the form that is sent: items, batches among them as lists, or their columns, and
    tickets if needed."""

    items: list[Any] | tuple[ColumnBatch, ...]
    batches: bool
    tickets: list[Ticket] | None

    def sealed(self) -> TaskInput:
        """Return the same with each element pickled by itself, except elements in columns."""
        if isinstance(self.items, tuple):
            return self
        seal = [[*map(IsolatedElement.of, item)] if self.batches else IsolatedElement.of(item) for item in self.items]
        return self._replace(items=seal)


class Task(NamedTuple):
    """The request to a worker: a group, its epoch, whether to do all of it however long that takes, whether one by one
    since it has killed a worker, and which elements to skip."""

    sent: TaskInput
    epoch: tuple[Any, ...]
    unlimited: bool
    careful: bool = False
    blamed: dict[int, str] | None = None
    apart: bool = False
    """Whether each result is pickled alone, since those of a group could not be unpickled together."""


class TaskResult(NamedTuple):
    """The outcome of a group: results, the places of those that stay if not all do, how many elements were processed,
    the seconds it took, and the seconds of these without a core and those that it computed.
    """

    items: list[Any] | tuple[ColumnBatch, ...]
    places: list[int] | None
    done: int
    seconds: float
    queued: float
    cpu: float = 0.0
    ended: float = 0.0
    """When it was done, by the clock that all processes share, and which one did it."""
    worker: int = 0
    retries: int = 0
    """How many calls were made again."""
    functions: dict[FunctionKey, float] | None = None
    """The seconds of each function, if there are several."""

    @property
    def failures(self) -> list[RemoteError]:
        """Return the failure."""
        rows: list[Any] = [item if type(item) is list else [item] for item in self.items]
        return [item for item in chain.from_iterable(rows) if type(item) is RemoteError]

    def in_columns(self) -> TaskResult:
        """Return the same with small rows of arrays put together, which travel in a fraction of the time."""
        columns = None if isinstance(self.items, tuple) else ColumnBatch.bundle(self.items)
        return self if columns is None else self._replace(items=(columns,))

    def apart(self) -> TaskResult:
        """Return the same with each row in memory of its own."""
        return self._replace(items=ColumnBatch.apart(self.items)) if isinstance(self.items, tuple) else self

    @property
    def worked(self) -> float:
        """For how many seconds there was a core for it: on a busy machine the work is no more than before."""
        return self.seconds - self.queued


class IsolatedElement(NamedTuple):
    """An element that is pickled by itself, so that if it cannot be unpickled others can."""

    pickled: bytes

    @staticmethod
    def of(item: Any) -> IsolatedElement:
        """Return an element, with objects of the main script by value."""
        return IsolatedElement(pickled_by_value(item))


class RaisedInWorkerError(Exception):
    """Shows where in a worker process an error was raised: the cause of one that came from there."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class RemoteError(NamedTuple):
    """A failure as it travels: an exception loses its traceback on the way, which is sent as text."""

    error: BaseException
    text: str

    @staticmethod
    def of(error: BaseException) -> RemoteError:
        """Return an exception for its way."""
        shown = traceback.TracebackException.from_exception(error)
        shown.__notes__ = None
        return RemoteError(error, "".join(shown.format()))

    def __reduce__(self) -> tuple[Any, ...]:
        return arrived, (pickled_error(self.error), self.text, f"{type(self.error).__name__}: {words_of(self.error)}")

    def forget_frames(self) -> None:
        """Release the frames where it was raised: they form a cycle with it, and would hold the results of its
        group."""
        error: BaseException | None = self.error
        while error is not None and error.__traceback__ is not None:
            error.with_traceback(None)
            error = error.__cause__ or error.__context__

    def failure(self, ticket: Ticket) -> Failure:
        """Return the failure, with the name of its element in its note."""
        notes: Any = getattr(self.error, "__notes__", None)
        if isinstance(notes, list):
            name_notes(cast("list[object]", notes), ticket)
        return Failure(self.with_cause())

    def with_cause(self) -> BaseException:
        """Return the exception, with the text that says where it was raised as its cause."""
        cause = self.error.__cause__ or RaisedInWorkerError(self.text)
        BaseException.__setattr__(self.error, "__cause__", cause)  # a frozen dataclass allows no other way to set it
        return self.error


def reduced_failure(failure: Failure) -> tuple[Any, ...]:
    """Return a failure in the form in which it is pickled in a dataset, such as a window."""
    return unpickled_failure, (RemoteError.of(failure.error), failure.of_source)


def unpickled_failure(error: RemoteError, of_source: bool) -> Failure:
    """Return a failure that was pickled."""
    return Failure(error.with_cause(), of_source)


copyreg.pickle(Failure, reduced_failure)


def name_notes(notes: list[object], ticket: Ticket) -> None:
    """Put the name of an element in the notes on it."""
    for index, note in enumerate(notes):
        if isinstance(note, ElementNote):
            notes[index] = note.naming(ticket)


def arrived(pickled: bytes, text: str, words: str) -> RemoteError:
    """Return a failure that has arrived, as a RuntimeError if its class is not to be found in this process."""
    try:
        return RemoteError(unpickled_error(pickled), text)
    except Exception as error:
        refusal = RuntimeError(f"{words} (whose class cannot be loaded in this process: {error!r})")
        return RemoteError(refusal, text)


@final
class GroupTickets(Tickets):
    """The tickets of a group's elements where a worker has it."""

    __slots__ = ("count", "tickets")

    def __init__(self, count: int, tickets: Sequence[Ticket] | None = None) -> None:
        self.count = count
        self.tickets = tickets

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> ElementIndex:
        return ElementIndex(index, None if self.tickets is None else self.tickets[index])

    def at(self, count: int) -> Position:
        raise NotImplementedError


# in the process that asks


def good_places(block: Block) -> list[int]:
    """Return the places of the elements that have not failed."""
    return [place for place, item in enumerate(block.items) if type(item) is not Failure]


def sent_to_worker(work: GroupWork, block: Block) -> TaskInput:
    """Return the part of a group that is sent to a worker."""
    places = good_places(block) if block.failed else range(len(block))
    tickets = [plain(block.tickets[place]) for place in places] if work.is_keyed else None
    if block.columns and all(part.complete for part in block.columns):
        return TaskInput(tuple(block.columns), False, tickets)
    items = [block.items[place] for place in places] if block.failed else block.items
    if items and type(items[0]) is Block:
        return TaskInput([[one for one in item.items if type(one) is not Failure] for item in items], True, None)
    # pickling one of NumPy's numbers takes 1.4 us, 0.3 in an array; as they cannot be changed, nobody sees a difference
    numbers = ColumnBatch.bundle(items) if items and isinstance(items[0], np.generic) else None
    return TaskInput(items if numbers is None else (numbers,), False, tickets)


def reached(block: Block, outcome: TaskResult) -> int:
    """Return how many elements of a group are done; those that had failed before are, up to the first that is left."""
    if not block.failed:
        return outcome.done
    good = good_places(block)
    return good[outcome.done] if outcome.done < len(good) else len(block)


WRAPPED: Final = frozenset({RemoteError, IsolatedElement})


def sent_back(block: Block, outcome: TaskResult, label: str) -> Block:
    """Return the results in the places of elements that a worker has done; earlier failures stay.

    `label` names the step in the error of a result that cannot be unpickled.
    """
    items, places = outcome.items, outcome.places
    batches = not block.columns and type(block.items[0]) is Block
    if not block.failed and not batches and (isinstance(items, tuple) or WRAPPED.isdisjoint(map(type, items))):
        tickets = block.tickets if places is None else FilteredTickets(block.tickets, places)
        return Block.of_columns(items, tickets) if isinstance(items, tuple) else Block(items, tickets)
    if isinstance(items, tuple):
        items = [*chain.from_iterable(items)]
    found: list[tuple[int, Any]] = list(zip(range(len(items)) if places is None else places, items, strict=True))
    if block.failed:
        good = good_places(block)
        bad = [(place, item) for place, item in enumerate(block.items) if type(item) is Failure]
        found = sorted([*((good[place], item) for place, item in found), *bad], key=lambda pair: pair[0])
    if batches:
        return Block([rejoined(block.items[place], rows, label) for place, rows in found], block.tickets)
    items = [unpack_item(item, block.tickets, place, label) for place, item in found]
    pickled_by_value = len(found) == len(block)
    tickets = block.tickets if pickled_by_value else FilteredTickets(block.tickets, [place for place, _ in found])
    return Block(items, tickets, Failure in set(map(type, items)))


def rejoined(batch: Block, rows: list[Any], label: str) -> Block:
    """Return the results of a batch as a block; earlier failures stay."""
    items = list(batch.items)
    for place, row in zip(good_places(batch), rows, strict=True):
        items[place] = unpack_item(row, batch.tickets, place, label)
    return Block(items, batch.tickets, Failure in set(map(type, items)))


def unpack_item(item: Any, tickets: Tickets, place: int, label: str) -> Any:
    """Return an item as it is in this process."""
    if type(item) is IsolatedElement:
        try:
            return pickle.loads(item.pickled)
        except Exception as error:
            return noted(error, label, tickets[place])
    return item.failure(tickets[place]) if type(item) is RemoteError else item


# in the worker


def carry_out(
    work: GroupWork,
    task: Task,
    mark: Callable[[int], object],
    empty: Empty = np.empty,
    dropped: Callable[[], bool] = never,
) -> TaskResult:
    """Do the work on a group. `mark` gets each place before it is processed, if the group has killed a worker before.

    Batches are made in arrays that `empty` gives. `DroppedError` if the group was `dropped`.
    """
    block, work = received(task.sent, work.label), work.at(task.epoch)
    if not len(block):  # all had failed before
        return TaskResult([], None, 0, 0.0, 0.0)
    retried: list[None] = []
    RETRIED.set(retried)
    begin, waited, computed = time.perf_counter(), queued(), time.thread_time()
    if task.careful:
        done, count = one_by_one(work, block, task, mark), len(block)
    else:
        end = inf if task.unlimited else begin + LATE
        done, count = in_time(work, block, Deadline(ENDLESS.step, end, dropped), empty)
    ended, waited, computed = time.perf_counter(), queued() - waited, time.thread_time() - computed
    outcome = outcome_of(work, task, done, count)
    functions = None if work.times is None else work.times.seconds
    outcome = outcome._replace(retries=len(retried), functions=functions)
    return outcome._replace(seconds=ended - begin, queued=waited, cpu=computed, ended=ended, worker=os.getpid())


def outcome_of(work: GroupWork, task: Task, done: Block, count: int) -> TaskResult:
    """Return the outcome of so many elements of a group in the form that is sent."""
    places = None if len(done) == count else [done.tickets[index].number for index in range(len(done))]
    if work.rows is not None and done.columns:
        return TaskResult(tuple(done.columns), places, count, 0.0, 0.0)
    if done.columns and all(part.complete for part in done.columns):  # all that was given has stayed
        return TaskResult(tuple([part.shared() for part in done.columns]), places, count, 0.0, 0.0)
    if task.sent.batches:
        return TaskResult([[fit(item) for item in part.items] for part in done.items], None, count, 0.0, 0.0)
    return TaskResult([fit(item) for item in done.items] if done.failed else done.items, places, count, 0.0, 0.0)


def in_time(work: GroupWork, block: Block, term: Deadline, empty: Empty) -> tuple[Block, int]:
    """Do the work on a group, in complete batches if workers make them, until its end; return how many are done."""
    parts: list[Block] = []
    count, rows = len(block), work.rows or 1
    step, place = -(-count // (CHECKS * rows)) * rows, 0
    part_term = Deadline(term.step if work.rows is None else max(1, step // CHECKS), inf, term.dropped)
    term.check()
    while place < count and (not place or not term.over):
        parts.append(work.attempt(block.slice(place, place + step), part_term, empty)[0])
        place += step
    return Block.join(parts), min(place, count)


def received(sent: TaskInput, label: str) -> Block:
    """Return the group as a block with places as tickets; elements that cannot be unpickled are failures."""
    items = sent.items
    if isinstance(items, tuple):
        return Block.of_columns(items, GroupTickets(sum(map(len, items)), sent.tickets))
    if not sent.batches:
        return unsealed(items, GroupTickets(len(items), sent.tickets), label)
    blocks = [unsealed(rows, GroupTickets(len(rows)), label) for rows in items]
    return Block(blocks, GroupTickets(len(blocks)))


def unsealed(items: list[Any], tickets: GroupTickets, label: str) -> Block:
    """Return elements as a block, those that were pickled by themselves unpickled."""
    if IsolatedElement in set(map(type, items)):
        items = [unpack_item(item, tickets, place, label) for place, item in enumerate(items)]
        return Block(items, tickets, Failure in set(map(type, items)))
    return Block(items, tickets)


def one_by_one(work: GroupWork, block: Block, task: Task, mark: Callable[[int], object]) -> Block:
    """Do the work on one element after the other; an element that caused two deaths is not processed again."""
    parts: list[Block] = []
    for place in range(len(block)):
        one = block.slice(place, place + 1)
        mark(place)
        crash = (task.blamed or {}).get(place)
        parts.append(work.run(one) if crash is None else crashed(work, one, crash))
    return Block.join(parts)


def crashed(work: GroupWork, one: Block, words: str) -> Block:
    """Return the failure of an element that kills workers."""
    if type(one.items[0]) is Block:
        rows: Block = one.items[0]
        parts = [crashed(work, rows.slice(row, row + 1), words) for row in range(len(rows))]
        return Block([Block.join(parts)], one.tickets)
    if type(one.items[0]) is Failure:  # it had failed before
        return one
    return Block([noted(WorkerCrashed(words), work.label, one.tickets[0])], one.tickets, True)


def fit(item: Any) -> Any:
    """Return an item that can travel."""
    return RemoteError.of(item.error) if type(item) is Failure else item
