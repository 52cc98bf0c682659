"""Splits the arrays from an element, joins them again, and reuses the memory of earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from asyncdata.elements.structure import map_leaves

__all__ = ("join_arrays", "reusable", "split_arrays")


class Placeholder:
    """A placeholder for an array of an element."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


def split_arrays(element: Any, is_sent: Callable[[Any], bool]) -> tuple[Any, list[Any], list[str]]:
    """Return an element with placeholders for its arrays, the arrays and their paths."""
    leaves: list[Any] = []
    paths: list[str] = []

    def take(leaf: Any, path: str) -> Any:
        if not is_sent(leaf):
            return leaf
        leaves.append(leaf)
        paths.append(path)
        return Placeholder(len(leaves) - 1)

    return map_leaves(take, element), leaves, paths


def join_arrays(element: Any, arrays: Sequence[Any]) -> Any:
    """Return an element with its placeholders replaced by arrays."""
    return map_leaves(lambda leaf, _: arrays[leaf.number] if type(leaf) is Placeholder else leaf, element)


def reusable(into: Sequence[Any] | None, place: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return the array of an earlier batch that may be overwritten, if it has this shape and dtype."""
    if into is None or place >= len(into):
        return None
    fits = into[place].shape == shape and into[place].dtype == dtype
    return into[place] if fits else None
