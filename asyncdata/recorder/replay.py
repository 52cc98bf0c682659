"""Replay: elements that were delivered before, made again from their origins alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, Generic, Self, TypeVar, cast

from asyncdata.errors import PlanError, ResumeError, annotate
from asyncdata.graph.node import Node, nodes_of
from asyncdata.identity.exclusion import exclusion_digest
from asyncdata.iterator import DatasetIterator
from asyncdata.options import Options
from asyncdata.planning.optimizer import Planner, settle
from asyncdata.states import ResumePoint, place_of_origins
from asyncdata.system.closing import Closable
from asyncdata.transforms.exclude import unexcluded

__all__ = ("Origin", "Replay", "check_origin", "replayed")

T = TypeVar("T")

Origin = Mapping[str, Any]
"""What `DatasetIterator.origin` returns."""

PARTS: Final = {"version": int, "plan": list, "seeds": list, "epoch": int, "step": int}
"""The parts of an origin that a replay needs, and their types; and its ticket, of any type."""

NONE_LEFT: Final = object()


class Replay(Closable, Generic[T]):
    """Iterates over the elements with some origins, in their order: see `Dataset.replay`.

    An element that failed fails again, in its place; the next call gives the next element.
    """

    def __init__(self, places: Iterable[tuple[ResumePoint, Sequence[Origin]]], options: Options) -> None:
        self._places, self._planner = deque(places), Planner(options)
        self._current: DatasetIterator[T] | None = None
        self._left: deque[Origin] = deque()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        while self._begin():
            assert self._current is not None
            try:
                found = next(self._current, NONE_LEFT)
            except Exception as error:
                if self._left:
                    name_step(error, self._left.popleft())
                raise
            if found is not NONE_LEFT and self._left:
                self._left.popleft()
                return cast("T", found)
            self._end()
        raise StopIteration

    def _begin(self) -> bool:
        """Run the next origins if none is running; return whether there are any."""
        if self._current is None and self._places:
            place, origins = self._places.popleft()
            self._left = deque(origins)
            self._current = DatasetIterator(self._planner, place)
        return self._current is not None

    def _end(self) -> None:
        """End the run whose origins were all given."""
        left, self._left = self._left, deque[Origin]()
        self.close()
        if left:
            first = left[0]
            raise ResumeError(f"step {first['step']} of epoch {first['epoch']} is not there now: the data has changed")

    def close(self) -> None:
        """End what runs; the elements that are left can still be asked for, but for those of the same epoch."""
        current, self._current = self._current, None
        if current is not None:
            current.close()

    async def aclose(self) -> None:
        """End what runs, without blocking the event loop."""
        current, self._current = self._current, None
        if current is not None:
            await current.aclose()


def replayed(plan: Node, origins: Iterable[Origin], options: Options) -> Replay[Any]:
    """Return the elements with these origins; raise for the first that cannot be had again."""
    if isinstance(origins, Mapping):
        raise PlanError("replay() takes a list of origins, got one: put it into a list")
    listed = [check_origin(origin) for origin in origins]
    for node in nodes_of(plan):
        if node.once and listed:
            raise ResumeError(
                f"step {listed[0]['step']} cannot be replayed: {node.label()} can be read only once; "
                "read something that can be iterated again, or a stream that stores what it gave"
            )
    in_order = settle(plan, options).in_order
    places: list[tuple[ResumePoint, Sequence[Origin]]] = []
    for _, some in groupby(listed, key=run_of):
        group = [*some]
        runs = [group] if in_order else [[one] for one in group]  # else they would come as they are ready
        same = group[0].get("excluded") == exclusion_digest(plan)
        places += [(place_of(plan if same else unexcluded(plan), run), run) for run in runs]
    return Replay(places, options.without("record"))


def run_of(origin: Origin) -> list[Any]:
    """Return what elements of one run have in common."""
    return [origin.get(name) for name in ("version", "plan", "seeds", "epoch", "excluded")]


def place_of(plan: Node, origins: list[Origin]) -> ResumePoint:
    try:
        return place_of_origins(plan, origins)
    except ResumeError as error:
        name_step(error, origins[0])
        raise


def name_step(error: BaseException, origin: Origin) -> None:
    """Say in a note of an error which step it is of, unless it is the element's own."""
    if isinstance(error, ResumeError):
        annotate(error, f"step {origin['step']} of epoch {origin['epoch']} was to be replayed")


def check_origin(origin: Any) -> Origin:
    """Return an origin; `ResumeError` if it is none."""
    if not isinstance(origin, Mapping):
        raise ResumeError(f"an origin is what DatasetIterator.origin() returns, got {origin!r:.80}")
    found = cast("Mapping[str, Any]", origin)
    for name, kind in PARTS.items():
        if type(found.get(name)) is not kind:
            raise ResumeError(f"the origin's {name!r} should be {kind.__name__}, got {found.get(name)!r:.80}")
    if "ticket" not in found:
        raise ResumeError("the origin has no ticket")
    return found
