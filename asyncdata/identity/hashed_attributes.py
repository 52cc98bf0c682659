"""Which attributes of an object count for its hash, and which names code uses."""

from __future__ import annotations

import dis
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cached_property, lru_cache, partial
from types import CodeType, FunctionType
from typing import Any, Final, cast

from asyncdata.elements.tree import named_slots

__all__ = ("attributes_of", "is_own", "is_users", "keywords_of", "used")

READING: Final = frozenset({"block_bytes", "files", "max_record_bytes", "storage", "storage_options"})
"""Arguments of this package's readers on which no element depends."""

READS: Final = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")
"""Operations of code that read an attribute, in all versions of Python."""

MAKING: Final = frozenset({"__init__", "__new__", "__post_init__", "__setstate__"})
"""Methods that initialise an object; attributes that only these assign do not change later."""


def is_own(value: Any) -> bool:
    """Return whether a function or class is one of this package."""
    return str(value.__module__).partition(".")[0] == "asyncdata"


def is_users(function: Callable[..., Any]) -> bool:
    """Return whether a function that makes datasets is none of this package, whose readers do not draw."""
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    return not is_own(function)


def keywords_of(function: partial[Any]) -> list[tuple[str, Any]]:
    """Return the keyword arguments of a partial that count; for readers without defaults and without how they read, and
    lists as tuples, as nobody else can write to them."""
    given = [*function.keywords.items()]
    if not is_own(function.func):
        return given
    return [(name, unwritten(value)) for name, value in given if name not in READING and value is not None]


def unwritten(value: Any) -> Any:
    return tuple(map(unwritten, value)) if type(value) in (list, tuple) else value


def attributes_of(value: Any, kind: type[Any], method: str | None = None) -> dict[str, Any]:
    """Return the attributes of an object that distinguish it from others, looked up without any code of the user's;
    if a method of it is called, those that this does not assign."""
    if is_own(kind):
        names = counted_attributes(kind)
        return {name: getattr(value, name) for name in names}
    found = dict(instance_dict(value))
    for base in kind.__mro__:
        for name in named_slots(base):
            with suppress(AttributeError):
                found[name] = object.__getattribute__(value, name)
    return {name: held for name, held in found.items() if name not in assigned(kind, method)}


def instance_dict(value: Any) -> dict[str, Any]:
    """Return the attributes that an object has itself."""
    try:
        found: Any = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return cast("dict[str, Any]", found) if type(found) is dict else {}


def counted_attributes(kind: type[Any]) -> tuple[str, ...]:
    """Return the attributes of an object of this package that count: fields of a dataclass, or those its class
    names."""
    if is_dataclass(kind):
        return tuple([field.name for field in fields(kind) if field.metadata.get("counts") in {None, "stored"}])
    return getattr(kind, "counted", ())


@lru_cache(1024)
def assigned(kind: type[Any], method: str | None) -> frozenset[str]:
    """Return the attributes that a method of a class and the methods that it uses assign, or all methods without a
    name, but for those that make an object."""
    members: Any = [pair for base in kind.__mro__ for pair in vars(base).items()]
    codes: dict[str, list[CodeType]] = {}
    for name, value in members:
        parts: Any = (value.fget, value.fset) if type(value) is property else (getattr(value, "__func__", value),)
        found = [part.__code__ for part in parts if type(part) is FunctionType]
        codes.setdefault(name, []).extend(found if name not in MAKING else [])
    names = reached(codes, method) if method in codes else {*codes}
    changed = [used(code, "STORE_ATTR", "DELETE_ATTR") for name in names for code in codes[name]]
    computed = {name for name, value in members if issubclass(type(value), cached_property)}
    return frozenset(computed.union(*changed))


def reached(codes: Mapping[str, Sequence[CodeType]], method: str) -> set[str]:
    """Return the names of a method and of the methods that it uses."""
    found, left = set[str](), [method]
    while left:
        name = left.pop()
        if name in codes and name not in found:
            found.add(name)
            left.extend([other for code in codes[name] for other in used(code, *READS)])
    return found


def used(code: CodeType, *operations: str) -> set[str]:
    """Return the names that these operations of code use, that of functions in it too."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    names = {step.argval for step in dis.get_instructions(code) if step.opname in operations}
    return names.union(*[used(one, *operations) for one in inner])
