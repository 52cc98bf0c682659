"""The position in a state, checked before a run: no larger than the pipeline can hold, and no element twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import numpy as np

from asyncdata.errors import ResumeError
from asyncdata.executors.function_call import describe
from asyncdata.graph.node import EVERYTHING, Node, Unary, finite, nodes_of, render, repeated_ones
from asyncdata.identity.hashed_attributes import is_users
from asyncdata.runtime.tickets import END, UNORDERED, Start, decode_run, plain
from asyncdata.transforms.filter import Filter
from asyncdata.transforms.shuffle import Shuffle, ShuffleRepeat
from asyncdata.transforms.take_while import TakeWhile

__all__ = ("check_position",)

USERS: Final = ("state", "groups")
"""The parts of positions that hold values of the user's."""

ALLOWANCE: Final = 1 << 18
"""Elements that buffers which tune themselves may hold beyond the sizes that steps name."""

NO_LONGER: Final = (Filter, TakeWhile, Shuffle)
"""Steps that give at most as many elements as their input, also if that number is unknown."""

UNKNOWN: Final = 1 << 24
"""The assumed maximum of held elements where no step gives one: for a buffer of everything whose input has an unknown
length, and for the steps of datasets that a user's function makes."""


def check_position(plan: Node, position: Any, exact: bool = True) -> None:
    """Raise `ResumeError` if a plan cannot have been at a position; unless `exact` it was a similar one, or dealt."""
    check_kinds(plan, position)
    check_sizes(plan, position)
    plan.parse_position(position, check_distinct)
    if exact:
        check_buffers(plan, position)
        plan.parse_position(position, lambda position: check_places(plan, position))


def check_kinds(plan: Node, position: Any) -> None:
    """Raise `ResumeError` if a position has a truth value, which Python would take for the number 1 or 0."""
    waiting: list[Any] = [position]
    while waiting:
        value = waiting.pop()
        if isinstance(value, bool):
            raise ResumeError(
                f"{render(plan):.200}: the state has {value} where a number should be (the state is damaged; start "
                "without it)"
            )
        if isinstance(value, list):
            waiting.extend(cast("list[Any]", value))
        elif isinstance(value, dict):
            waiting.extend(part for name, part in cast("dict[str, Any]", value).items() if name not in USERS)


def check_sizes(plan: Node, position: Any) -> None:
    """Raise `ResumeError` if a position lists more consecutive elements than a plan can hold."""
    most = capacity(plan)
    for count in counts_in(position):
        if type(count) is not int or not 0 <= count <= most:
            raise ResumeError(
                f"{render(plan):.200}: the state lists {count!r:.40} elements that were read and not delivered; these "
                f"steps hold at most {most} (the state is damaged; start without it)"
            )


def check_distinct(position: Any) -> None:
    """Raise `ResumeError` if the same element is listed twice to be given again."""
    for part in parts_of(position):
        back: list[Any] = []
        value: Any = part
        while isinstance(value, dict) and not value.keys().isdisjoint(("from", UNORDERED)):
            named = cast("dict[str, Any]", value)
            back_tickets: Any = named.get("back")
            back += cast("list[Any]", back_tickets) if isinstance(back_tickets, list) else []
            value = named.get("from", named.get(UNORDERED))
        if back and value is None:
            raise ResumeError(
                "the state lists elements as read that come after its position (the state is damaged; start without it)"
            )
        for ticket in duplicates(list(map(decode_run, back))):
            raise ResumeError(f"the state lists {describe(ticket)} twice (the state is damaged; start without it)")


def duplicates(runs: list[Sequence[Any]]) -> list[Any]:
    """Return tickets that are there twice, some of them if there are any."""
    others = [plain(ticket) for run in runs if not isinstance(run, range) for ticket in run]
    parts = [np.arange(run.start, run.stop) for run in runs if isinstance(run, range)]
    parts.append(np.array([ticket for ticket in others if isinstance(ticket, int)], np.int64))
    numbers = np.sort(np.concatenate(parts))
    twice = numbers[1:][numbers[1:] == numbers[:-1]]
    return [*twice[:1].tolist(), *repeated_ones([ticket for ticket in others if not isinstance(ticket, int)])]


