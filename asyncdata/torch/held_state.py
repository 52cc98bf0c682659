"""What a dataset remembers, as a digest: one that changes is no function of the index."""

from __future__ import annotations

import io
import pickle
import sys
from hashlib import blake2b
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final, cast

import numpy as np

from asyncdata.elements.tensors import array_and_dtype, is_dense, is_tensor
from asyncdata.executors.function_wrappers import MAINS
from asyncdata.executors.process.held_data import LARGE
from asyncdata.torch.process_settings import is_own

__all__ = ("MOST_STATE", "digest_of_state")

MOST_STATE: Final = 1 << 24
"""Bytes that may be remembered, beside large arrays: of so much it takes 0.1 s to tell whether it has changed."""

NAMED: Final = (type, FunctionType, BuiltinFunctionType, ModuleType)
BASIC: Final = (str, bytes, int, float, list, tuple, dict, set, np.ndarray)


class Digest(io.RawIOBase):
    """A file that keeps a digest of what is written, which is not too much."""

    def __init__(self) -> None:
        self.found = blake2b(digest_size=16)
        self.size = 0

    def write(self, data: Any, /) -> int:
        self.found.update(data)
        self.size += len(data)
        if self.size > MOST_STATE:
            raise ValueError("it would take too long to tell whether this has changed")
        return len(data)


class StatePickler(pickle.Pickler):
    """Pickles the state of objects, and leaves out what has none that could be sent: functions, classes, open files,
    and the data of large arrays."""

    def reducer_override(self, obj: Any) -> Any:
        if obj is str:
            return NotImplemented
        if isinstance(obj, NAMED):
            return str, (getattr(obj, "__qualname__", ""),), told(state_of_code(obj))
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
            state[0] = told(cast("dict[Any, Any]", state[0]))
        return made, given, *state


def state_of_code(value: Any) -> dict[Any, Any]:
    """Return what a class or function of the program may remember: class attributes, and the globals that it uses."""
    module: str = getattr(value, "__module__", None) or ""
    if module not in MAINS and not is_own(module, getattr(sys.modules.get(module), "__file__", None)):
        return {}
    if isinstance(value, FunctionType):
        return {name: value.__globals__[name] for name in value.__code__.co_names if name in value.__globals__}
    return (
        {name: one for name, one in vars(value).items() if name not in vars(object)} if isinstance(value, type) else {}
    )


def told(attributes: dict[Any, Any]) -> dict[Any, Any]:
    """Return the attributes that have a state that can be sent."""
    return {name: one for name, one in attributes.items() if one is not None and can_be_told(one)}


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
    """Return a digest of what objects remember; `None` if that cannot be told, or is too much."""
    target = Digest()
    try:
        StatePickler(cast("Any", target), 5).dump(values)
    except Exception:  # noqa: BLE001  an object that refuses in its own way
        return None
    return target.found.digest()
