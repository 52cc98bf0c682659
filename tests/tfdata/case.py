"""Case: one pipeline as both libraries build it, what it gives, and why if that is not what tf.data gives."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

import asyncdata as ad

__all__ = ("FAILED", "MOST", "Case", "ours", "plain", "theirs")

FAILED = "failed"
"""Stands in the place of an element that failed."""

PLACES = "a failed element counts as an element, and takes no other with it"
CACHED = "what failed fails again from a cache, and is not left out"
LISTS = "a list is a leaf, an array to be, and not a structure"
NONES = "None is a leaf like any object"
ONCE = "what is wrong with one element is one error, and not the same for ever"
NOTHING = "of no elements come none, and that is known"
KNOWN = "the number is known"
CHOICES = "choices that end do, whatever they choose among"

MOST = 9
"""No case reads more elements than this."""

Point = namedtuple("Point", "x y")  # noqa: PYI024 - of no types, as users' own


class Case(NamedTuple):
    """What a pipeline gives here, and there where that is another thing."""

    code: str
    found: list[Any]
    cardinality: int
    theirs: list[Any] | None = None
    counted: int | None = None
    why: str = ""

    def __repr__(self) -> str:
        return self.code


def rows_of(dataset: Any, spec: Any) -> Callable[..., Any]:
    """Return a function that makes a dataset of arrays of different lengths."""

    def rows(*every: list[int]) -> Any:
        return dataset.from_generator(lambda: iter([np.array(row, np.int64) for row in every]), output_signature=spec)

    return rows


def broken_of(dataset: Any, spec: Any) -> Callable[[], Any]:
    """Return a function that makes a dataset whose source fails at element 2 and goes on."""
    return lambda: dataset.from_generator(lambda: iter([0, 1, [9], 3, 4]), output_signature=spec)


def fail(x: Any) -> Any:
    if x == 2:
        raise ValueError(x)
    return x


def ours() -> dict[str, Any]:
    """Return the names that stand in a case for what is here."""
    return {
        "D": ad.Dataset,
        "Options": ad.Options,
        "Point": Point,
        "array": np.array,
        "assert_cardinality": lambda count: lambda ds: ds.assert_cardinality(count),
        "broken": broken_of(ad.Dataset, ad.TensorSpec((), np.int64)),
        "const": np.int64,
        "fail": fail,
        "from_list": ad.Dataset.from_list,
        "group_by_reducer": lambda key, reducer: lambda ds: ds.group_by_reducer(key, reducer),
        "pad_to_cardinality": lambda count: lambda ds: ds.pad_to_cardinality(count),
        "rows": rows_of(ad.Dataset, ad.TensorSpec((None,), np.int64)),
        "size": len,
        "total": ad.Reducer(lambda key: 0, lambda state, x: state + x, lambda state: state),
    }


def theirs(tf: Any) -> dict[str, Any]:
    """Return the names that stand in a case for what is in TensorFlow."""

    def fail(x: Any) -> Any:
        with tf.control_dependencies([tf.debugging.assert_none_equal(x, tf.constant(2, x.dtype))]):
            return tf.identity(x)

    experimental = tf.data.experimental
    return {
        "D": tf.data.Dataset,
        "Options": tf.data.Options,
        "Point": Point,
        "array": np.array,
        "assert_cardinality": experimental.assert_cardinality,
        "broken": broken_of(tf.data.Dataset, tf.TensorSpec((), tf.int64)),
        "const": lambda value: tf.constant(value, tf.int64),
        "fail": fail,
        "from_list": experimental.from_list,
        "group_by_reducer": experimental.group_by_reducer,
        "pad_to_cardinality": experimental.pad_to_cardinality,
        "rows": rows_of(tf.data.Dataset, tf.TensorSpec((None,), tf.int64)),
        "size": lambda x: tf.shape(x)[0],
        "total": experimental.Reducer(lambda key: np.int64(0), lambda state, x: state + x, lambda state: state),
    }


def plain(element: Any) -> Any:
    """Return an element as both have it: numbers, text, lists, tuples and dicts; a dataset as the list it gives."""
    if element is None or isinstance(element, str):
        return element
    if isinstance(element, tuple):
        return tuple(map(plain, element))
    if isinstance(element, dict):
        return {name: plain(part) for name, part in element.items()}
    if hasattr(element, "to_list"):  # ragged
        return element.to_list()
    if not hasattr(element, "__array__") and isinstance(element, Iterable) and not isinstance(element, (list, bytes)):
        return [plain(part) for part in element]
    return text(np.asarray(element).tolist())


def text(value: Any) -> Any:
    if isinstance(value, list):
        return [text(part) for part in value]
    return value.decode() if isinstance(value, bytes) else value
