"""Sizes that a state tells, checked against what its pipeline can hold before anything is allocated for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

from asyncdata.attributes import is_users
from asyncdata.errors import ResumeError
from asyncdata.plan import EVERYTHING, Node, finite, nodes_of, render
from asyncdata.transforms.filter import Filter
from asyncdata.transforms.flat_map import FlatMap
from asyncdata.transforms.interleave import Interleave
from asyncdata.transforms.shuffle import Shuffle
from asyncdata.transforms.take_while import TakeWhile

__all__ = ("check_sizes",)

ALLOWANCE: Final = 1 << 18
"""Elements that buffers which tune themselves may hold beyond the sizes that steps name."""

NO_LONGER: Final = (Filter, TakeWhile, Shuffle)
"""Steps that give at most as many elements as their input, also where nobody knows how many."""

OF_DATASETS: Final = (FlatMap, Interleave)
"""Steps whose elements come from datasets that are not in the plan."""

UNKNOWN: Final = 1 << 24
"""How many are taken to be held at most where no step tells: by a buffer of everything whose input nobody has counted,
and by the steps of datasets that a user's function makes."""


def check_sizes(plan: Node, position: Any) -> None:
    """Raise `ResumeError` if a position tells more consecutive elements than a plan can hold."""
    most = capacity(plan)
    for count in counts_in(position):
        if type(count) is not int or not 0 <= count <= most:
            raise ResumeError(
                f"{render(plan):.200}: the state tells {count!r:.40} elements that were read and not delivered; these "
                f"steps hold at most {most} (the state is damaged; start without it)"
            )


def capacity(plan: Node) -> int:
    """Return how many elements a plan may hold: no more than there are, and than its buffers have room for."""
    nodes = [*nodes_of(plan)]
    known = all(finite(node.cardinality) or isinstance(node, NO_LONGER) for node in nodes)
    if any(isinstance(node, OF_DATASETS) and is_users(node.function.fn) for node in nodes):
        return UNKNOWN + room_in(nodes, UNKNOWN)
    if known:
        return min(room_in(nodes, EVERYTHING), max(node.cardinality for node in nodes))
    return room_in(nodes, UNKNOWN)


def room_in(nodes: list[Node], everything: int) -> int:
    """Return how many elements some steps may hold; a buffer of everything counts as `everything`."""
    return ALLOWANCE + sum(everything if node.holds >= EVERYTHING else node.holds for node in nodes)


def counts_in(position: Any) -> Iterator[Any]:
    """Yield each number of elements that a position tells in a few words."""
    waiting: list[Any] = [position]
    while waiting:
        told = waiting.pop()
        if isinstance(told, list):
            waiting.extend(cast("list[Any]", told))
        elif isinstance(told, dict):
            named = cast("dict[str, Any]", told)
            yield from counts_of(named)
            waiting.extend(named[name] for name in named if name != "state")


def counts_of(named: dict[str, Any]) -> Iterator[Any]:
    """Yield the numbers of elements that one part of a position tells."""
    if "run" in named:
        run: Any = named["run"]
        yield run[1] if isinstance(run, list) and len(cast("list[Any]", run)) == 2 else run
    if "packed" in named and not has_bits(named.get("columns"), named["packed"]):
        yield named["packed"]
    if "state" in named:
        yield named.get("count", 1)
    if "seen" in named and "size" in named and type(named["seen"]) is type(named["size"]) is int:
        yield min(named["seen"], named["size"])


def has_bits(columns: Any, count: Any) -> bool:
    """Tell whether packed tickets have bits for each: then the state is as long as they are many."""
    if isinstance(columns, dict):
        return any(has_bits(part, count) for part in cast("dict[str, Any]", columns).values())
    if not isinstance(columns, list) or type(count) is not int or count < 0:
        return False
    parts = cast("list[Any]", columns)
    if len(parts) != 3 or not isinstance(parts[2], str):
        return False
    return type(parts[1]) is int and 1 <= parts[1] <= 64 and len(parts[2]) * 6 >= count * parts[1]
