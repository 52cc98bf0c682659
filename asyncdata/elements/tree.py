"""What may be an element: any value. Arrays, tensors and most others are leaves; tuples and dicts are opened.

Tuples, dicts and other mappings, named tuples, dataclasses and classes registered with optree are structure; all other
values, including lists and what torch treats as a tensor (TensorDict), are leaves.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, cast

import numpy as np
import optree

from asyncdata.elements.spec import TensorSpec
from asyncdata.errors import StructureError

__all__ = ("LEAVES", "TreeLevel", "attributes", "is_arrow", "named_slots", "open_level")

LEAVES: frozenset[type[Any]] = frozenset(
    {np.ndarray, int, float, bool, complex, str, bytes, bytearray, type(None), list}
)
"""The most common types of leaves, which are recognised first."""


class TreeLevel(NamedTuple):
    """One level of a structure: its parts, their names for messages, and a function that rebuilds it from parts.

    `rebuild` calls no constructor of a user's class. If a class registered with optree cannot be rebuilt, it raises
    `StructureError`.
    """

    parts: list[Any]
    names: list[str]
    rebuild: Callable[[Iterable[Any]], Any]


def open_level(value: Any) -> TreeLevel | None:
    """Open one level of a structure; `None` for a leaf."""
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind in LEAVES:
        return None
    if kind is tuple:
        return TreeLevel(list(value), [f"[{i}]" for i in range(len(value))], tuple)
    if kind is dict:
        return open_dict(value)
    if issubclass(kind, (np.generic, TensorSpec, type)) or hasattr(kind, "__torch_function__"):
        return None
    if dataclasses.is_dataclass(kind) and not issubclass(kind, Mapping):
        return open_dataclass(value)
    return open_other(value)


def open_other(value: Any) -> TreeLevel | None:
    """Open a named tuple, an object of a class registered with optree, or a mapping."""
    if not optree.tree_is_leaf(value, none_is_leaf=True):
        return open_named_tuple(value) if is_named_tuple(type(value)) else open_registered(value)
    return (
        open_mapping(cast("Mapping[Any, Any]", value)) if isinstance(value, Mapping) and not is_arrow(value) else None
    )


def is_arrow(value: Any) -> bool:
    """Return whether a value is a scalar, a buffer or another object of pyarrow that is no array."""
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    return kind.__module__.partition(".")[0] == "pyarrow" and not hasattr(kind, "__array__")


def open_dict(value: dict[Any, Any]) -> TreeLevel:
    keys = list(value)

    def rebuild(parts: Iterable[Any]) -> dict[Any, Any]:
        return dict(zip(keys, parts, strict=True))

    return TreeLevel(list(value.values()), [f"[{key!r}]" for key in keys], rebuild)


SEVERAL: Final = ("getall", "getlist", "get_list", "multi_items")
"""Methods of mappings that have several values for one key, as headers and parameters of HTTP have."""


def open_mapping(value: Mapping[Any, Any]) -> TreeLevel | None:
    """Open a mapping that is not a dict; one with several values for a key is a leaf, as values would be lost."""
    if any(hasattr(cast("type[Any]", type(value)), name) for name in SEVERAL):
        return None
    try:
        keys = list(value)
        parts = [value[key] for key in keys]
    except Exception as error:
        raise StructureError(f"a {type(value).__name__} could not be read: {error!r}") from error

    def rebuild(parts: Iterable[Any]) -> Any:
        return mapping_like(value, dict(zip(keys, parts, strict=True)))

    return TreeLevel(parts, [f"[{key!r}]" for key in keys], rebuild)


def mapping_like(value: Mapping[Any, Any], parts: dict[Any, Any]) -> Mapping[Any, Any]:
    """Return a copy of a mapping with other parts; a dict if a copy cannot be written to, or changes the parts."""
    if not isinstance(value, MutableMapping):
        return parts
    try:
        made = copy.copy(value)
        if made is value:
            return parts
        for key, part in parts.items():
            made[key] = part
        unchanged = type(made) is type(value) and len(made) == len(parts)
        return made if unchanged and all(made[key] is part for key, part in parts.items()) else parts
    except Exception:  # noqa: BLE001  whatever the class does, no part is lost
        return parts


def open_dataclass(value: Any) -> TreeLevel:
    names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]

    def rebuild(parts: Iterable[Any]) -> Any:
        return dataclass_like(value, dict(zip(names, parts, strict=True)))

    return TreeLevel([getattr(value, name) for name in names], [f".{name}" for name in names], rebuild)


def dataclass_like(value: Any, parts: dict[str, Any]) -> Any:
    """Return an object with other parts and all other attributes of `value`, without calling its constructor."""
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    try:
        try:
            made = object.__new__(kind)
        except TypeError:  # it is also an exception or the like
            made = copy.copy(value)
        for name, attribute in {**attributes(value), **parts}.items():
            object.__setattr__(made, name, attribute)
    except Exception as error:
        raise StructureError(f"a {kind.__name__} could not be rebuilt with other parts: {error!r}") from error
    return made


def attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of an object, in slots and `__dict__`, except those computed from its parts."""
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    slots = [name for base in kind.__mro__ for name in named_slots(base)]
    found = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    own: dict[str, Any] = getattr(value, "__dict__", {})
    return {**found, **{n: v for n, v in own.items() if not isinstance(getattr(kind, n, None), cached_property)}}


def named_slots(kind: type[Any]) -> Sequence[str]:
    """Return the slots of a class that hold attributes of objects."""
    slots: Any = kind.__dict__.get("__slots__", ())
    names: Sequence[str] = [slots] if isinstance(slots, str) else slots
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def is_named_tuple(kind: Any) -> bool:
    """Return whether a class is a named tuple; the results of `os.stat` are not."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields") and not hasattr(kind, "n_sequence_fields")  # pyright: ignore[reportUnknownArgumentType]


def open_named_tuple(value: Any) -> TreeLevel:
    """Open a named tuple; it is rebuilt without its class's own `__new__`."""

    kind = cast("type[tuple[Any, ...]]", type(value))

    def rebuild(parts: Iterable[Any]) -> Any:
        made: Any = tuple[Any, ...].__new__(kind, parts)
        if more := getattr(value, "__dict__", None):
            made.__dict__.update(more)
        return made

    return TreeLevel(list(value), [f".{name}" for name in value._fields], rebuild)


def open_registered(value: Any) -> TreeLevel:
    """Open an object of another class that is registered with optree."""
    kind = type(value).__name__
    try:
        parts, metadata, entries, unflatten = optree.tree_flatten_one_level(value, none_is_leaf=True)
    except Exception as error:
        raise StructureError(f"optree could not flatten a {kind}: {error!r}") from error
    fields: Sequence[str] | None = getattr(value, "_fields", None)
    names = [f"[{entry!r}]" for entry in entries] if fields is None else [f".{field}" for field in fields]

    def rebuild(parts: Iterable[Any]) -> Any:
        try:
            return unflatten(metadata, list(parts))
        except Exception as error:
            raise StructureError(f"optree could not rebuild a {kind}: {error!r}") from error

    return TreeLevel(list(parts), names, rebuild)
