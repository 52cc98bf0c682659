"""Isolation: copies of elements that one reader cannot change for others: arrays are read-only, dicts and lists new."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any, Final, TypeVar, cast

import numpy as np
import numpy.typing as npt

from asyncdata.elements.ragged import Ragged
from asyncdata.elements.structure import open_level
from asyncdata.elements.tensors import clone, is_tensor_like

__all__ = ("CONSTANT", "ISOLATED", "is_unchanging", "isolate", "isolated", "read_only")

CONSTANT: Final = (int, float, bool, complex, str, bytes, type(None), np.generic)
"""Immutable types, but for `np.void`: the fields of a record can be assigned to."""

ISOLATED: Final = (*CONSTANT, np.ndarray)
"""Types that are immutable in elements that `isolate` returned."""

A = TypeVar("A", bound=npt.NDArray[Any])


def is_unchanging(value: Any) -> bool:
    """Return whether several readers may share one value that `isolate` returned, as none can change its parts."""
    return are_of([value], CONSTANT) or (isinstance(value, np.ndarray) and cast("Any", value).dtype != object)


def are_of(values: Iterable[Any], kinds: tuple[type[Any], ...]) -> bool:
    """Return whether values are of some types, and are no records."""
    return all(issubclass(kind, kinds) and not issubclass(kind, np.void) for kind in set(map(type, values)))


def read_only(array: A) -> A:
    """Return a read-only view of an array; the array itself if it is read-only."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    if isinstance(view, np.ma.MaskedArray) and view.mask is not np.ma.nomask:
        setattr(view, "_mask", read_only(np.asarray(view.mask)))  # noqa: B010  the mask of other readers is writable
    return view


def isolated(items: list[Any], unchanging: tuple[type[Any], ...] = CONSTANT) -> list[Any]:
    """Return elements for one more reader, as `isolate` does. Values of the types `unchanging` need no view."""
    if are_of(items, unchanging):
        return items
    kinds = set(map(type, items))
    if kinds == {tuple} and are_of(chain.from_iterable(items), unchanging):
        return items
    if kinds == {dict} and are_of(chain.from_iterable(map(dict[Any, Any].values, items)), unchanging):
        return [item.copy() for item in items]
    return list(map(isolate, items))


def isolate(value: Any) -> Any:
    """Return an element for one more reader: its arrays as read-only views; records, dicts, lists and objects as new.

    Objects that are not a structure are not copied. Nor is one that cannot be opened or rebuilt, or that contains
    itself: a step that needs its parts raises the error.
    """
    try:
        return isolated_value(value)
    except RecursionError:
        return value


def isolated_value(value: Any) -> Any:
    """Return a value for one more reader; `RecursionError` if it contains itself."""
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if issubclass(kind, CONSTANT):
        return value.copy() if issubclass(kind, np.void) else value
    if issubclass(kind, np.ndarray):
        return isolated_array(value)
    if kind is list:
        return list(map(isolated_value, value))
    try:
        return isolated_parts(value)
    except RecursionError:
        raise
    except Exception:  # noqa: BLE001  a step that needs the parts raises it
        return value


def isolated_parts(value: Any) -> Any:
    """Return a tensor, ragged rows or a structure with parts for one more reader; other objects unchanged."""
    if is_tensor_like(value):
        return clone(value)
    if isinstance(value, Ragged):
        return Ragged(read_only(value.values), read_only(value.row_splits))
    level = open_level(value)
    return value if level is None else level.rebuild(list(map(isolated_value, level.parts)))


def isolated_array(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a read-only array; objects in it are isolated too."""
    if array.dtype != object or are_of(array.flat, CONSTANT):
        return read_only(array)
    made = array.copy()
    for place, part in enumerate(array.flat):
        made.flat[place] = isolated_value(part)
    made.flags.writeable = False
    return made
