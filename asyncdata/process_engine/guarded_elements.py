"""Elements that another process may be unable to unpickle: each is pickled by itself, so that it fails alone."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from asyncdata.executors.function_call import Call
from asyncdata.executors.process.shm_arena import Buffers, dumps
from asyncdata.executors.process.task import RemoteError
from asyncdata.graph.node import Node
from asyncdata.transforms.ignore_errors import IgnoreErrors
from asyncdata.transforms.map import Map
from asyncdata.transforms.prefetch import Prefetch
from asyncdata.transforms.repeat import Repeat

__all__ = ("UnreadableElement", "guarded", "ignoring", "is_certainly_readable", "sendable", "transfer_of")

LEAVES: Final = frozenset(
    {type(None), bool, int, float, complex, str, bytes, bytearray, RemoteError}
    | {kind for kind in np.sctypeDict.values() if kind is not np.object_}
)
"""Types of which every value can be unpickled."""

DEEPEST: Final = 50
"""Levels of structures that are looked at: a list may hold itself."""

UNCHANGED: Final = (Prefetch, Repeat)
"""Steps that hand on elements and errors as they are."""


class UnreadableElement:
    """Replaces an element that could not be unpickled."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class GuardedElement:
    """An element that is pickled by itself; the data of its arrays is sent as that of other elements."""

    __slots__ = ("item",)

    def __init__(self, item: Any) -> None:
        self.item = item

    def __reduce__(self) -> tuple[Any, ...]:
        buffers = Buffers()
        return unpickled, (dumps(self.item, buffers), buffers)


def unpickled(pickled: bytes, buffers: list[Any]) -> Any:
    """Return an element, or an `UnreadableElement` in its place."""
    try:
        return pickle.loads(pickled, buffers=buffers)
    except MemoryError:
        raise
    except BaseException as error:  # whatever an element's own method raises
        return UnreadableElement(error)


def guarded(items: list[Any]) -> list[Any]:
    """Return elements; those that perhaps cannot be unpickled are pickled apart."""
    return [item if is_certainly_readable((item,)) else GuardedElement(item) for item in items]


def is_certainly_readable(items: Iterable[Any], level: int = 0) -> bool:
    """Return whether values consist of types of which every value can be unpickled."""
    kinds = set(map(type, items))
    if kinds <= LEAVES:
        return True
    for item in items:
        kind: type[Any] = type(item)  # pyright: ignore[reportUnknownVariableType]
        if kind in LEAVES:
            continue
        if kind is np.ndarray:
            good = not item.dtype.hasobject
        elif level == DEEPEST:
            good = False
        elif kind is tuple or kind is list:
            good = is_certainly_readable(item, level + 1)
        elif kind is dict:
            good = is_certainly_readable(item, level + 1) and is_certainly_readable(item.values(), level + 1)
        else:
            good = False
        if not good:
            return False
    return True


def sendable(element: Any) -> Any:
    """Return an element if it can be pickled; `TypeError` that says so if not."""
    try:
        dumps(element, None)
    except Exception as error:
        kind = type(element).__name__
        raise TypeError(f"the element is a {kind}, which cannot be sent from the pipeline's process: {error}") from None
    return element


def readable(element: Any) -> Any:
    """Return an element if it can be pickled and unpickled; else raise the error that says why not."""
    if not is_certainly_readable((element,)):
        made = unpickled(dumps(sendable(element), None), [])
        if type(made) is UnreadableElement:
            raise made.error
    return element


def transfer_of(plan: Node) -> str:
    """Return the name of the transfer of a plan's elements, for errors."""
    if isinstance(plan, UNCHANGED):
        return transfer_of(plan.input)
    return f"the transfer of elements of {plan.label()} (placement='process')"


def ignoring(plan: Node) -> Node:
    """Return a plan in which `ignore_errors`, if it is the last step, drops elements that cannot be sent or
    unpickled."""
    if isinstance(plan, UNCHANGED):
        inner = ignoring(plan.input)
        return plan if inner is plan.input else plan.with_inputs(inner)
    if not isinstance(plan, IgnoreErrors):
        return plan
    call = Call("map", readable, spread=False)
    call.name = call.label = transfer_of(plan.input)
    return plan.with_inputs(Map(plan.input, (call,)))
