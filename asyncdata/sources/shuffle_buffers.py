"""Streams of Hugging Face datasets whose states do not include their shuffle buffers."""

from __future__ import annotations

from typing import Any, cast

__all__ = ("forgets_its_buffer",)


def forgets_its_buffer(stream: object) -> bool:
    """Return whether a stream is a Hugging Face dataset with a shuffle buffer, whose rows are not in its states.

    Such a stream is read again from its beginning, which gives the same rows; a state would not.
    """
    if not type(stream).__module__.startswith("datasets."):
        return False
    todo: list[object] = [stream]
    seen: set[int] = set()
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if "BufferShuffled" in type(one).__name__:
            return True
        todo += parts_of(one)
    return False


def parts_of(value: object) -> list[object]:
    """Return the streams that a stream, or a collection of streams, consists of."""
    if isinstance(value, dict):
        return [*cast("dict[Any, object]", value).values()]
    if isinstance(value, (list, tuple)):
        return [*cast("list[object]", value)]
    if not type(value).__module__.startswith("datasets."):
        return []
    return [part for name, part in vars(value).items() if "ex_iterable" in name]
