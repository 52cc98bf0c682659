"""Splits the arrays from an element, joins them again, and reuses the memory of earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from asyncdata.elements.structure import LEAVES, endless, map_leaves, open_level

__all__ = ("join_arrays", "paths_of", "reusable", "split_arrays")


class Placeholder:
    """A placeholder for an array of an element."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


def split_arrays(element: Any, is_sent: Callable[[Any], bool], lists: bool = False) -> tuple[Any, list[Any]]:
    """Return an element with placeholders for its arrays, and the arrays; `StructureError` if it contains itself.

    Lists are leaves in a `Dataset`; with `lists` they are parts of the structure, as in a batch of PyTorch's collate.
    """
    leaves: list[Any] = []

    def take(leaf: Any) -> Any:
        if not is_sent(leaf):
            return leaf
        leaves.append(leaf)
        return Placeholder(len(leaves) - 1)

    try:
        return with_leaves(take, element, lists), leaves
    except RecursionError:
        raise endless(element) from None


def join_arrays(element: Any, arrays: Sequence[Any], lists: bool = False) -> Any:
    """Return an element with its placeholders replaced by arrays."""
    return with_leaves(lambda leaf: arrays[leaf.number] if type(leaf) is Placeholder else leaf, element, lists)


def with_leaves(fn: Callable[[Any], Any], value: Any, lists: bool = False) -> Any:
    """Return the structure with each leaf replaced by `fn(leaf)`; for many leaves faster than with their paths."""
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if lists and kind is list:
        return [with_leaves(fn, part, lists) for part in cast("list[Any]", value)]
    if kind in LEAVES or kind is Placeholder:
        return fn(value)
    if kind is dict:
        return {key: with_leaves(fn, part, lists) for key, part in cast("dict[Any, Any]", value).items()}
    level = open_level(value)
    if level is None:
        return fn(value)
    stays = (".batch_sizes",) if kind.__name__ == "PackedSequence" else ()  # PyTorch wants them on the CPU
    return level.rebuild(
        [
            part if name in stays else with_leaves(fn, part, lists)
            for name, part in zip(level.names, level.parts, strict=True)
        ]
    )


def paths_of(element: Any) -> list[str]:
    """Return the paths of an element's arrays, given the element with placeholders."""
    paths: list[str] = []
    map_leaves(lambda leaf, path: paths.append(path) if type(leaf) is Placeholder else None, element)
    return paths


def reusable(into: Sequence[Any] | None, place: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return the array of an earlier batch that may be overwritten, if it has this shape and dtype."""
    if into is None or place >= len(into):
        return None
    fits = into[place].shape == shape and into[place].dtype == dtype
    return into[place] if fits else None
