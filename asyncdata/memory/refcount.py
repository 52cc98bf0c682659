"""Whether an element is referred to by nothing but the list that holds it, so that its arrays may be reused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from sys import getrefcount
from typing import Any, Final
from weakref import getweakrefcount

import numpy as np
import numpy.typing as npt

__all__ = ("is_only_reference",)


def references(holder: Any, key: Any) -> int:
    """Count those to what `holder` has at `key`, the one that asks for them among them."""
    return getrefcount(holder[key])


ALONE: Final = references([object()], 0)


def is_only_reference(holder: Sequence[Any] | Mapping[Any, Any], key: Any) -> bool:
    """Return whether what `holder` has at `key`, an array or a tuple or dict of such, can be written into unseen.

    It can if there is no other reference to it, nor to what its memory belongs to. Of other objects it is not known.
    Only for a holder that nobody else reads, and where threads take turns.

    >>> kept = np.zeros(3)
    >>> is_only_reference([np.zeros(3)], 0), is_only_reference([kept], 0)
    (True, False)
    >>> is_only_reference([(np.zeros(3), kept[1:])], 0)
    False
    """
    if references(holder, key) > ALONE:
        return False
    value = holder[key]
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is tuple:
        return all(is_only_reference(value, place) for place in range(len(value)))
    if kind is dict:
        return all(is_only_reference(value, name) for name in value)
    return kind is np.ndarray and is_owner(value)


def is_owner(array: npt.NDArray[Any]) -> bool:
    """Return whether an array's memory is its own, or that of an array which nothing else looks into."""
    if not array.flags.writeable or getweakrefcount(array):
        return False
    if array.flags.owndata:
        return True
    base = [array.base]
    if type(base[0]) is not np.ndarray or references(base, 0) > ALONE + 1:  # that of the array itself
        return False
    return base[0].flags.owndata and not getweakrefcount(base[0])
