"""Labels: the result of a function for each element, put before it: the number of its class, or a key; the order of
keys."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Iterable
from math import nan
from operator import index, ne
from types import CoroutineType
from typing import Any, Final, cast, final

import numpy as np

from asyncdata.elements.structure import leaves_of
from asyncdata.elements.tensors import any_tensor, as_array, is_tensor
from asyncdata.executors.function_call import Call
from asyncdata.runtime.block import Failure
from asyncdata.runtime.tickets import Ticket

__all__ = ("Classifier", "Keyer", "Labeller", "has_nan", "in_key_order", "one_nan")

NUMBERS: Final = (float, complex, np.inexact, np.datetime64, np.timedelta64)
"""Types of numbers that may be NaN or NaT."""

NANS: Final[dict[type[Any], Any]] = {kind: kind("NaT", "s") for kind in (np.datetime64, np.timedelta64)}
"""What stands for each NaN of a type; `nan` for that of other types. From NumPy 2.5 on a NaT needs a unit."""


class Labeller(Call):
    """A user's function that returns a label of an element; it makes pairs of labels and elements."""

    __slots__ = ()

    def label_of(self, found: Any) -> Any:
        """Return the label for the function's result; raise if that is not a label."""
        raise NotImplementedError

    def over(self, items: Any, kinds: set[type]) -> Any:
        return map(self.pair, items)

    def pair(self, item: Any) -> tuple[Any, Any]:
        """Call the function on one element."""
        found = self.call_one(item)
        if type(found) is CoroutineType:
            found.close()
            raise self.not_awaited()
        return self.label_of(found), item

    async def run_async(self, item: Any, ticket: Ticket) -> Any:
        found = await super().run_async(item, ticket)
        try:
            return found if type(found) is Failure else (self.label_of(found), item)
        except (Exception, CancelledError) as error:
            return self.failure(error, ticket)


@final
class Classifier(Labeller):
    """A function that returns one of `classes` classes, numbers from 0."""

    __slots__ = ("classes",)

    def __init__(self, kind: str, fn: Callable[..., Any], classes: int) -> None:
        super().__init__(kind, fn)
        self.classes = classes

    def label_of(self, found: Any) -> int:
        try:
            number = index(found)
        except TypeError:
            kind = type(found).__name__
            raise TypeError(f"{self.name} must return an integer, got {kind}: {found!r:.60}") from None
        if not 0 <= number < self.classes:
            raise IndexError(f"{self.name} must return one of {self.classes} classes, counted from 0, got {number}")
        return number


class Keyer(Labeller):
    """A function that returns a key: a hashable value; NumPy's scalars are the same keys as Python's numbers."""

    __slots__ = ()

    def label_of(self, found: Any) -> Any:
        found = as_key(found)
        scalar = isinstance(found, (np.generic, np.ndarray)) and np.ndim(cast("Any", found)) == 0
        key = one_nan(cast("Any", found).item() if scalar else cast("Any", found))
        try:
            hash(key)
        except TypeError:
            raise TypeError(f"{self.name} must return a key that has a hash, got {found!r:.60}") from None
        return key


def has_nan(value: Any) -> bool:
    """Return whether a value is NaN or NaT, or a tuple with one."""
    if isinstance(value, tuple):
        return any(map(has_nan, cast("tuple[Any, ...]", value)))
    return issubclass(type(value), NUMBERS) and bool(ne(value, value))


def one_nan(value: Any) -> Any:
    """Return a value, with the same object for each NaN, which is equal to itself alone, and is another object once it
    was in another process."""
    if not has_nan(value):
        return value
    if isinstance(value, tuple):
        return tuple(map(one_nan, cast("tuple[Any, ...]", value)))
    return NANS.get(cast("type[Any]", type(value)), nan)


def as_key(found: Any) -> Any:
    """Return a key for a tensor, or for those in a tuple, equal for equal ones: a tensor's own hash is not."""
    if is_tensor(found):
        return found.item() if not found.ndim else as_array(found)
    if type(found) is not tuple or not any_tensor(leaves_of(found)):
        return cast("Any", found)
    return tuple([as_key(part) for part in cast("tuple[Any, ...]", found)])


def in_key_order(keys: Iterable[Any]) -> list[Any]:
    """Return keys in order: numbers first, NaN behind them, then by type; values without an order by their text.

    Which comes first of two keys depends on no other.
    """
    return sorted(keys, key=rank)


def rank(key: Any) -> tuple[str, Any]:
    """Return the sort key of a key."""
    if isinstance(key, (int, float)):
        return "", (has_nan(key), key)
    return type(key).__name__, key if isinstance(key, (str, bytes)) else repr(key)
