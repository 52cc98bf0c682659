"""Sizes that a state tells, checked against what its pipeline can hold before anything is allocated for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Final, cast

from asyncdata.errors import ResumeError
from asyncdata.plan import Node, finite, nodes_of, render

__all__ = ("check_sizes",)

ALLOWANCE: Final = 1 << 18
"""Elements that groups, inner datasets and buffers which tune themselves may hold beyond the sizes that steps name."""

UNBOUNDED: Final = 1 << 31
"""A buffer of this size holds the whole input."""

UNKNOWN_INPUT: Final = 1 << 24
"""What such a buffer may hold where nobody knows how large its input is."""

SIZES: Final = ("size", "batch_size", "buffer_size", "max_tokens", "length", "sizes", "window_size")
"""Fields of nodes that say how many elements are held."""


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
    known = all(finite(node.cardinality) or at_most_its_input(node) for node in nodes)
    room = ALLOWANCE
    for node in nodes:
        for size in sizes_of(node):
            room += UNKNOWN_INPUT if size >= UNBOUNDED and not known else size
    return min(room, max(node.cardinality for node in nodes)) if known else room


def at_most_its_input(node: Node) -> bool:
    """Tell whether a node of unknown cardinality gives no more elements than its only input."""
    return node.label().partition("(")[0] in ("filter", "take_while", "shuffle") and len(node.inputs) == 1


def sizes_of(node: Node) -> Iterator[int]:
    """Yield the sizes that a node names."""
    for field in dataclasses.fields(node) if node.inputs else ():
        if field.name in SIZES:
            value: Any = getattr(node, field.name)
            parts = cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,)
            yield from [part for part in parts if type(part) is int and part > 0]
    if node.label() == "shuffle()":
        yield UNBOUNDED


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
