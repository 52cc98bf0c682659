"""Streams of Hugging Face datasets: states without their shuffle buffers, and runs after one that resumed."""

from __future__ import annotations

from typing import Any, Final, cast
from weakref import WeakSet

__all__ = ("begin_again", "forgets_its_buffer")

RESTORED: Final[WeakSet[Any]] = WeakSet()
"""Streams that a state was loaded into. Each later run of such a stream would begin there too."""


def forgets_its_buffer(stream: object) -> bool:
    """Return whether a stream is a Hugging Face dataset with a shuffle buffer, whose rows are not in its states.

    Such a stream is read again from its beginning, which gives the same rows; a state would not.
    """
    if not is_of_hugging_face(stream):
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


def begin_again(stream: Any, restored: bool) -> None:
    """Have the next run of a stream begin at its beginning, or note that it begins at a state that is `restored`.

    A stream into which its user has loaded a state begins there until another one is loaded.
    """
    if not is_of_hugging_face(stream):
        return
    if restored:
        RESTORED.add(stream)
    elif stream in RESTORED:
        RESTORED.discard(stream)
        stream.load_state_dict({})


def is_of_hugging_face(stream: object) -> bool:
    """Return whether a stream is a dataset of Hugging Face."""
    return type(stream).__module__.startswith("datasets.")


def parts_of(value: object) -> list[object]:
    """Return the streams that a stream, or a collection of streams, consists of."""
    if isinstance(value, dict):
        return [*cast("dict[Any, object]", value).values()]
    if isinstance(value, (list, tuple)):
        return [*cast("list[object]", value)]
    if not type(value).__module__.startswith("datasets."):
        return []
    return [part for name, part in vars(value).items() if "ex_iterable" in name]
