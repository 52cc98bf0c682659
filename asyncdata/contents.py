"""Contents: what functions do and what data in memory is, as hashes, so that kept elements of others are told apart."""

from __future__ import annotations

import dis
import sys
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from datetime import time as dt_time
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import lru_cache, partial
from hashlib import blake2b
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_NEWLOCALS, CO_VARARGS, CO_VARKEYWORDS
from operator import attrgetter, itemgetter, methodcaller
from pathlib import PurePath
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, MethodWrapperType
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from asyncdata.formats.tfrecord import checksum
from asyncdata.plan import Node, nodes_of
from asyncdata.runtime.executors import Call
from asyncdata.structure import open_level
from asyncdata.trying import Retried, Timed

__all__ = ("changed", "contents", "contents_of")

PLAIN: Final = frozenset({bool, int, float, complex, str, bytes, bytearray, type(None), type(...)})
"""Types whose values are told as they are."""

NAMED: Final = frozenset({date, datetime, dt_time, timedelta, Decimal, Fraction, np.dtype})
"""Types whose text tells all."""

SHORT: Final = PLAIN - {bytes, bytearray}

SOME: Final = 1024
"""So many short values are told at once."""

CO_HAS_DOCSTRING: Final = 0x4000000

GETTERS: Final = frozenset({itemgetter, attrgetter, methodcaller})

CACHED: Final = type(lru_cache(int))

KINDS: Final = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
"""What of the flags of code says what it does."""


def contents(plan: Node) -> list[str]:
    """Return, for each step of a plan's account, a hash of what its words do not tell; empty if they tell all."""
    return [contents_of(node.contents) for node in nodes_of(plan) if node.identity is not None]


