"""Small arrays travel together: what comes out is still what a function returned."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import asyncdata as ad

COUNT = 40


@dataclass
class Sample:
    number: Any
    picture: Any
    about: str = field(default="", init=False)


def labelled(number: int) -> Sample:
    """An object that knows more than its arrays."""
    sample = Sample(np.int8(number), array_of(number))
    sample.about = f"number {number}"
    return sample


def array_of(number: int) -> np.ndarray[Any, Any]:
    return np.full((2, 3), number, np.float32)


def in_turn(*values: Any) -> Any:
    """Return one value after the other; one of a list, as lists are leaves."""
    return lambda number: values[number % len(values)]


RESULTS: dict[str, Any] = {
    "array": array_of,
    "transposed": lambda number: np.arange(number, number + 6).reshape(2, 3).T,
    "no rows": lambda number: np.zeros((0, number % 1 + 3), np.int8),
    "no dimension": lambda number: np.array(number),
    "scalars": np.float16,
    "flags": lambda number: np.bool_(number % 2),
    "moments": lambda number: np.datetime64(number, "s"),
    "other order": lambda number: np.arange(number, number + 3, dtype=">i4"),
    "strings": lambda number: np.array(["a" * number, "b"]),
    "objects": lambda number: np.array([number, None], object),
    "records": lambda number: np.zeros(2, [("a", "i4"), ("b", "f8")]),
    "masked": lambda number: np.ma.masked_equal([number, 1, 2], 1),
    "Python's": in_turn(1, 2.5, True, None, "text", 1 << 80, 1j),
    "integers": int,
    "floats": float,
    "dicts": lambda number: {"x": array_of(number), "y": np.int16(number)},
    "dicts with Python's": lambda number: {"x": array_of(number), "y": number},
    "dicts in other order": in_turn({"a": np.int8(1), "b": np.int8(2)}, {"b": np.int8(3), "a": np.int8(4)}),
    "tuples": lambda number: (array_of(number), (np.uint8(number), array_of(number + 1))),
    "empty tuples": lambda number: (),
    "classes": labelled,
    "dicts of a kind": lambda number: defaultdict(lambda: number, x=array_of(number)),
    "nothing in tuples": lambda number: ({}, (), array_of(number)),
    "lists": lambda number: [array_of(number)],
    "several shapes": lambda number: np.arange(number % 5),
    "several dtypes": in_turn(np.zeros(2, np.int8), np.zeros(2, np.int16)),
    "array or scalar": in_turn(np.array(1), np.int64(1), np.array([1])),
    "array or none": in_turn(np.zeros(2), None),
    "4 KB": lambda number: np.full(512, number),
    "16 KB": lambda number: np.full(2048, number),
}


def told(value: Any) -> Any:
    """Return all that there is to compare of an element."""
    if isinstance(value, dict):
        return type(value), [(key, told(part)) for key, part in value.items()], told_default(value)
    if isinstance(value, (tuple, list)):
        return type(value), [told(part) for part in value]
    if isinstance(value, Sample):
        return Sample, told(value.number), told(value.picture), value.about
    if isinstance(value, np.ndarray):
        return type(value), value.dtype, value.shape, value.flags.writeable, repr(value)
    return type(value), value


def told_default(value: Any) -> Any:
    return value.default_factory() if isinstance(value, defaultdict) else None


def check(ds: ad.Dataset[Any], expected: ad.Dataset[Any]) -> None:
    """See that both have the same elements."""
    assert [told(element) for element in ds] == [told(element) for element in expected]


@pytest.mark.parametrize("kind", RESULTS)
def test_results_of_workers_are_what_was_returned(kind: str) -> None:
    ds = ad.Dataset.range(COUNT)
    check(ds.map(RESULTS[kind], 2, executor="process"), ds.map(RESULTS[kind]))


@pytest.mark.parametrize("kind", RESULTS)
def test_what_leaves_a_pipelines_process_is_what_was_returned(kind: str) -> None:
    ds = ad.Dataset.range(COUNT).map(RESULTS[kind])
    check(ds.with_options(ad.Options(placement="process")), ds)


def odd(row: dict[str, Any]) -> bool:
    return bool(row["y"] % 2)


def written(row: dict[str, Any]) -> dict[str, Any]:
    row["x"] += 1
    return row


@pytest.mark.parametrize("batch", [None, 7])
def test_rows_of_arrays_go_to_workers_and_back(batch: int | None) -> None:
    """Where elements are dropped too. What a worker writes into is not what they were made of."""
    rows = {"x": np.arange(3.0 * COUNT).reshape(COUNT, 3), "y": np.arange(COUNT)}
    there = ad.Dataset.from_tensor_slices(rows).map(written, 2, executor="process").filter(odd)
    here = ad.Dataset.from_tensor_slices(rows | {"x": rows["x"] + 1}).filter(odd)
    if batch:
        here, there = here.batch(batch), there.batch(batch)
    for _ in range(2):
        check(there, here)


def test_who_keeps_a_row_that_was_shuffled_keeps_no_more() -> None:
    ds = ad.Dataset.range(COUNT).map(lambda number: np.full(512, number + 1), 2, executor="process").filter(np.any)
    for row in ds.shuffle(COUNT // 2, seed=1):
        assert held(row) <= 2 * row.nbytes


def held(array: Any) -> int:
    """How many bytes an array keeps in memory."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return memoryview(array).nbytes
