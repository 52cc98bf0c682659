"""Hashes of what functions do and of data in memory, so that cached elements of other pipelines are not used."""

from __future__ import annotations

import sys
from array import array as array_of
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import is_dataclass
from datetime import date, datetime, timedelta, timezone
from datetime import time as dt_time
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import lru_cache, partial
from hashlib import blake2b
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_NEWLOCALS, CO_VARARGS, CO_VARKEYWORDS
from itertools import chain, islice, zip_longest
from operator import attrgetter, itemgetter, methodcaller
from pathlib import PurePath
from re import Pattern
from types import (
    BuiltinMethodType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, Final, cast
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from asyncdata.elements.structure import open_level
from asyncdata.elements.tensors import is_tensor, tensor_content
from asyncdata.errors import PlanError
from asyncdata.executors.function_call import Call
from asyncdata.executors.retry import Interrupted, Retried, Timed
from asyncdata.graph.node import Node, Planned, nodes_of
from asyncdata.identity.hashed_attributes import attributes_of, is_own, keywords_of, used
from asyncdata.identity.hashed_callables import contents_of_callable
from asyncdata.system.crc32c import checksum

__all__ = ("changed", "contents", "contents_of", "hash_of")

PLAIN: Final = frozenset({bool, int, float, complex, str, bytes, bytearray, type(None), type(...)})
"""Types whose values are hashed as they are."""

EXACT: Final[dict[type[Any], Callable[[Any], Any]]] = {
    str: str.__str__,
    bytes: bytes.__bytes__,
    bytearray: bytearray.copy,
    int: int.__index__,
    float: float.__float__,
    complex: complex.__complex__,
}
"""How to have the plain value of one whose class is the user's, with none of the user's methods."""

HOLDING: Final[dict[type[Any], Callable[[Any], Iterable[Any]]]] = {
    list: cast("Any", list).__iter__,
    OrderedDict: lambda value: chain.from_iterable(OrderedDict[Any, Any].items(value)),
    dict: lambda value: chain.from_iterable(dict[Any, Any].items(value)),
    set: cast("Any", set).__iter__,
    frozenset: cast("Any", frozenset).__iter__,
    tuple: cast("Any", tuple).__iter__,
}
"""How to read the contents of a value whose class may be the user's, without calling the user's methods."""

CHANGING: Final = (list, OrderedDict, dict)
"""Types whose contents a function may change, but for the functions in them."""

SETS: Final = frozenset({set, frozenset})

HELD: Final[tuple[type[Any], ...]] = (tuple, frozenset, np.ndarray, np.generic)
"""Attributes of a function that are hashed."""

NAMED: Final = frozenset({date, timedelta, Decimal, Fraction})
"""Types whose values are hashed by their text."""

PARTS: Final[dict[type[Any], Callable[[Any], tuple[Any, ...]]]] = {
    slice: attrgetter("start", "stop", "step"),
    range: attrgetter("start", "stop", "step"),
    datetime: lambda value: value.__reduce_ex__(4)[1],  # which of two hours in autumn it is too
    dt_time: lambda value: value.__reduce_ex__(4)[1],
    timezone: lambda value: value.__getinitargs__(),
    ZoneInfo: lambda value: (value.key,),
    Pattern: lambda value: (value.pattern, value.flags),
    memoryview: lambda value: (value.format, value.shape, value.tobytes()),
    array_of: lambda value: (value.typecode, value.tobytes()),
    partial: lambda value: (value.func, value.args, *keywords_of(value)),
    itemgetter: lambda value: value.__reduce__(),
    attrgetter: lambda value: value.__reduce__(),
    methodcaller: lambda value: value.__reduce__(),
}
"""Types that are hashed by some of their parts."""

SHORT: Final = PLAIN - {bytes, bytearray}

SOME: Final = 1024
"""So many short values are hashed at once."""

CO_HAS_DOCSTRING: Final = 0x4000000

CACHED: Final = type(lru_cache(int))

BUILT_IN: Final = frozenset({BuiltinMethodType, MethodWrapperType})

UNBOUND: Final = frozenset(
    {MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType, cast("type[Any]", type(np.sum))}
)
"""Types of functions that have a name and no code of Python's, nor an object."""

READING: Final = frozenset({"__getitem__", "get", "__contains__"})
"""Methods of lists, dicts and sets that do not change them."""

KINDS: Final = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
"""The flags of code that affect what it does."""


def contents(plan: Node) -> list[str]:
    """Return, for each step of a plan's account, and then for each that leaves out records, a hash of all in it that
    stored elements depend on."""
    steps = [node for node in nodes_of(plan) if node.identity is not None]
    return [contents_of(node.contents) for node in (*steps, *[node for node in nodes_of(plan) if node.exclusion])]


def contents_of(values: tuple[Any, ...]) -> str:
    """Return a hash; if code is in it, prefixed by the version of Python, as bytecode depends on that."""
    if not values:
        return ""
    digest = ContentHasher()
    for value in values:
        digest.add(value)
    version = f"{sys.version_info.major}.{sys.version_info.minor} " if digest.coded else ""
    return f"{version}{digest.hash.hexdigest()}"


def changed(was: Sequence[str], now: Sequence[str]) -> int | None:
    """Return the step of an account that has changed; code of two versions of Python cannot be compared."""
    for place, (old, new) in enumerate(zip_longest(was, now, fillvalue="")):
        versions = {words.rpartition(" ")[0] for words in (old, new)}
        if old != new and ("" in versions or len(versions) == 1):
            return place
    return None


def hash_of(value: Any) -> str:
    """Return a short hash of data, in which functions count by their names."""
    digest = ContentHasher(coded=None)
    digest.add(value)
    return digest.hash.hexdigest()[:8]


class ContentHasher:
    """A hash of functions and data, the same in every process with one version of Python.

    A function counts by its code, its constants, and the functions of its module that it calls by name, also if
    `partial`, `lru_cache`, `with_retries` or `with_timeout` wraps them. The numbers, strings, tuples and arrays that it
    holds count too: in default arguments, in variables of the enclosing function unless it assigns them, and as the
    value of a built-in method. Lists, dicts and sets that it holds may be written to, so they count by their types and
    by the functions in lists and dicts; objects that are not called count by their types. What NumPy, numba, PyTorch
    and scikit-learn have vectorised, compiled or fitted counts by the function and the numbers that it holds. If an
    object is called, or its method is, its attributes count except those that are assigned by that method, or by others
    which it uses. Functions of this package count by their names and what they hold. No code of the
    user's runs for this, except to open a structure of the user's own, such as a property that is a field of a
    dataclass: other methods are looked up in the value's type.
    """

    def __init__(self, coded: bool | None = False) -> None:
        self.coded = coded
        """Whether code was added; `None` if functions count by their names."""
        self.hash = blake2b(digest_size=8)
        self.functions: dict[int, tuple[int, FunctionType]] = {}
        """The number of each function that was added. The function is held, so that no other gets the same `id`."""
        self.within: dict[int, int] = {}
        """The depth of the value being added, so that a value that contains itself comes to an end."""
        self.owners: dict[int, int] = {}
        """The same for objects whose attributes are being added."""

    def add_words(self, *words: object) -> None:
        """Add words that are the same in every process."""
        self.hash.update(repr(words).encode(errors="surrogatepass"))

    def add(self, value: Any) -> None:
        """Add a function or data, whatever that is; by its type if it is too deep."""
        kind = cast("type[Any]", type(value))
        before, functions = self.hash.copy(), dict(self.functions)
        try:
            if issubclass(kind, Call) or callable(value):
                self.add_value(value)
            elif self.coded is not None and hasattr(kind, "__iter__") and not is_dataclass(kind):
                self.iterable(value, kind)
            else:
                self.data(value)
        except RecursionError:  # how far that came depends on the caller
            self.hash, self.functions = before, functions
            self.add_words(kind.__qualname__)

    def iterable(self, value: Any, kind: type[Any]) -> None:
        """Add the origin of elements: data, or an object that gives them, with its attributes."""
        self.data(value)
        if base_of(kind, (*HOLDING, *HELD, *EXACT)) is None:
            self.attributes(value, kind)

    def data(self, value: Any) -> None:
        """Add an element or a part of it."""
        kind = cast("type[Any]", type(value))
        if id(value) in self.within:
            self.add_words("within", self.within[id(value)])
            return
        self.within[id(value)] = len(self.within)
        try:
            self.add_parts(value, kind)
        except (RecursionError, PlanError):
            raise
        except Exception:  # noqa: BLE001  values may be of any kind, and a cache must not fail for that
            self.add_words(kind.__qualname__)
        finally:
            del self.within[id(value)]

    def add_parts(self, value: Any, kind: type[Any]) -> None:
        """Add an element, each part of which is one."""
        base = base_of(kind, HOLDING)
        if base in SETS:
            self.members(kind, [*HOLDING[base](value)], ContentHasher.data)
        elif base is not None and base is not tuple:
            self.each(kind, [*HOLDING[base](value)])
        elif is_tensor(value):
            self.each(kind, tensor_content(value))
        elif (level := open_level(value)) is not None:
            self.each(kind, level.parts)
        else:
            self.add_value(value)

    def each(self, kind: type[Any], values: Sequence[Any]) -> None:
        self.add_words(kind.__qualname__, len(values))
        if SHORT.issuperset(map(type, values)):
            for start in range(0, len(values), SOME):
                self.some(values[start : start + SOME])
            return
        for value in values:
            if type(value) in PLAIN:
                self.plain(value)
            else:
                self.data(value)

    def some(self, values: Sequence[Any]) -> None:
        """Add short values together, which takes a hundredth of the time of adding each alone."""
        try:
            self.add_words(*values)
        except ValueError:  # an integer with too many digits to be written
            for value in values:
                self.plain(value)

    def members(self, kind: type[Any], values: Sequence[Any], add: Callable[[ContentHasher, Any], None]) -> None:
        """Add the members of a set, whose order differs between processes."""
        if SHORT.issuperset(map(type, values)):
            self.add_words(kind.__qualname__, sorted([hex(one) if type(one) is int else repr(one) for one in values]))
        else:
            self.add_words(kind.__qualname__, sorted([self.alone(one, add) for one in values]))

    def alone(self, value: Any, add: Callable[[ContentHasher, Any], None]) -> str:
        """Return the hash of a value that comes next, or would."""
        digest = ContentHasher(self.coded)
        digest.functions, digest.within, digest.owners = dict(self.functions), dict(self.within), dict(self.owners)
        add(digest, value)
        self.coded = digest.coded
        return digest.hash.hexdigest()

    def plain(self, value: Any) -> None:
        """Add a value whose type is plain."""
        if isinstance(value, (bytes, bytearray)):
            self.add_words(type(value).__name__, len(value))
            self.hash.update(value)
        else:
            self.add_words("int", hex(value)) if type(value) is int else self.add_words(value)

    def add_value(self, value: Any) -> None:
        """Add the values that a function holds."""
        kind = cast("type[Any]", type(value))
        if kind in PLAIN:
            self.plain(value)
            return
        try:
            self.held(value, kind)
        except (RecursionError, PlanError):
            raise
        except Exception:  # noqa: BLE001  as above
            self.add_words(kind.__qualname__)

    def held(self, value: Any, kind: type[Any]) -> None:
        base = base_of(kind, HELD)
        if base is tuple:
            parts = [*HOLDING[base](value)]
            self.add_words(kind.__qualname__, len(parts))
            for one in parts:
                self.add_value(one)
        elif is_tensor(value):
            self.data(value)
        elif base is frozenset:
            self.members(kind, [*HOLDING[base](value)], ContentHasher.add_value)
        elif base is not None:
            self.numbers(value, kind)
        elif kind in PARTS:
            self.add_words(kind.__qualname__)
            self.add_value(PARTS[kind](value))
        elif kind in NAMED or issubclass(kind, (PurePath, Enum, np.dtype, *EXACT)):
            self.add_exact(value, kind)
        else:
            self.called(value, kind)

    def add_exact(self, value: Any, kind: type[Any]) -> None:
        """Add a value of a known type by that type's own method, not by one of the user's."""
        self.add_words(kind.__qualname__)
        if issubclass(kind, Enum):
            own = object.__getattribute__(value, "__dict__")
            self.add_value((own["_name_"], own["_value_"]))
        elif issubclass(kind, PurePath):
            self.add_words(PurePath.__str__(value))
        elif kind in NAMED or issubclass(kind, np.dtype):
            self.add_words(str(value))
        else:
            self.plain(next(plain(value) for base, plain in EXACT.items() if issubclass(kind, base)))

    def numbers(self, value: Any, kind: type[Any]) -> None:
        """Add an array, with its mask if it has one, or a NumPy scalar."""
        if issubclass(kind, np.ma.MaskedArray):
            self.add_words("masked")
            self.array(np.ma.getmaskarray(value))
            self.array(np.asarray(value.fill_value))
        elif issubclass(kind, np.generic):
            self.add_words("scalar")
        self.array(np.asarray(value))

    def array(self, array: npt.NDArray[Any]) -> None:
        """Add an array; the checksum takes a tenth of a second for a gigabyte."""
        self.add_words(str(array.dtype), array.shape)
        if array.dtype.names is not None:
            for name in array.dtype.names:  # not the padding between the fields
                self.array(array[name])
        elif array.dtype.hasobject:
            self.each(list, array.ravel().tolist())
        elif array.dtype.char in "gG":  # which do not fill their bytes
            self.each(list, [repr(one) for one in array.ravel()])
        elif array.nbytes:
            self.add_words(checksum()(np.ascontiguousarray(array).reshape(-1).view(np.uint8)))

    def called(self, value: Any, kind: type[Any]) -> None:
        """Add a function, a method or another callable."""
        if kind is FunctionType:
            self.function(value)
        elif kind is MethodType:
            self.method(value)
        elif issubclass(kind, Call):
            self.add_words(value.spread)
            self.data(value.arguments)
            self.add_value(value.fn)
        elif issubclass(kind, Node) or (is_own(kind) and isinstance(value, Planned)):
            self.plan(cast("Any", value if issubclass(kind, Node) else value.plan))
        elif (inner := unwrapped(value)) is not value:
            self.add_value(inner)
        elif (inner := contents_of_callable(value, kind)) is not None:
            self.add_words(kind.__qualname__)
            self.data(inner)
        elif kind in BUILT_IN:
            self.built_in(value)
        elif kind in UNBOUND:
            self.add_words(value.__qualname__)
        else:
            self.named(value, kind)

    def built_in(self, function: Any) -> None:
        """Add a function that has no code of Python's, and the value whose method it is."""
        owner = function.__self__
        if owner is None or issubclass(type(owner), ModuleType):
            self.add_words(function.__module__, function.__qualname__)
            return
        self.add_words(function.__qualname__)
        (self.data if function.__name__ in READING else self.add_value)(owner)

    def named(self, value: Any, kind: type[Any]) -> None:
        """Add a value that counts by its name, or by the name of its class and the arguments of its call."""
        if issubclass(kind, type):
            self.add_words("type", value.__qualname__)
            return
        if kind is np.ufunc:
            self.add_words("ufunc", value.__name__)
            return
        self.add_words(kind.__qualname__)
        self.called_parts(value, base_of(kind, CHANGING))
        found = [vars(base)["__call__"] for base in kind.__mro__ if "__call__" in vars(base)]
        if found and type(found[0]) is FunctionType:
            self.function(found[0])
        if found or is_own(kind) or (is_dataclass(kind) and kind.__dataclass_params__.frozen):
            self.attributes(value, kind, "__call__" if found else None)

    def called_parts(self, value: Any, base: type[Any] | None) -> None:
        """Add the functions in a list or dict, which change seldom; what else is in it may be written to."""
        parts = [] if base is None else [*islice(HOLDING[base](value), SOME)]
        for place, one in enumerate(parts):
            if callable(one) and not isinstance(one, type):
                self.add_words(place)
                self.add_value(one)

    def plan(self, plan: Node) -> None:
        """Add a pipeline that a function holds."""
        for node in nodes_of(plan):
            self.add_words(node.identity)
            if node.identity is not None or node.exclusion:
                for value in node.contents:
                    self.add(value)

    def method(self, method: MethodType) -> None:
        """Add a method of Python's, and the value or the class whose method it is."""
        self.add_value(method.__func__)
        owner: Any = method.__self__
        kind = cast("type[Any]", type(owner))
        if issubclass(kind, type):
            self.add_value(owner)
            return
        self.add_words(kind.__qualname__)
        inner = contents_of_callable(owner, kind)
        if inner is None:
            self.attributes(owner, kind, method.__name__)
        else:
            self.data(inner)

    def attributes(self, value: Any, kind: type[Any], method: str | None = None) -> None:
        """Add the attributes of an object but for those that the method which is called assigns, or without one any of
        its methods; dataclasses in them too."""
        if id(value) in self.owners:
            self.add_words("owner", self.owners[id(value)])
            return
        self.owners[id(value)] = len(self.owners)
        try:
            for name, held in sorted(attributes_of(value, kind, method).items()):
                self.add_words(name)
                if is_own(kind):
                    self.data(held)
                elif is_dataclass(held) and not isinstance(held, type):
                    self.add_words(type(held).__qualname__)
                    self.attributes(held, type(held))
                else:
                    self.add_value(held)
        finally:
            del self.owners[id(value)]

    def function(self, function: FunctionType) -> None:
        """Add a function of Python's, and those that it calls by name."""
        if is_own(function) or self.coded is None:
            self.add_words(function.__qualname__)
            if is_own(function):
                for cell in filter(cell_is_full, function.__closure__ or ()):
                    self.data(cell.cell_contents)
            return
        self.coded = True
        if id(function) in self.functions:
            self.add_words("function", self.functions[id(function)][0])
            return
        self.functions[id(function)] = len(self.functions), function
        code = function.__code__
        self.code(code)
        self.add_value((function.__defaults__, *(function.__kwdefaults__ or {}).items()))
        written = used(code, "STORE_DEREF")
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if name not in written and cell_is_full(cell):
                self.add_value(cell.cell_contents)
        for name in sorted(used(code, "LOAD_GLOBAL", "LOAD_NAME")):
            other = function.__globals__.get(name)
            if type(other) is partial or is_of(function.__module__, unwrapped(other)):
                self.add_value(other)

    def code(self, code: CodeType) -> None:
        """Add the code, without its line numbers and docstrings."""
        self.add_words(code.co_code, code.co_exceptiontable, code.co_names)
        self.add_words(code.co_argcount, code.co_kwonlyargcount, code.co_flags & KINDS)
        for constant in code.co_consts[has_doc(code) :]:
            if isinstance(constant, CodeType):
                self.code(constant)
            else:
                self.add_value(constant)


def base_of(kind: type[Any], bases: Collection[type[Any]]) -> type[Any] | None:
    """Return the first of some types that a type is, or is made from."""
    return kind if kind in bases else next((base for base in bases if issubclass(kind, base)), None)


def unwrapped(value: Any) -> Any:
    """Return the function inside wrappers that cache its results or retry it."""
    while True:
        kind = cast("type[Any]", type(value))
        if kind is CACHED:
            value = value.__wrapped__
        elif issubclass(kind, (Retried, Timed, Interrupted)):
            value = value.func
        else:
            return value


def is_of(module: str, function: Any) -> bool:
    """Return whether this is a function of Python's that was made in a module."""
    return type(function) is FunctionType and function.__module__ == module


def has_doc(code: CodeType) -> bool:
    """Return whether the first constant of code is its docstring, or `None` in the place of one."""
    if sys.version_info >= (3, 14):
        return bool(code.co_flags & CO_HAS_DOCSTRING)
    return bool(code.co_flags & CO_NEWLOCALS) and not code.co_name.startswith("<")


def cell_is_full(cell: Any) -> bool:
    """Return whether a variable of the function around has a value yet."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True
