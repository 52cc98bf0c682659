"""Renewing: elements for one more reader, who may change them and changes nobody else's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from copy import copy
from itertools import chain
from typing import Any, cast

import numpy as np

from asyncdata.structure import open_level
from asyncdata.tensors import clone, is_tensor

__all__ = ("is_unchanging", "renew", "renewed")

UNCHANGING = (int, float, bool, complex, str, bytes, type(None), np.ndarray, np.generic)
"""Types of what is the same whoever has it; arrays count, as they are views or read-only where they are shared."""


def is_unchanging(value: Any) -> bool:
    """Tell whether several readers may have one value, as none can put other parts into it."""
    return isinstance(value, UNCHANGING)


def all_unchanging(values: Iterable[Any]) -> bool:
    return all(issubclass(kind, UNCHANGING) for kind in set(map(type, values)))


def renewed(items: list[Any]) -> list[Any]:
    """Return elements for one more reader, who may put other parts into the dicts, lists and objects that they are."""
    kinds = set(map(type, items))
    if all(issubclass(kind, UNCHANGING) for kind in kinds):
        return items
    if kinds == {tuple} and all_unchanging(chain.from_iterable(items)):
        return items
    if kinds == {dict} and all_unchanging(chain.from_iterable(map(dict[Any, Any].values, items))):
        return [item.copy() for item in items]
    return list(map(renew, items))


def renew(value: Any) -> Any:
    """Return an element with the same leaves, lists among them as lists of their own."""
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if issubclass(kind, UNCHANGING):
        return value
    if kind is dict:
        return {key: renew(part) for key, part in cast("dict[Any, Any]", value).items()}
    if kind is list or dataclasses.is_dataclass(kind):
        return copy(value)
    if is_tensor(value):
        return clone(value)
    level = open_level(value)
    return value if level is None else level.rebuild(list(map(renew, level.parts)))