def contents_of(values: tuple[Any, ...]) -> str:
    """Return the version of Python, on which the code of a function depends, and a hash; nothing for nothing."""
    if not values:
        return ""
    digest = Digest()
    for value in values:
        digest.add(value)
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
    of numbers, strings, tuples, arrays and the like: in default arguments and in variables of the function around it,
    unless it assigns those itself. Lists and dicts that it holds may be there for what it writes down, and count by
    their types alone, as objects do everywhere, and functions of this package by their names. No code of the user's is
    run for it: what a value says of itself is looked up in its type.
    """

    def __init__(self) -> None:
        self.hash = blake2b(digest_size=8)
        self.within: set[int] = set()
        """What is being added, so that what is a part of itself has an end."""

    def tell(self, *words: object) -> None:
        """Add words that are the same in every process."""
        self.hash.update(repr(words).encode(errors="surrogatepass"))

    def add(self, value: Any) -> None:
        """Add a function or data, whatever that is; by its type if it cannot be looked into."""
        kind = cast("type[Any]", type(value))
        try:
            (self.part if issubclass(kind, Call) or callable(value) else self.data)(value)
        except Exception:  # noqa: BLE001  values may be of any kind, and a cache must not fail for that
            self.tell(kind.__qualname__)

    def data(self, value: Any) -> None:
        """Add an element or a part of it."""
        kind = cast("type[Any]", type(value))
        if id(value) in self.within:
            return
        self.within.add(id(value))
        if kind is list:
            self.each(kind, cast("list[Any]", value))
        elif kind is dict:
            self.each(kind, [one for pair in cast("dict[Any, Any]", value).items() for one in pair])
        elif (level := open_level(value)) is not None:
            self.each(kind, level.parts)
        else:
            self.part(value)
        self.within.discard(id(value))

    def each(self, kind: type[Any], values: Sequence[Any]) -> None:
        self.tell(kind.__qualname__, len(values))
        if SHORT.issuperset(map(type, values)):
            for start in range(0, len(values), SOME):
                self.tell(*values[start : start + SOME])
            return
        for value in values:
            if type(value) in PLAIN:
                self.plain(value)
            else:
                self.data(value)

    def plain(self, value: Any) -> None:
        """Add a value whose type is plain."""
        if isinstance(value, (bytes, bytearray)):
            self.tell("bytes", len(value))
            self.hash.update(value)
        else:
            self.tell("int", hex(value)) if type(value) is int else self.tell(value)

    def part(self, value: Any) -> None:
        """Add what a function holds."""
        kind = cast("type[Any]", type(value))
        if kind in PLAIN:
            self.plain(value)
        elif issubclass(kind, tuple):
            self.tell(kind.__qualname__, len(value))
            for one in value:
                self.part(one)
        elif issubclass(kind, (np.ndarray, np.generic)):
            self.array(np.asarray(value))
        elif kind in NAMED or issubclass(kind, (PurePath, Enum)):
            self.tell(kind.__qualname__, str(value))
        elif kind in (frozenset, range):
            self.tell(kind.__qualname__, sorted(map(repr, value)) if kind is frozenset else repr(value))
        else:
            self.called(value, kind)

    def array(self, array: npt.NDArray[Any]) -> None:
        """Add an array; the checksum takes a tenth of a second for a gigabyte."""
        self.tell(str(array.dtype), array.shape)
        if array.dtype.names is not None:
            for name in array.dtype.names:  # not what lies between the fields
                self.array(array[name])
        elif array.dtype.hasobject:
            self.each(list, array.ravel().tolist())
        else:
            self.tell(checksum()(np.ascontiguousarray(array).reshape(-1).view(np.uint8)))

    def called(self, value: Any, kind: type[Any]) -> None:
        """Add a function, or the name of what is none, or none of Python's."""
        if kind is FunctionType:
            self.function(value)
        elif issubclass(kind, Call):
            self.part(value.fn)
        elif kind is partial:
            self.part((value.func, value.args, *value.keywords.items()))
        elif kind is MethodType:
            self.part((value.__func__, type(value.__self__)))
        elif issubclass(kind, (Retried, Timed)):
            self.part(value.func)
        elif kind is CACHED:
            self.part(value.__wrapped__)
        elif kind in GETTERS:
            self.part(value.__reduce__()[1])
        elif kind in (BuiltinMethodType, MethodWrapperType):
            self.tell(value.__qualname__)
            if value.__name__ == "__getitem__":
                self.data(value.__self__)  # of what has no code of Python's, such as a list
        else:
            self.named(value, kind)

    def named(self, value: Any, kind: type[Any]) -> None:
        """Add what counts by its name, or by that of its class and how this is called."""
        if issubclass(kind, type) or kind is np.ufunc:
            self.tell(value.__name__)
            return
        self.tell(kind.__qualname__)
        found = [vars(base)["__call__"] for base in kind.__mro__ if "__call__" in vars(base)]
        if found and type(found[0]) is FunctionType:
            self.function(found[0])

    def function(self, function: FunctionType) -> None:
        """Add a function of Python's, and those that it calls by name."""
        if id(function) in self.within:
            return
        self.within.add(id(function))
        if str(function.__module__).partition(".")[0] == "asyncdata":
            self.tell(function.__qualname__)
            return
        code = function.__code__
        self.code(code)
        self.part((function.__defaults__, *(function.__kwdefaults__ or {}).items()))
        written = used(code, "STORE_DEREF")
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if name not in written and cell_is_full(cell):
                self.part(cell.cell_contents)
        for name in sorted(used(code, "LOAD_GLOBAL", "LOAD_NAME")):
            other = function.__globals__.get(name)
            if type(other) is FunctionType and other.__module__ == function.__module__:
                self.function(other)

    def code(self, code: CodeType) -> None:
        """Add what code does, and not where it stands or what is said of it."""
        self.tell(code.co_code, code.co_names, code.co_argcount, code.co_kwonlyargcount, code.co_flags & KINDS)
        for constant in code.co_consts[has_doc(code) :]:
            if isinstance(constant, CodeType):
                self.code(constant)
            else:
                self.part(constant)


def has_doc(code: CodeType) -> bool:
    """Tell whether the first constant of code is its docstring, or `None` in the place of one."""
    if sys.version_info >= (3, 13):
        return bool(code.co_flags & CO_HAS_DOCSTRING)
    return bool(code.co_flags & CO_NEWLOCALS) and not code.co_name.startswith("<")


def cell_is_full(cell: Any) -> bool:
    """Tell whether a variable of the function around has a value yet."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def used(code: CodeType, *operations: str) -> set[str]:
    """Return the names that these operations of code use, that of functions in it too."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    names = {step.argval for step in dis.get_instructions(code) if step.opname in operations}
    return names.union(*[used(one, *operations) for one in inner])
