"""Checks of the arguments of `Dataset`'s methods that make a dataset of objects of the user's, and its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import isasyncgenfunction, iscoroutinefunction, isfunction
from os import PathLike
from typing import Any, cast

from asyncdata.elements.structure import check_signature, paired
from asyncdata.errors import PlanError
from asyncdata.sources.array_rows import ArrayRows, is_array_in_file
from asyncdata.sources.in_memory import Getter, Range
from asyncdata.sources.iterators import AsyncIterated, Generated, Iterated, Restarted
from asyncdata.transforms.map import Map

__all__ = ("async_iterated", "generated", "iterated", "plan_of_source")


def generated(generator: Any, types: Any, shapes: Any, args: Any, signature: Any) -> Generated:
    """Return the source for the arguments of `from_generator`."""
    check_generator(generator)
    return Generated(generator, arguments_of(args), signature_for(types, shapes, signature))


def signature_for(types: Any, shapes: Any, signature: Any) -> Any:
    """Return the signature given to `from_generator` in one of two forms; `PlanError` if both or half of one are
    given."""
    if signature is not None and (types is not None or shapes is not None):
        raise PlanError("from_generator takes output_signature, or output_types and output_shapes, and got both")
    if types is None and shapes is not None:
        raise PlanError("from_generator(output_shapes=) needs output_types as well; or give output_signature alone")
    if types is not None:
        return paired(types, shapes)
    return None if signature is None else check_signature("from_generator(output_signature=)", signature)


def arguments_of(args: Any) -> tuple[Any, ...]:
    """Return the arguments of a generator; `PlanError` if they are not a list."""
    if args is not None and (not isinstance(args, Sequence) or isinstance(args, (str, bytes))):
        raise PlanError(f"from_generator(args=) is a tuple of arguments, as ({args!r:.40},), got {args!r:.80}")
    return () if args is None else tuple(cast("Sequence[Any]", args))


def check_generator(generator: object) -> None:
    """Raise `PlanError` unless this is a function that may return an iterable."""
    if not callable(generator):
        raise PlanError(f"from_generator needs a function that returns an iterable, got {generator!r}")
    if isasyncgenfunction(generator):
        raise PlanError(f"from_generator needs a plain function, got {generator!r}: give it to from_async_iterable")
    if iscoroutinefunction(generator):
        raise PlanError(
            f"from_generator needs a plain function, got {generator!r}: give an async generator to from_async_iterable"
        )


def async_iterated(value: Any) -> AsyncIterated:
    """Return the source for the argument of `from_async_iterable`; `PlanError` if it is no asynchronous iterable."""
    if isasyncgenfunction(value):
        return AsyncIterated(Restarted(value))
    if not hasattr(value, "__aiter__"):
        raise PlanError(
            f"from_async_iterable needs an object with __aiter__ or an async generator function, got {value!r}"
        )
    return AsyncIterated(value)


def iterated(value: Any) -> Iterated:
    """Return the source for the argument of `from_iterable`; `PlanError` if it is not iterable."""
    if not hasattr(value, "__iter__"):
        cure = ""
        if isfunction(value):
            cure = f": give it to {'from_async_iterable' if isasyncgenfunction(value) else 'from_generator'}"
        elif hasattr(value, "__aiter__"):
            cure = ": give it to from_async_iterable"
        raise PlanError(f"from_iterable needs an iterable, got {value!r}{cure}")
    return Iterated(value)


def names_in(source: Any) -> list[Any]:
    """Return the names of what is in a mapping, such as a group of HDF5, or in a group of Zarr."""
    return [*source] if isinstance(source, Mapping) or hasattr(source, "array_keys") else []


def plan_of_source(source: Any, num_parallel_calls: int | None) -> Map:
    """Return the plan that reads the elements of a source by their numbers."""
    if is_array_in_file(source):
        source = ArrayRows(source)
    if isinstance(source, (str, bytes, PathLike)):  # whose elements would be its characters
        raise PlanError(
            f"from_source needs an open array or another object with rows, got {source!r:.80}; open a file first, as "
            "by h5py.File(path)[name] or zarr.open_array(path, mode='r'), or use the class for its format"
        )
    if not hasattr(source, "__getitem__") or not hasattr(source, "__len__"):
        raise PlanError(f"from_source needs an object with __len__ and __getitem__, got {source!r:.80}")
    if hasattr(source, "iloc"):  # of pandas: a number in brackets is a label there
        given = "dict(frame)" if hasattr(source, "columns") else "it"
        raise PlanError(
            f"from_source needs elements with numbers, and this {type(source).__name__} has labels; give {given} to "
            "from_tensor_slices"
        )
    names = names_in(source)
    if names and 0 not in names:
        raise PlanError(
            f"from_source needs elements with numbers, and this {type(source).__name__} has names, {names!r:.80}; give "
            f"one of its values, such as source[{names[0]!r}]"
        )
    return Map.of(Range(range(len(source))), Getter(source), num_parallel_calls, None, "thread")
