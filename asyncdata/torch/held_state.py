"""What a dataset remembers, as a digest: whether its state has changed shows that it is no function of the index."""

from __future__ import annotations

import io
import pickle
from hashlib import blake2b
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final, cast

import numpy as np

from asyncdata.elements.tensors import array_and_dtype, is_dense, is_tensor
from asyncdata.executors.process.held_data import LARGE

__all__ = ("digest_of_state",)

NAMED: Final = (type, FunctionType, BuiltinFunctionType, ModuleType)
BASIC: Final = (str, bytes, int, float, list, tuple, dict, set, np.ndarray)


class Digest(io.RawIOBase):
    """A file that keeps a digest of what is written."""

    def __init__(self) -> None:
        self.found = blake2b(digest_size=16)

    def write(self, data: Any, /) -> int:
        self.found.update(data)
        return len(data)


class StatePickler(pickle.Pickler):
    """Pickles the state of objects, and leaves out what has none that could be sent: functions, classes, open files,
    and the data of large arrays."""

    def reducer_override(self, obj: Any) -> Any:
        if obj is str:
            return NotImplemented
        if isinstance(obj, NAMED):
            return str, (getattr(obj, "__qualname__", ""),)
        if isinstance(obj, np.ndarray) or is_tensor(obj):
            data = cast("Any", obj)
            if data.nbytes >= LARGE:
                return str, (str(data.shape),)
            if is_tensor(data) and is_dense(data):
                return bytes, (array_and_dtype(data)[0].tobytes(),)
        found = reduced(obj)
        if not isinstance(found, tuple):
            return found
        made, given, *state = cast("tuple[Any, ...]", found)
        if state and isinstance(state[0], dict):
            attributes = cast("dict[Any, Any]", state[0])
            state[0] = {name: one for name, one in attributes.items() if one is not None and can_be_told(one)}
        return made, given, *state


def reduced(value: Any) -> Any:
    """Return how an object would be pickled; nothing for one that cannot."""
    try:
        return value.__reduce_ex__(5)
    except Exception:  # noqa: BLE001  whatever its class raises
        return str, ("",)


def can_be_told(value: object) -> bool:
    """Return whether an attribute has a state that can be sent: an open file has none."""
    return isinstance(value, (*NAMED, *BASIC)) or reduced(value) != (str, ("",))


def digest_of_state(*values: object) -> bytes | None:
    """Return a digest of what objects remember; `None` if it cannot be told."""
    target = Digest()
    try:
        StatePickler(cast("Any", target), 5).dump(values)
    except Exception:  # noqa: BLE001  an object that refuses in its own way
        return None
    return target.found.digest()
