from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_transform
from tests import reference
from tests.reference import Failed
from tests.running import WAYS, results


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Sample:
    image: Any
    label: Any


def test_keeps_its_contract() -> None:
    check_transform(
        lambda ds: ds.unbatch(), reference.unbatch, [(), (np.arange(3),), [np.arange(i) for i in (3, 0, 2)]]
    )


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_undoes_batch(size: int) -> None:
    ds = ad.Dataset.range(20).map(lambda x: {"a": x, "b": (f"{x}", np.full(2, x))})
    again = ds.batch(size).unbatch()
    assert [reference.plain(x) for x in again] == [
        reference.plain({"a": np.int64(x), "b": (f"{x}", np.full(2, x))}) for x in range(20)
    ]


@pytest.mark.parametrize("make", [Point, Sample, lambda x, y: (x, y), lambda x, y: {"x": x, "y": y}])
def test_structures_keep_their_type(make: Any) -> None:
    found = list(ad.Dataset.from_tensors(make(np.arange(2), np.arange(2) * 2)).unbatch())
    assert found == [make(0, 0), make(1, 2)]
    assert type(found[0]) is type(make(0, 0))


@pytest.mark.parametrize("nothing", [(), {}, ((), {}), Point((), ())])
def test_parts_without_leaves_stay(nothing: Any) -> None:
    expected = [(np.int64(x), nothing) for x in range(3)]
    assert list(ad.Dataset.from_tensors((np.arange(3), nothing)).unbatch()) == expected
    assert list(ad.Dataset.from_tensor_slices((np.arange(3), nothing))) == expected
    assert list(ad.Dataset.from_list(expected).map(lambda *x: x, batch=2)) == expected


@pytest.mark.parametrize(
    ("steps", "count"),
    [
        (lambda ds: ds.batch(4, True), 8),
        (lambda ds: ds.padded_batch(4, drop_remainder=True), 8),
        (lambda ds: ds.ragged_batch(4, True), 8),
        (lambda ds: ds.batch(4, True).rebatch(3, True), 6),
        (lambda ds: ds.batch(2, True).skip(1).shard(2, 1).cache().repeat(2).prefetch(1), 4),
        (lambda ds: ds.batch(2, True).ignore_errors(), None),
        (lambda ds: ds.batch(2, True).shard(2, 1, pad_remainder=True).map(lambda rows, real: rows), None),
        (lambda ds: ds.batch(2, True).map(lambda rows: rows[1:]), None),
        (lambda ds: ds.batch(2, True).rebatch([1, 2], True), None),
        (lambda ds: ds.batch(4), None),
    ],
)
def test_batches_of_one_size_tell_how_many_rows_there_are(steps: Any, count: int | None) -> None:
    """Also where it is not known what a row looks like."""
    ds = steps(ad.Dataset.range(9).map(lambda x: x)).unbatch()
    assert ds.cardinality() == (ad.UNKNOWN_CARDINALITY if count is None else count)
    assert count is None or len(list(ds)) == count
    assert steps(ad.Dataset.counter().map(lambda x: x)).unbatch().cardinality() < 0


def test_empty_batches_vanish() -> None:
    assert list(ad.Dataset.from_tensors(np.zeros((0, 3))).unbatch()) == []


@pytest.mark.parametrize(
    "element", [3, "text", None, np.float32(1), (np.arange(2), np.arange(3)), (np.arange(2), 1), ()]
)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_cannot_be_split_fails_in_place(element: Any, way: Any) -> None:
    ds = ad.Dataset.from_iterable([np.arange(1), element, np.arange(2)]).unbatch()
    assert way(ds) == [0, Failed("StructureError"), 0, 1]


def test_the_message_names_leaf_and_rows() -> None:
    with pytest.raises(ad.StructureError, match=r"\['b'\].*3.*\['a'\].*2"):
        list(ad.Dataset.from_iterable([{"a": np.zeros(2), "b": np.zeros(3)}]).unbatch())


def test_failures_pass() -> None:
    ds = ad.Dataset.range(2).map(lambda x: 1 // x).batch(1).unbatch()
    assert results(ds) == [Failed("ZeroDivisionError"), 1]


def test_a_large_batch_comes_in_parts() -> None:
    assert list(ad.Dataset.from_tensors(np.arange(10_000)).unbatch().take(5000)) == list(range(5000))


def test_lists_are_taken_apart_too() -> None:
    assert list(ad.Dataset.from_iterable([[1, 2], [], ["x"]]).unbatch()) == [1, 2, "x"]
    rows = list(ad.Dataset.from_iterable([{"a": [1, 2], "b": np.arange(2)}]).unbatch())
    assert rows == [{"a": 1, "b": 0}, {"a": 2, "b": 1}]
    with pytest.raises(ad.StructureError, match=r"leaf \['b'\] has 3 rows, leaf \['a'\] has 2"):
        list(ad.Dataset.from_iterable([{"a": [1, 2], "b": np.arange(3)}]).unbatch())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ad.Dataset.range(3), "each element is a scalar"),
        (lambda: ad.Dataset.from_tensor_slices({"a": np.zeros((2, 3)), "b": np.zeros(2)}), r"leaf \['b'\] is a scalar"),
        (lambda: ad.Dataset.range(3).enumerate(), r"leaf \[0\] is a scalar"),
    ],
)
def test_scalars_are_refused_at_once_where_they_are_known(make: Any, message: str) -> None:
    with pytest.raises(ad.PlanError, match=message):
        make().unbatch()


def test_objects_may_be_lists() -> None:
    ds = ad.Dataset.from_generator(lambda: [[1, 2]], output_signature=ad.TensorSpec((), object))
    assert list(ds.unbatch()) == [1, 2]
