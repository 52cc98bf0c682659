"""What a source, a cache or another reader has as well is handed out read-only; what a step has made is writable."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import asyncdata as ad

D = ad.Dataset


@dataclass
class Sample:
    """Arrays in an object."""

    x: Any


def add_one(row: Any) -> Any:
    """Work in place, wherever the array is."""
    while not isinstance(row, np.ndarray) or row.dtype == object:
        row = row.x if isinstance(row, Sample) else row["x"] if isinstance(row, dict) else row[0]
    return np.add(row, 1, out=row)


def objects(*values: Any) -> Any:
    """Return an array of objects."""
    made = np.empty(len(values), object)
    for place, value in enumerate(values):
        made[place] = value
    return made


SOURCES: dict[str, Callable[[Any], D[Any]]] = {
    "tensors": D.from_tensors,
    "tensors, dict": lambda x: D.from_tensors({"x": x}),
    "tensors, object": lambda x: D.from_tensors(Sample(x)),
    "slices": D.from_tensor_slices,
    "slices, tuple": lambda x: D.from_tensor_slices((x, x)),
    "slices, objects": lambda x: D.from_tensor_slices(objects(x, x)),
    "slices, masked": lambda x: D.from_tensor_slices(np.ma.masked_array(x, x > 5, copy=False)),
    "list": lambda x: D.from_list([x, x]),
    "iterable": lambda x: D.from_iterable([x, (x,)]),
    "iterable, list of lists": lambda x: D.from_iterable([[x]]),
    "iterable, object": lambda x: D.from_iterable([Sample(x)]),
    "iterable, array": D.from_iterable,
    "iterable, deque": lambda x: D.from_iterable(deque([x])),
    "iterable, dict view": lambda x: D.from_iterable({"a": x}.values()),
    "source": lambda x: D.from_source([x]),
    "source, array": D.from_source,
    "zip": lambda x: D.zip(D.from_tensor_slices(x), D.range(40)).map(lambda row, _: row),
    "unbatch": lambda x: D.from_tensors(x).unbatch(),
    "flat_map": lambda x: D.range(1).flat_map(lambda _: D.from_tensor_slices(x)),
    "shuffle": lambda x: D.from_tensor_slices(x).shuffle(20, seed=1),
    "shuffle of all": lambda x: D.from_tensor_slices(x).shuffle(seed=1),
    "repeat": lambda x: D.from_tensor_slices(x).repeat(2),
    "window": lambda x: D.from_tensor_slices(x).window(2, 1).flat_map(lambda rows: rows),
    "take, shard": lambda x: D.from_tensor_slices(x).shard(2, 0).take(3),
    "as_numpy_iterator": lambda x: D.from_generator(lambda: D.from_list([x]).as_numpy_iterator()),
}


@pytest.mark.parametrize("name", SOURCES)
def test_what_a_source_holds_is_read_only(name: str) -> None:
    x = np.zeros((40, 3))
    ds = SOURCES[name](x)
    for made in (ds, pickle.loads(pickle.dumps(ds)) if "lambda" not in repr(ds) and can_travel(name) else ds):
        with pytest.raises(ValueError, match="read-only") as caught:
            list(made.map(lambda *row: add_one(row)))
        assert ", element " in caught.value.__notes__[0]
        assert any(".copy()" in note for note in caught.value.__notes__)
    assert not x.any()
    assert x.flags.writeable


def can_travel(name: str) -> bool:
    """Tell whether a source can be pickled."""
    return name not in ("zip", "flat_map", "as_numpy_iterator", "iterable, dict view", "window")


@pytest.mark.parametrize(
    "read", [lambda ds: ds[1], lambda ds: ds.head(2)[1], lambda ds: ds.peek(), lambda ds: next(iter(ds))]
)
def test_elements_that_are_looked_at_are_read_only(read: Callable[[Any], Any]) -> None:
    x = np.zeros((40, 3))
    for ds in (D.from_tensor_slices(x), D.from_list([x, x]), D.from_iterable([x, x]), D.from_source([x, x])):
        with pytest.raises(ValueError, match="read-only"):
            add_one(read(ds))


def test_the_mask_is_read_only_too() -> None:
    x = np.ma.masked_array(np.zeros((3, 2)), np.zeros((3, 2), bool))
    row = next(iter(D.from_tensor_slices(x)))
    with pytest.raises(ValueError, match="read-only"):
        row[0] = np.ma.masked
    assert not x.mask.any()


def test_dicts_and_lists_of_a_collection_are_copies() -> None:
    given: list[Any] = [{"a": 1}, {"a": 2}, [3]]
    for source in (given, deque(given)):
        first = list(D.from_iterable(source).repeat(2))
        for element in first:
            element.clear()
    assert given == [{"a": 1}, {"a": 2}, [3]]
    second = D.from_iterable([1, {"a": 1}]).repeat(2).map(lambda one: one.clear() or 1 if type(one) is dict else one)
    assert list(second) == [1, 1, 1, 1]


def test_what_a_generator_or_a_reader_makes_is_its_readers_own() -> None:
    class Reader:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Any:
            return np.zeros(2)

    made = [
        D.from_generator(lambda: (np.zeros(2) for _ in range(2))),
        D.from_iterable(np.zeros(2) for _ in range(2)),
        D.from_source(Reader()),
        D.range(2).map(lambda _: np.zeros(2)),
    ]
    for ds in made:
        assert [one.tolist() for one in ds.map(add_one)] == [[1, 1]] * 2


@pytest.mark.parametrize("step", [lambda ds: ds.batch(4), lambda ds: ds.padded_batch(4), lambda ds: ds.rebatch(1)])
def test_batches_are_writable(step: Callable[[Any], Any]) -> None:
    x = np.zeros((40, 3, 2))
    for ds in (D.from_tensor_slices(x), D.from_list([*x])):
        assert all(add_one(batch).flags.writeable for batch in step(ds))
    assert not x.any()


def test_cached_elements_are_read_only_and_arrays_of_functions_stay_as_they_are() -> None:
    x = np.zeros(3)
    for make in (lambda _: x, lambda _: {"x": x}, lambda _: [x], lambda _: objects(x), lambda _: Sample(x)):
        ds = D.range(2).map(make).cache()
        for _ in range(2):
            with pytest.raises(ValueError, match="read-only"):
                list(ds.map(add_one))
    assert x.flags.writeable
    assert not x.any()


def test_consumers_of_tee_and_windows_share_read_only_arrays() -> None:
    first, second = D.range(2).map(lambda _: {"x": np.zeros(2)}).tee(2)
    one = next(first)
    with first, second, pytest.raises(ValueError, match="read-only"):
        add_one(one)
    windows = D.range(4).map(lambda _: np.zeros(2)).window(2, 1)
    with pytest.raises(ValueError, match="read-only"):
        list(windows.flat_map(lambda window: window.map(add_one)))


@pytest.mark.parametrize("where", [{"executor": "process"}, {"executor": "thread"}, {"num_parallel_calls": 2}])
def test_rows_are_read_only_wherever_a_function_is_called(where: dict[str, Any]) -> None:
    x = np.zeros((40, 3))
    with pytest.raises(ValueError, match="read-only"):
        list(D.from_tensor_slices(x).map(add_one, **where))
    assert not x.any()


def test_rows_are_read_only_in_a_process_of_the_pipeline() -> None:
    x = np.zeros((40, 3))
    for ds in (D.from_tensor_slices(x), D.from_tensor_slices(x.T), D.from_list([x])):
        with pytest.raises(ValueError, match="read-only"):
            list(ds.map(add_one).with_options(ad.Options(placement="process")))
