"""Lists whose elements are alike but for their shapes."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    ("tensors", "expected", "spec"),
    [
        ([1, 2], [np.int64(1), np.int64(2)], ad.TensorSpec((), "int64")),
        ([[1], [2, 3]], [np.array([1]), np.array([2, 3])], ad.TensorSpec((None,), "int64")),
        ([[1], [[2, 3]]], [np.array([1]), np.array([[2, 3]])], ad.TensorSpec(None, "int64")),
        ([[[1, 2]], [[3, 4]]], [np.array([[1, 2]]), np.array([[3, 4]])], ad.TensorSpec((1, 2), "int64")),
        (["a", "b"], ["a", "b"], ad.TensorSpec((), object)),
        ([None], [None], ad.TensorSpec((), object)),
        ([(1, "a"), (2, "b")], [(np.int64(1), "a"), (np.int64(2), "b")],
         (ad.TensorSpec((), "int64"), ad.TensorSpec((), object))),
        ([{"a": 1, "b": [2.0]}, {"b": [], "a": 3}],
         [{"a": np.int64(1), "b": np.array([2.0])}, {"b": np.array([]), "a": np.int64(3)}],
         {"a": ad.TensorSpec((), "int64"), "b": ad.TensorSpec((None,), "float64")}),
        ([Point(1, 2)], [Point(np.int64(1), np.int64(2))],
         Point(ad.TensorSpec((), "int64"), ad.TensorSpec((), "int64"))),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_elements_come_as_arrays_and_may_differ_in_shape(tensors: Any, expected: Any, spec: Any, way: Any) -> None:
    ds = ad.Dataset.from_list(tensors)
    assert [reference.plain(x) for x in way(ds)] == [reference.plain(x) for x in expected]
    assert (len(ds), ds.element_spec) == (len(expected), spec)


@pytest.mark.parametrize("tensors", [[], (1, 2), None, "text", {"a": 1}, range(3), np.arange(3)], ids=str)
def test_what_is_no_list_or_has_no_element_is_refused(tensors: Any) -> None:
    with pytest.raises(ad.PlanError, match=r"from_list needs a list with at least one element, got .*from_iterable"):
        ad.Dataset.from_list(tensors)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([1, 2.5], r"in element 1 the value is TensorSpec\(shape=\(\), dtype=float64\), and .*int64\) before"),
        ([1, "a"], "in element 1 the value is .*object.*, and .*int64"),
        ([1, 2, (3, 4)], "in element 2 the value is .*, and .* before"),
        ([{"a": 1}, {"b": 1}], r"in element 1 the value has parts \[\"\['b'\]\"\], and"),
        ([(1, 2), (1, [2.0])], r"in element 1 leaf \[1\] is"),
        ([(1, 2), (1, 2, 3)], "in element 1 the value has parts"),
        ([(1, 2), Point(1, 2)], "in element 1 the value has parts"),
        ([[[1], [1, 2]]], "the value is not an array"),
    ],
)
def test_elements_that_are_not_alike_are_refused_where_they_are_given(tensors: Any, message: str) -> None:
    with pytest.raises(ad.PlanError, match=message):
        ad.Dataset.from_list(tensors)


def test_any_element_can_be_had_and_a_state_goes_on_there() -> None:
    def build() -> ad.Dataset[Any]:
        return ad.Dataset.from_list([np.arange(size) for size in range(30)])

    assert build()[7].tolist() == list(range(7))
    assert sorted(len(x) for x in build().shuffle(seed=1)) == list(range(30))
    check_resumes(build)
    check_resumes(lambda: build().shuffle(4, seed=1).map(len).batch(4))
