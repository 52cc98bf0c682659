"""Copies of exceptions, in this process and in others: the class stays the same, whatever its constructor takes."""

from __future__ import annotations

import pickle
from contextlib import suppress
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, Final, NamedTuple, cast

from asyncdata.executors.process.shm_arena import pickled_by_value
from asyncdata.runtime.block import Failure

__all__ = ("copied_failure", "pickled_error", "unpickled_error", "words_of")

HEAP_TYPE: Final = 1 << 9
"""`Py_TPFLAGS_HEAPTYPE`: set for classes that a `class` statement has made, not for built-in ones."""
LEFT_OUT: Final = frozenset({"__dict__", "__weakref__", "exceptions", "obj"})
"""Fields that are sent otherwise, or not at all: the `obj` of an AttributeError, which pickle leaves out too."""


class ExceptionParts(NamedTuple):
    """The parts of an exception, each value pickled; `group` has the exceptions of a group, pickled."""

    kind: type[BaseException]
    args: list[bytes]
    fields: dict[str, bytes]
    attributes: dict[str, bytes]
    group: list[bytes] | None


def pickled_error(error: BaseException) -> bytes:
    """Pickle an exception. The class stays the same, unless it cannot be pickled: then it is a RuntimeError.

    `args`, attributes and slots are sent; the constructor is not called in the other process. If the class defines
    `__reduce__`, that is used, provided that the result is of the same class.
    """
    kind = type(error)
    base = base_of(kind)
    if any(
        "__reduce__" in vars(one) or "__reduce_ex__" in vars(one) for one in kind.__mro__[: kind.__mro__.index(base)]
    ):
        with suppress(Exception):
            reduced = pickled_by_value(error)
            if type(pickle.loads(reduced)) is kind:
                return pickled_by_value((reduced, pickled_by_value(getattr(error, "__notes__", None))))
    try:
        return pickled_by_value(parts_of(error, kind))
    except Exception:
        name = kind.__name__
        refusal = RuntimeError(f"{name}: {words_of(error)} (whose class cannot be sent from a worker process)")
        with suppress(Exception):
            refusal.__notes__ = [*error.__notes__]
        return pickled_by_value(parts_of(refusal, RuntimeError))


def unpickled_error(pickled: bytes) -> BaseException:
    """Return an exception that was pickled by `pickled_error`."""
    parts: Any = pickle.loads(pickled)
    if isinstance(parts, ExceptionParts):
        return rebuilt(parts)
    reduced, notes = map(pickle.loads, parts)
    if notes is not None:
        BaseException.__setattr__(reduced, "__notes__", notes)
    return cast("BaseException", reduced)


def base_of(kind: type[BaseException]) -> type[BaseException]:
    """Return the built-in class that an exception's class is derived from, or that it is."""
    return next(one for one in kind.__mro__ if issubclass(one, BaseException) and not one.__flags__ & HEAP_TYPE)


def parts_of(error: BaseException, kind: type[BaseException]) -> ExceptionParts:
    """Return the parts of an exception. Parts that cannot be pickled are left out, with a note."""
    lost: list[str] = []
    fields: dict[str, bytes] = {}
    for name in field_names(kind):
        with suppress(Exception):  # it has no value
            if (value := getattr(error, name)) is not None:  # as it is at first
                fields[name] = pickled_part(value, name, lost)
    group = members_of(error)
    args = (
        []
        if group is not None
        else [pickled_part(value, f"args[{place}]", lost) for place, value in enumerate(error.args)]
    )
    attributes = {name: pickled_part(value, name, lost) for name, value in vars(error).items() if name != "__notes__"}
    notes: Any = getattr(error, "__notes__", None)
    if lost:
        note = f"these attributes cannot be sent from another process, and are shown by their repr: {', '.join(lost)}"
        notes = [*notes, note] if isinstance(notes, list) else [note]
    if notes is not None:
        attributes["__notes__"] = pickled_part(notes, "__notes__", [])
    return ExceptionParts(kind, args, fields, attributes, None if group is None else [*map(pickled_error, group)])


def members_of(error: BaseException) -> list[Any] | None:
    """Return the exceptions of a group; `None` for any other exception."""
    return [*cast("Any", error).exceptions] if isinstance(error, BaseExceptionGroup) else None


def field_names(kind: type[BaseException]) -> list[str]:
    """Return the names of the slots of an exception's class, and of the fields of built-in ones, such as `errno`."""
    return [
        name
        for one in kind.__mro__
        if one is not BaseException
        for name, member in vars(one).items()
        if isinstance(member, MemberDescriptorType | GetSetDescriptorType) and name not in LEFT_OUT
    ]


def pickled_part(value: Any, name: str, lost: list[str]) -> bytes:
    """Pickle a value of an exception; what cannot be unpickled again becomes its `repr`, and its name is noted."""
    try:
        pickle.loads(pickled := pickled_by_value(value))
    except Exception:
        lost.append(name)
        try:
            return pickled_by_value(repr(value))
        except Exception:
            return pickled_by_value(f"<{type(value).__name__}>")
    return pickled


def rebuilt(parts: ExceptionParts) -> BaseException:
    """Return an exception as it was."""
    values = {name: pickle.loads(value) for name, value in (parts.fields | parts.attributes).items()}
    group = None if parts.group is None else [*map(unpickled_error, parts.group)]
    return new_exception(parts.kind, tuple([pickle.loads(value) for value in parts.args]), values, group)


def new_exception(
    kind: type[BaseException], args: tuple[Any, ...], values: dict[str, Any], group: list[Any] | None
) -> BaseException:
    """Return an exception with these parts. The constructor is not called: it may take other arguments than `args`."""
    base: Any = base_of(kind)
    if group is not None:
        error = base.__new__(kind, values["message"], group)
    else:
        error = base.__new__(kind)
        BaseException.__setattr__(error, "args", args)
    for name, value in values.items():
        with suppress(AttributeError, TypeError):  # it cannot be written, as those of a group
            BaseException.__setattr__(error, name, value)
    return error


def copied_failure(failure: Failure) -> Failure:
    """Return a failure with a copy of its exception, so that raising it does not change the first one, or have it hold
    frames. An exception that cannot be copied stays the same."""
    with suppress(Exception):
        return Failure(copied_error(failure.error), failure.of_source)
    return Failure(failure.error, failure.of_source)


def copied_error(error: BaseException) -> BaseException:
    """Return a copy of an exception, with its traceback."""
    kind: type[BaseException] = type(error)
    fields = {name: getattr(error, name, None) for name in field_names(kind)}
    values = {name: value for name, value in fields.items() if value is not None} | vars(error)
    if isinstance(notes := values.get("__notes__"), list):
        values["__notes__"] = [*cast("list[Any]", notes)]
    group = members_of(error)
    made = new_exception(kind, error.args, values, group)
    for name in ("__cause__", "__suppress_context__", "__traceback__"):
        BaseException.__setattr__(made, name, getattr(error, name))  # a frozen dataclass allows no other way to set it
    return made


def words_of(error: BaseException) -> str:
    """Return the text of an exception, or why it has none."""
    try:
        return str(error)
    except Exception as failure:
        return f"its __str__ raised {type(failure).__name__}"
