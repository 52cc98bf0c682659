"""Values of users' states as JSON: tensors, arrays, bytes, tuples and sets among them. Nothing is unpickled."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, cast

import numpy as np

from asyncdata.elements.tensors import array_and_dtype, from_array_and_dtype, has_gradient, is_tensor

__all__ = ("from_json_value", "to_json_value")

KIND: Final = "__kind__"
"""The name under which the JSON object of a value says what it is."""


def to_json_value(value: Any) -> Any:
    """Return a value as JSON values; `TypeError` for one that cannot be, such as an object of a class."""
    if value is None or type(value) in PLAIN:
        return value
    for kind, convert in CONVERTED:
        if isinstance(value, kind):
            return convert(value)
    if is_tensor(value):
        array, name = array_and_dtype(value.cpu())
        gradient = {"gradient": True} if has_gradient(value) else {}
        return {KIND: "tensor", "name": name, "array": array_value(array), **gradient}
    raise TypeError(
        f"a {type(value).__name__} cannot be in a state: give numbers, texts, lists, dicts, arrays, tensors"
    )


PLAIN: Final = (bool, int, float, str)


def items_of(name: str) -> Callable[[Any], Any]:
    """Return a function that returns a collection of this name as a JSON object."""
    return lambda value: {KIND: name, "items": [*map(to_json_value, value)]}


def bytes_of(name: str) -> Callable[[Any], Any]:
    """Return a function that returns bytes of this name as a JSON object."""
    return lambda value: {KIND: name, "data": b64encode(value).decode()}


def mapping(value: dict[Any, Any]) -> Any:
    """Return a dict as a JSON object, as a list of pairs if a name in it is no text."""
    if all(type(name) is str for name in value) and KIND not in value:
        return {name: to_json_value(part) for name, part in value.items()}
    return {KIND: "dict", "items": [[to_json_value(name), to_json_value(part)] for name, part in value.items()]}


def array_value(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return an array as a JSON object; `TypeError` for one that would come back as another."""
    if array.dtype.hasobject or np.dtype(array.dtype.str) != array.dtype or isinstance(array, np.ma.MaskedArray):
        kind = "objects" if array.dtype == object else f"dtype {array.dtype}"
        raise TypeError(f"an array of {kind}{' with a mask' * np.ma.isMaskedArray(array)} cannot be in a state")
    data = b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {KIND: "array", "dtype": array.dtype.str, "shape": [*array.shape], "data": data}


CONVERTED: Final[tuple[tuple[type, Callable[[Any], Any]], ...]] = (
    (list, lambda value: [*map(to_json_value, value)]),
    (dict, mapping),
    (tuple, items_of("tuple")),
    (set, items_of("set")),
    (frozenset, items_of("frozenset")),
    (np.str_, lambda value: {KIND: "np.str_", "data": str.__str__(value)}),  # an array would lose zeros at its end
    (np.bytes_, bytes_of("np.bytes_")),
    (bytes, bytes_of("bytes")),
    (bytearray, bytes_of("bytearray")),
    (np.ndarray, array_value),
    (np.generic, lambda value: {KIND: "scalar", "array": array_value(np.asarray(value))}),
    (complex, lambda value: {KIND: "complex", "parts": [value.real, value.imag]}),
    *((kind, kind) for kind in PLAIN),  # of a subclass, such as an enum's member
)


def array_of(value: dict[str, Any]) -> np.ndarray[Any, Any]:
    data = np.frombuffer(b64decode(value["data"]), np.dtype(value["dtype"]))
    return data.reshape(value["shape"]).copy()


def tensor_of(value: dict[str, Any]) -> Any:
    import_module("torch")
    return from_array_and_dtype(array_of(value["array"]), value["name"], value.get("gradient") is True)


MAKE: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "tuple": lambda value: tuple(map(from_json_value, value["items"])),
    "set": lambda value: set(map(from_json_value, value["items"])),
    "frozenset": lambda value: frozenset(map(from_json_value, value["items"])),
    "np.str_": lambda value: np.str_(value["data"]),
    "np.bytes_": lambda value: np.bytes_(b64decode(value["data"])),
    "bytes": lambda value: b64decode(value["data"]),
    "bytearray": lambda value: bytearray(b64decode(value["data"])),
    "dict": lambda value: {from_json_value(name): from_json_value(part) for name, part in value["items"]},
    "array": array_of,
    "scalar": lambda value: array_of(value["array"])[()],
    "complex": lambda value: complex(*value["parts"]),
    "tensor": tensor_of,
}


def from_json_value(value: Any) -> Any:
    """Return the value that `to_json_value` was given; `ValueError` or `KeyError` if this is not its result."""
    if isinstance(value, list):
        return [*map(from_json_value, cast("list[Any]", value))]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    if KIND in fields:
        return MAKE[fields[KIND]](fields)
    return {name: from_json_value(part) for name, part in fields.items()}
