"""Sources that save and restore their own state: the protocol, and their positions."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction, signature
from itertools import chain
from operator import index
from typing import Any, Protocol, Self, TypeVar, cast, final, runtime_checkable

from asyncdata.errors import PlanError, ResumeError
from asyncdata.executors.iterator_bridge import Notify
from asyncdata.runtime.source_state import RestorableItem, SourceSnapshot
from asyncdata.runtime.state_values import from_json_value, to_json_value
from asyncdata.runtime.tickets import Position, Tickets
from asyncdata.sources.hugging_face_streams import begin_again, forgets_its_buffer

__all__ = ("SnapshotTickets", "Stateful", "StreamPlace", "begun", "takes_others")

T = TypeVar("T")
R = TypeVar("R")


@runtime_checkable
class Stateful(Protocol):
    """A source with its own state: an iterable, or its iterator, plain or async.

    Given to `from_iterable` or `from_async_iterable`, or returned by the function of `from_generator`, it continues at
    its own offset when a pipeline resumes, and is not run again from its beginning. Both methods are plain methods, for
    an async iterable too, and need no other arguments. They are called in the iterator's thread or loop, between two
    elements: `state_dict` now and then, `load_state_dict` before the first element is requested. torchdata has the same
    protocol under this name.

    >>> import asyncdata as ad
    >>> class Lines:
    ...     def __init__(self, path):
    ...         self.file = open(path)
    ...     def __iter__(self):
    ...         return self
    ...     def __next__(self):
    ...         if line := self.file.readline():
    ...             return line.strip()
    ...         raise StopIteration
    ...     def close(self):
    ...         self.file.close()
    ...     def state_dict(self):
    ...         return {"offset": self.file.tell()}
    ...     def load_state_dict(self, state):
    ...         self.file.seek(state["offset"])
    >>> import pathlib, tempfile
    >>> log = pathlib.Path(tempfile.mkdtemp(), "log")
    >>> _ = log.write_text("one\\ntwo\\nthree\\n")
    >>> ds = ad.Dataset.from_generator(Lines, args=(log,))
    >>> with ds.iterate() as lines:
    ...     _ = next(lines), next(lines)
    ...     state = lines.state_dict()
    >>> list(ds.iterate(state=state))
    ['three']
    """

    def state_dict(self) -> Any:
        """Return a state, from which the source continues after the last element it gave.

        It may hold numbers, texts, `None`, bytes, arrays, tensors, and lists, tuples, sets and dicts of these.
        """
        ...

    def load_state_dict(self, state: Any, /) -> object:
        """Restore a state; called before the first element is requested.

        On an iterable it is called before the `iter` that counts, on an iterator after it, as torchdata does: an
        `__iter__` that returns `self` may begin anew.
        """
        ...


def begun(label: str, source: T, iterate: Callable[[T], R], state: str | None) -> tuple[R, Notify | None]:
    """Return an iterator of `source`, set to a state, and a function that returns its states if it has them.

    Before its iterator has begun, an iterable may return no state or that of an earlier iterator. So the first state is
    the one given here.
    """
    stateful = stateful_of(label, source)
    if stateful is not None:
        begin_again(stateful, restored=state is not None)
    iterator = iterate(source)
    own = stateful is not None and iterator is not stateful
    if stateful is not None and own and state is not None:  # its iterator begins at the state that it has by then
        restore(label, stateful, state)
        iterator = iterate(source)
    known = [state] if own else []
    if stateful is None:
        stateful = stateful_of(label, iterator)
    if stateful is not None and not own and state is not None:  # `__iter__` may have begun anew
        restore(label, stateful, state)
    if stateful is None and state is not None:
        raise ResumeError(
            f"{label}: it had state_dict and load_state_dict when the state was saved, and does not have them now"
        )
    return iterator, None if stateful is None else chain(known, snapshots(label, stateful)).__next__


def snapshots(label: str, stateful: Stateful) -> Iterator[str | ResumeError]:
    """Yield the current state of a source, again and again."""
    while True:
        yield snapshot(label, stateful)


def stateful_of(label: str, value: object) -> Stateful | None:
    """Return `value` if it has states; raise if its methods are coroutine functions."""
    if not isinstance(value, Stateful) or takes_others(value) or forgets_its_buffer(value):
        return None
    if iscoroutinefunction(value.state_dict) or iscoroutinefunction(value.load_state_dict):
        raise PlanError(f"{label}: state_dict and load_state_dict must be plain methods, not coroutine functions")
    return value


def takes_others(value: Stateful | type[Stateful]) -> bool:
    """Return whether the methods cannot be called as those of `Stateful`: they are of another protocol, such as that of
    the streams of Mosaic and LitData, whose `state_dict` must be told how many samples were read."""
    own = (None,) if isinstance(value, type) else ()
    return not (can_be_called(value.state_dict, *own) and can_be_called(value.load_state_dict, *own, None))


def can_be_called(method: Callable[..., object], *args: object) -> bool:
    """Return whether a method takes these arguments, as far as that can be known."""
    try:
        signature(method).bind(*args)
    except TypeError:
        return False
    except ValueError:  # one in C
        return True
    return True


def restore(label: str, stateful: Stateful, state: str) -> None:
    """Set a source to a state."""
    try:
        stateful.load_state_dict(from_json_value(json.loads(state)))
    except Exception as error:
        raise ResumeError(f"{label}: load_state_dict({state:.80}) failed: {error!r}") from error


def snapshot(label: str, stateful: Stateful) -> str | ResumeError:
    """Return the state of a source as JSON, or the error, which is raised only when a state is requested."""
    try:
        state = stateful.state_dict()
    except BaseException as error:  # noqa: BLE001  it is raised when a state is requested
        return state_error(f"{label}: state_dict() failed: {error!r}", error)
    try:
        return json.dumps(to_json_value(state), separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        return state_error(
            f"{label}: state_dict() must return numbers, texts, bytes, arrays, tensors and collections of these, got "
            f"{state!r:.80}",
            error,
        )


def state_error(message: str, cause: BaseException) -> ResumeError:
    error = ResumeError(message)
    error.__cause__ = cause
    return error


@dataclass(frozen=True)
class StreamPlace:
    """A position: the number of the next element, and a state of the source `skip` elements before it.

    Without a state the source is run from its beginning, and the position is only the number.
    """

    number: int = 0
    skip: int = 0
    state: str | None = None
    failures: int = 0

    @classmethod
    def of(cls, position: Position) -> Self:
        if not isinstance(position, dict):
            number = index(position or 0)
            return cls(number, number)
        fields = cast("dict[str, Any]", position)
        failures = index(fields.get("failures", 0))
        return cls(index(fields["number"]), index(fields["skip"]), json.dumps(fields["state"]), failures)

    @property
    def first(self) -> int:
        """The number of the first element after the state."""
        return self.number - self.skip


@final
class SnapshotTickets(Tickets):
    """The tickets of elements `start` to `stop` of a source with states; the first snapshot is at or before `start`."""

    __slots__ = ("snapshots", "start", "stop")

    def __init__(self, start: int, stop: int, snapshots: Sequence[SourceSnapshot]) -> None:
        self.start = start
        self.stop = stop
        self.snapshots = snapshots

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, index: int) -> RestorableItem:
        number = self.start + index
        snapshot = self.snapshot(number)
        return RestorableItem.at(number, snapshot, self.snapshot(number + 1).failures > snapshot.failures)

    def at(self, count: int) -> Position:
        number = self.start + count
        return self.snapshot(number).position(number)

    def snapshot(self, number: int) -> SourceSnapshot:
        """Return the last state before an element."""
        return self.snapshots[bisect_right(self.snapshots, number, key=lambda snapshot: snapshot.number) - 1]