def check_places(plan: Node, position: Any) -> None:
    """Raise `ResumeError` if a step cannot have read as many elements as a position says, given its input's
    position."""
    node = plan
    while isinstance(node, Unary):
        start = Start.of(position).within()
        place = None if start.skip or start.position in (None, END) else node.place_below(start.position)
        if place is None:
            return
        below = Start.of(place.position).within()
        read = None if below.back or below.skip else node.input.read_before(below.position)
        if read is not None and (place.read > read or (place.exactly and place.read < read and node.input.gives_all)):
            raise ResumeError(
                f"{node.label()}: the state says that {place.read} elements were read, but its input says {read} "
                "(the state is damaged; start without it)"
            )
        node, position = node.input, place.position


def check_buffers(plan: Node, position: Any) -> None:
    """Raise `ResumeError` if a position has a buffer of a size that no step of a plan has."""
    nodes = [*nodes_of(plan)]
    if any(has_unseen_steps(node) for node in nodes):
        return
    sizes = {node.size for node in nodes if isinstance(node, (Shuffle, ShuffleRepeat))}
    for value in parts_of(position):
        if "seen" in value and value.get("size") not in (None, *sizes):
            raise ResumeError(
                f"{render(plan):.200}: the state has a buffer of {value['size']!r:.40} elements, but no step has one "
                "of that size (the state is damaged; start without it)"
            )


def has_unseen_steps(node: Node) -> bool:
    """Return whether a user's function makes datasets, whose steps are not in the plan."""
    makes = node.dataset_function
    return makes is not None and is_users(makes.fn)


def capacity(plan: Node) -> int:
    """Return how many elements a plan may hold: no more than there are, and than fit into its buffers."""
    nodes = [*nodes_of(plan)]
    known = all(finite(node.cardinality) or isinstance(node, NO_LONGER) for node in nodes)
    if any(map(has_unseen_steps, nodes)):
        return UNKNOWN + held_by(nodes, UNKNOWN)
    if known:
        return min(held_by(nodes, EVERYTHING), max(node.cardinality for node in nodes))
    return held_by(nodes, UNKNOWN)


def held_by(nodes: list[Node], everything: int) -> int:
    """Return how many elements some steps may hold; a buffer of everything counts as `everything`."""
    return ALLOWANCE + sum(everything if node.holds >= EVERYTHING else node.holds for node in nodes)


def counts_in(position: Any) -> Iterator[Any]:
    """Yield each number of elements in a position in a few words."""
    for named in parts_of(position):
        yield from counts_of(named)


def parts_of(position: Any) -> Iterator[dict[str, Any]]:
    """Yield each dict of a position, outer ones first, without the states of users' sources."""
    waiting: list[Any] = [position]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(cast("list[Any]", value))
        elif isinstance(value, dict):
            named = cast("dict[str, Any]", value)
            yield named
            waiting.extend(named[name] for name in named if name != "state")


def counts_of(named: dict[str, Any]) -> Iterator[Any]:
    """Yield the numbers of elements in one part of a position."""
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
    """Return whether packed tickets have bits for each: then the state is as long as they are many."""
    if isinstance(columns, dict):
        return any(has_bits(part, count) for part in cast("dict[str, Any]", columns).values())
    if not isinstance(columns, list) or type(count) is not int or count < 0:
        return False
    parts = cast("list[Any]", columns)
    if len(parts) != 3 or not isinstance(parts[2], str):
        return False
    return type(parts[1]) is int and 1 <= parts[1] <= 64 and len(parts[2]) * 6 >= count * parts[1]
