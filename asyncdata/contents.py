"""Contents: what functions do and what data in memory is, as hashes, so that kept elements of others are told apart."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from hashlib import blake2b
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from asyncdata.formats.tfrecord import checksum
from asyncdata.plan import Node, nodes_of
from asyncdata.runtime.executors import Call
from asyncdata.structure import open_level

__all__ = ("changed", "contents", "contents_of")

PLAIN: Final = frozenset({bool, int, float, complex, str, bytes, type(None)})
"""Types whose `repr` tells all."""


def contents(plan: Node) -> list[str]:
    """Return, for each step of a plan's account, a hash of what its words do not tell; empty if they tell all."""
    return [contents_of(node.contents) for node in nodes_of(plan) if node.identity is not None]


def contents_of(values: tuple[Any, ...]) -> str:
    """Return the version of Python, on which the code of a function depends, and a hash; nothing for nothing."""
    if not values:
        return ""
    digest = Digest()
    for value in values:
        digest.data(value)
    return f"{sys.version_info.major}.{sys.version_info.minor} {digest.hash.hexdigest()}"


def changed(was: Sequence[str], now: Sequence[str]) -> int | None:
    """Return at which step of an account something is another now; hashes by two versions of Python tell nothing."""
    for place, (old, new) in enumerate(zip(was, now, strict=True)):
        if old != new and (not old or not new or old.partition(" ")[0] == new.partition(" ")[0]):
            return place
    return None


class Digest:
    """A hash of functions and data, the same in every process with one version of Python.

    A function counts by its code, its constants, those functions of its module that it calls by name, and what it holds
    of numbers, strings, tuples and arrays: in default arguments and in variables of the function around it, unless it
    assigns those itself. Lists and dicts that it holds may be there for what it writes down, and count by their types
    alone, as objects do everywhere, and functions of this package by their names.
    """

    def __init__(self) -> None:
        self.hash = blake2b(digest_size=8)
        self.seen: set[int] = set()

    def tell(self, *words: object) -> None:
        """Add words that are the same in every process."""
        self.hash.update(repr(words).encode())

    def data(self, value: Any) -> None:
        """Add an element or a part of it, or a function."""
        kind = cast("type[Any]", type(value))
        if kind is list or kind is tuple:
            items = cast("list[Any]", value)
            self.tell(kind.__name__, len(items))
            if PLAIN.issuperset(map(type, items)):
                self.tell(items)
            else:
                self.each(items)
        elif (level := open_level(value)) is not None:
            self.tell(kind.__qualname__, level.names)
            self.each(level.parts)
        else:
            self.part(value)

    def each(self, values: Iterable[Any]) -> None:
        for value in values:
            self.data(value)

    def part(self, value: Any) -> None:
        """Add what a function holds."""
        kind = cast("type[Any]", type(value))
        if kind in PLAIN:
            self.tell(value)
        elif kind is tuple:
            for one in value:
                self.part(one)
        elif isinstance(value, (np.ndarray, np.generic)):
            self.array(np.asarray(cast("Any", value)))
        elif isinstance(value, Call):
            self.part(value.fn)
        else:
            self.called(value, kind)

    def array(self, array: npt.NDArray[Any]) -> None:
        """Add an array; the checksum takes a tenth of a second for a gigabyte."""
        self.tell(str(array.dtype), array.shape)
        if array.dtype.hasobject:
            self.each(array.ravel().tolist())
        else:
            self.tell(checksum()(np.ascontiguousarray(array).reshape(-1).view(np.uint8)))

    def called(self, value: Any, kind: type[Any]) -> None:
        """Add a function, or the name of what is none, or none of Python's."""
        if isinstance(value, FunctionType):
            self.function(value)
        elif isinstance(value, partial):
            whole = cast("partial[Any]", value)
            self.part((whole.func, whole.args, *whole.keywords.items()))
        elif isinstance(value, MethodType):
            self.part((value.__func__, type(value.__self__)))
        elif (inner := getattr(value, "__wrapped__", None)) is not None:
            self.part(inner)
        elif getattr(value, "__name__", "") == "__getitem__":
            self.data(value.__self__)  # of what has no code of Python's, such as a list
        else:
            named = value if hasattr(value, "__qualname__") else kind
            self.tell(getattr(named, "__module__", ""), named.__qualname__)
            if named is kind and isinstance(call := vars(kind).get("__call__"), FunctionType):
                self.function(call)

    def function(self, function: FunctionType) -> None:
        """Add a function of Python's, and those that it calls by name."""
        if id(function) in self.seen:
            return
        self.seen.add(id(function))
        if str(function.__module__).partition(".")[0] == "asyncdata":
            self.tell(function.__qualname__)
            return
        code = function.__code__
        self.code(code, function.__doc__)
        self.part((function.__defaults__, *(function.__kwdefaults__ or {}).items()))
        written = {step.argval for step in dis.get_instructions(code) if step.opname == "STORE_DEREF"}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if name not in written and cell_is_full(cell):
                self.part(cell.cell_contents)
        for name in names_of(code):
            other = function.__globals__.get(name)
            if isinstance(other, FunctionType) and other.__module__ == function.__module__:
                self.function(other)

    def code(self, code: CodeType, doc: str | None = None) -> None:
        """Add what code does, and not where it stands or what is said of it."""
        self.tell(code.co_code, code.co_names, code.co_argcount, code.co_kwonlyargcount, code.co_flags)
        for place, constant in enumerate(code.co_consts):
            if isinstance(constant, CodeType):
                self.code(constant)
            elif isinstance(constant, frozenset):
                self.tell(sorted(map(repr, cast("frozenset[Any]", constant))))
            elif place or constant != doc:
                self.tell(constant)


def cell_is_full(cell: Any) -> bool:
    """Tell whether a variable of the function around has a value yet."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def names_of(code: CodeType) -> list[str]:
    """Return the names that code uses, that of functions in it too."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [*code.co_names, *[name for one in inner for name in names_of(one)]]
