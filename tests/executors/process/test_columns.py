"""Small arrays travel together: what comes out is still what a function returned."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import optree
import pytest
from optree.registry import __GLOBAL_NAMESPACE as ANY

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
    "metadata": lambda number: np.arange(3, dtype=np.dtype("i4", metadata={"unit": number})),
    "equal keys": in_turn({1: np.int8(1)}, {True: np.int8(2)}, {1.0: np.int8(3)}),
    "ragged at last": lambda number: (array_of(number), np.arange(8 + number // (COUNT - 1))),
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
        return type(value), [(type(key), key, told(part)) for key, part in value.items()], told_default(value)
    if isinstance(value, (tuple, list)):
        return type(value), [told(part) for part in value]
    if isinstance(value, Sample):
        return Sample, told(value.number), told(value.picture), value.about
    if isinstance(value, np.ndarray):
        metadata = dict(value.dtype.metadata or {})
        return type(value), value.dtype, metadata, value.shape, value.flags.writeable, repr(value)
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


NUMBERS: dict[str, list[Any]] = {
    "integers": [*map(np.int64, range(COUNT))],
    "small": [*map(np.uint8, range(COUNT))],
    "floats": [np.float64("nan"), -np.float64(0), *map(np.float64, range(COUNT))],
    "flags": [np.bool_(number % 2) for number in range(COUNT)],
    "of several types": [np.int8(1), np.int16(2), np.float32(3)] * 9,
    "numbers and others": [*map(np.int64, range(COUNT)), None, 5, "text"],
    "moments": [np.datetime64(number, "s") for number in range(COUNT)],
    "strings": [np.bytes_(b"a\0"), np.bytes_(b"b")] * 9,
}


def seen(number: Any) -> tuple[Any, ...]:
    """Return what a function sees of an element."""
    return type(number).__name__, getattr(number, "dtype", None), repr(number)


def failing(number: Any) -> Any:
    if number == 3:
        raise ValueError("three")
    return number


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("failed", [False, True])
def test_numbers_that_go_to_workers_in_an_array_are_what_they_were(kind: str, failed: bool) -> None:
    ds = ad.Dataset.from_iterable(NUMBERS[kind])
    ds = ds.map(failing).ignore_errors() if failed else ds
    assert list(ds.map(seen, 2, executor="process")) == list(map(seen, ds))


class Unit(np.float64):
    """A number with a unit."""

    unit: str

    def __new__(cls, value: float, unit: str = "m") -> Self:
        made = super().__new__(cls, value)
        made.unit = unit
        return made

    def __reduce__(self) -> Any:
        return Unit, (float(self), self.unit)


def chosen(values: list[Any], number: int) -> Any:
    return values[number]


def unit_of(value: Any) -> tuple[str, str]:
    return type(value).__name__, getattr(value, "unit", "")


@pytest.mark.parametrize("places", [range(COUNT), [7], range(1, COUNT), [0, COUNT // 2, COUNT - 1]])
def test_numbers_of_a_class_of_its_own_stay_what_they_are(places: Any, tmp_path: Path) -> None:
    values = [Unit(number, "kg") if number in places else np.float64(number) for number in range(COUNT)]
    ds = ad.Dataset.from_iterable(values)
    assert list(ds.map(unit_of, 2, executor="process")) == list(map(unit_of, values))
    assert (
        list(ad.Dataset.range(COUNT).map(lambda n: Unit(n, "kg"), 2, executor="process").map(unit_of))
        == [("Unit", "kg")] * COUNT
    )
    elsewhere = ad.Dataset.range(COUNT).map(partial(chosen, values)).with_options(ad.Options(placement="process"))
    assert list(map(unit_of, elsewhere)) == list(map(unit_of, values))
    with pytest.raises(ad.StructureError, match="Unit"):  # as other classes are
        list(ds.cache(str(tmp_path / "file")))


def odd(row: dict[str, Any]) -> bool:
    return bool(row["y"] % 2)


def raised(row: dict[str, Any]) -> dict[str, Any]:
    row["x"] = row["x"] + 1
    return row


@pytest.mark.parametrize("batch", [None, 7])
def test_rows_of_arrays_go_to_workers_and_back(batch: int | None) -> None:
    """Where elements are dropped too. What a worker puts into them is not in what they were made of."""
    rows = {"x": np.arange(3.0 * COUNT).reshape(COUNT, 3), "y": np.arange(COUNT)}
    there = ad.Dataset.from_tensor_slices(rows).map(raised, 2, executor="process").filter(odd)
    here = ad.Dataset.from_tensor_slices(rows).map(raised).filter(odd)
    if batch:
        here, there = here.batch(batch), there.batch(batch)
    for _ in range(2):
        check(there, here)


def marked(row: dict[str, Any]) -> bool:
    row["seen"] = np.int8(1)
    return True


@pytest.mark.parametrize("way", ["map", "placement"])
def test_what_was_written_into_an_element_goes_with_it(way: str) -> None:
    """Though it is not in the arrays that the element was made of."""
    ds = ad.Dataset.from_tensor_slices({"x": np.zeros((600, 2)), "y": np.arange(600)}).filter(marked)
    there = ad.Options(placement="process")
    ds = ds.map(sorted, 2, executor="process") if way == "map" else ds.with_options(there)
    assert [sorted(row) for row in ds] == [["seen", "x", "y"]] * 600


class Box:
    """What only this process knows to be a structure."""

    def __init__(self, low: Any, high: Any) -> None:
        self.low = low
        self.high = high


def test_rows_of_a_class_that_workers_do_not_know() -> None:
    optree.register_pytree_node(
        Box, lambda box: ((box.low, box.high), None), lambda _, parts: Box(*parts), namespace=ANY
    )
    try:
        ds = ad.Dataset.from_tensor_slices(Box(np.arange(600), np.arange(1, 601)))
        assert list(ds.map(lambda box: int(box.high), 2, executor="process")) == list(range(1, 601))
    finally:
        optree.unregister_pytree_node(Box, namespace=ANY)


ROWS: dict[str, Any] = {
    "shuffled": lambda ds: ds.filter(rare).shuffle(20, seed=1),
    "cached": lambda ds: ds.filter(rare).cache(),
    "shuffled whole": lambda ds: ds.filter(np.any).shuffle(COUNT, seed=1),
}


def rare(row: Any) -> bool:
    return bool(row[0] % 50 == 0)


@pytest.mark.parametrize("size", [8, 200, 500])
@pytest.mark.parametrize("way", ROWS)
def test_who_keeps_a_row_for_long_keeps_no_more(way: str, size: int) -> None:
    ds = ROWS[way](ad.Dataset.range(2000).map(lambda number: np.full(size, number + 1), 2, executor="process"))
    for row in ds:
        assert held(row) <= 2 * row.nbytes


@pytest.mark.parametrize("way", ["map", "placement"])
def test_who_keeps_few_of_many_rows_keeps_no_more(way: str) -> None:
    """Where there are more results than shared memory is for."""
    ds = ad.Dataset.range(100_000)
    if way == "map":
        ds = ds.map(few_kilobytes, 2, executor="process")
    else:
        ds = ds.map(few_kilobytes).with_options(ad.Options(placement="process"))
    kept = [row for number, row in enumerate(ds) if number % 250 == 0]
    assert sum(held(row) for row in kept if not shared(row)) <= 2 * sum(row.nbytes for row in kept)


def few_kilobytes(number: int) -> Any:
    return np.full(500, number)


def base_of(array: Any) -> Any:
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


def held(array: Any) -> int:
    """How many bytes an array keeps in memory."""
    return memoryview(base_of(array)).nbytes


def shared(array: Any) -> bool:
    """Whether an array looks into memory that comes from another process, of which there is only so much."""
    return "c_ubyte" in type(base_of(array)).__name__
