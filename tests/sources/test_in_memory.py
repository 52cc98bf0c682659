from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes
from tests import reference
from tests.running import WAYS


class Point(NamedTuple):
    x: Any
    y: Any


@pytest.mark.parametrize("bounds", [(0,), (5,), (-3,), (2, 5), (5, 2), (0, 10, 3), (10, 0, -3), (0, 10, -1), (3000,)])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_range_is_pythons(bounds: tuple[int, ...], way: Any) -> None:
    assert way(ad.Dataset.range(*bounds)) == list(range(*bounds))
    assert len(ad.Dataset.range(*bounds)) == len(range(*bounds))


def test_range_gives_plain_integers() -> None:
    assert {type(x) for x in ad.Dataset.range(3)} == {int}


@pytest.mark.parametrize("bounds", [(), (1, 2, 0), (1.5,), ("3",), (1, 2, 3, 4)])
def test_wrong_ranges_are_refused_where_they_are_given(bounds: Any) -> None:
    with pytest.raises((ad.PlanError, TypeError)):
        ad.Dataset.range(*bounds)


def test_counter_never_ends() -> None:
    assert list(islice(ad.Dataset.counter(), 3)) == [0, 1, 2]
    assert list(islice(ad.Dataset.counter(5, -2), 3)) == [5, 3, 1]
    assert ad.Dataset.counter().cardinality() == ad.INFINITE_CARDINALITY


@pytest.mark.parametrize("dtype", [np.int32, "uint8", np.float32, "int64"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_integers_of_a_dtype_are_numpys(dtype: Any, way: Any) -> None:
    ds = ad.Dataset.range(1, 9, 3, output_type=dtype)
    assert way(ds) == [1, 4, 7]
    assert {type(x) for x in way(ds)} == {np.dtype(dtype).type}
    assert ds.element_spec == ad.TensorSpec((), dtype)
    assert ds.shuffle(seed=1).batch(3).get_single_element().dtype == np.dtype(dtype)
    assert ds[1] == 4
    assert way(ad.Dataset.range(2**63 - 1, 2**63 + 1, output_type="uint64")) == [2**63 - 1, 2**63]
    counter = ad.Dataset.counter(254, dtype=dtype).take(3)
    assert way(counter) == [254, 255, 0 if dtype == "uint8" else 256]
    assert counter.batch(3).get_single_element().dtype == np.dtype(dtype) == counter.element_spec.dtype


@pytest.mark.parametrize(
    "make",
    [
        lambda: ad.Dataset.range(3, output_type="str"),
        lambda: ad.Dataset.range(257, output_type="uint8"),
        lambda: ad.Dataset.range(2, -2, -1, output_type="uint8"),
        lambda: ad.Dataset.counter(dtype=bool),
    ],
)
def test_a_dtype_that_does_not_fit_is_refused_where_it_is_given(make: Any) -> None:
    with pytest.raises(ad.PlanError, match=r"output_type|dtype"):
        make()


def test_a_range_of_a_dtype_goes_on_and_is_another_than_one_of_python() -> None:
    check_resumes(lambda: ad.Dataset.range(20, output_type="int16").shuffle(4, seed=1))
    state = ad.Dataset.range(5, output_type="int16").iterate().state_dict()
    with pytest.raises(ad.ResumeError, match="output_type=int16"):
        ad.Dataset.range(5).iterate(state=state)


@pytest.mark.parametrize("element", [3, "text", b"bytes\0", None, (1, "a"), {"a": 1.5}, Point(1, 2), ()])
def test_from_tensors_is_one_element(element: Any) -> None:
    assert list(ad.Dataset.from_tensors(element)) == [element]


def test_a_list_in_from_tensors_is_one_array() -> None:
    (found,) = ad.Dataset.from_tensors({"a": [1, 2], "b": [b"x\0", b"y"]})
    assert reference.plain(found) == reference.plain({"a": np.arange(1, 3), "b": np.array([b"x\0", b"y"], object)})


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        (np.arange(3), [np.int64(0), np.int64(1), np.int64(2)]),
        ([1, 2], [np.int64(1), np.int64(2)]),
        (np.eye(2), [np.array([1.0, 0.0]), np.array([0.0, 1.0])]),
        ((np.arange(2), ["a", "b"]), [(np.int64(0), "a"), (np.int64(1), "b")]),
        ({"a": [1, 2], "b": {"c": [True, False]}}, [
            {"a": np.int64(1), "b": {"c": np.True_}}, {"a": np.int64(2), "b": {"c": np.False_}}
        ]),
        (Point([1], [2.0]), [Point(np.int64(1), np.float64(2.0))]),
        ([b"x\0", b"y"], [b"x\0", b"y"]),
        ([], []),
        (np.zeros((0, 3)), []),
    ],
    ids=str,
)  # fmt: skip
def test_from_tensor_slices(tensors: Any, expected: list[Any]) -> None:
    ds = ad.Dataset.from_tensor_slices(tensors)
    assert [reference.plain(x) for x in ds] == [reference.plain(x) for x in expected]
    assert len(ds) == len(expected)


@pytest.mark.parametrize(
    "tensors", [3, None, "text", {}, (), (np.arange(2), np.arange(3)), {"a": [1], "b": 2}, [[1], [1, 2]]]
)
def test_what_has_no_rows_is_refused_where_it_is_given(tensors: Any) -> None:
    with pytest.raises(ValueError, match=".+"):
        ad.Dataset.from_tensor_slices(tensors)


def test_slices_of_many_rows() -> None:
    ds = ad.Dataset.from_tensor_slices(np.arange(5000))
    assert list(ds) == list(range(5000))
    assert [b.sum() for b in ds.batch(2500)] == [np.arange(2500).sum(), np.arange(2500, 5000).sum()]


def test_a_consumer_cannot_change_the_source_through_a_batch() -> None:
    source = np.zeros((4, 2))
    for batch in ad.Dataset.from_tensor_slices(source).batch(2):
        batch[:] = 1
    assert source.sum() == 0


def test_arrays_without_rows_tell_what_rows_would_be() -> None:
    ds = ad.Dataset.from_tensor_slices({"x": np.zeros((0, 2), "int32"), "s": (np.array([], object), ())})
    assert ds.element_spec == {"x": ad.TensorSpec((2,), "int32"), "s": (ad.TensorSpec((), object), ())}
    assert list(ds) == []
    assert [x["x"].tolist() for x in ds.pad_to_cardinality(2)] == [[0, 0], [0, 0]]


INNER = (ad.Dataset.range(2), ad.Dataset.range(10, 13))
IN_TURN = [0, 10, 1, 11, 12]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("build", [ad.Dataset.from_tensor_slices, ad.Dataset.from_list])
def test_datasets_in_a_list_are_elements(build: Any, way: Any) -> None:
    assert way(build([*INNER]).interleave(lambda inner: inner)) == IN_TURN
    same_sizes = build([INNER[0], INNER[0]])
    assert way(same_sizes.flat_map(lambda inner: inner)) == [0, 1, 0, 1]
    assert same_sizes.element_spec == ad.TensorSpec((), object)


def test_datasets_stay_datasets_in_structures_and_nested_lists() -> None:
    pairs = ad.Dataset.from_tensor_slices({"x": np.array([5, 6]), "ds": [*INNER]})
    assert [(one["x"], list(one["ds"])) for one in pairs] == [(5, [0, 1]), (6, [10, 11, 12])]
    endless = [ad.Dataset.counter(), INNER[0]]
    (found,) = ad.Dataset.from_list([(endless, 3)])
    assert found[0].tolist() == endless
    rows = ad.Dataset.from_tensor_slices([endless, endless])
    assert [row.tolist() for row in rows] == [endless, endless]
    assert rows.element_spec == ad.TensorSpec((2,), object)


def test_a_dataset_has_no_rows_but_elements() -> None:
    with pytest.raises(ad.PlanError, match="is a scalar and has no first axis"):
        ad.Dataset.from_tensor_slices(INNER[0])


def test_what_reads_datasets_of_a_list_goes_on_from_a_state() -> None:
    check_resumes(lambda: ad.Dataset.from_tensor_slices([*INNER]).shuffle(seed=1).interleave(lambda inner: inner))
