"""Lists whose elements are alike but for their shapes."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, cast

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


@pytest.mark.parametrize(
    "tensors", [[1, 2], ["a", "b"], [(1, "a"), (2, "b")], [{"a": 1, "b": "x"}] * 2, [[1], [2]]], ids=str
)
def test_what_is_done_to_the_list_afterwards_changes_no_element(tensors: list[Any]) -> None:
    ds = ad.Dataset.from_list(tensors)
    before = list(ds)
    tensors[0] = tensors[1] = None
    assert list(ds) == before


@pytest.mark.parametrize(
    ("tensors", "kinds"),
    [
        ([(2**63 - 1, "a"), (-(2**63), "b")], ("int64", "str")),
        ([(2**63, "a"), (2**63, "b")], ("uint64", "str")),
        ([(2**70, True), (2**70, False)], ("int", "bool")),
        ([(float("nan"), None), (1.0, None)], ("float64", "NoneType")),
        ([({"a": 1, "b": b"\0"}, 1j), ({"b": b"", "a": 2}, 2j)], ("{'a': 'int64', 'b': 'bytes'}", "complex128")),
    ],
    ids=str,
)
def test_plain_values_have_the_types_that_each_has_alone(tensors: list[Any], kinds: tuple[str, ...]) -> None:
    def kind(value: Any) -> str:
        if isinstance(value, dict):
            return str({key: kind(part) for key, part in sorted(cast("dict[str, Any]", value).items())})
        return str(getattr(value, "dtype", type(value).__name__))

    together: list[Any] = list(ad.Dataset.from_list(tensors))
    alone = [next(iter(ad.Dataset.from_list([element]))) for element in tensors]
    np.testing.assert_equal(together, alone)
    assert [tuple(map(kind, element)) for element in together] == [kinds] * 2
    assert [list(row[0]) for row in together if isinstance(row[0], dict)] in ([], [["a", "b"], ["b", "a"]])


def test_a_list_of_plain_rows_is_not_converted_one_by_one() -> None:
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    rows = [(f"{number}.jpg", {"label": number, "weight": 0.5}) for number in range(1000)]
    sys.setprofile(count)
    try:
        ad.Dataset.from_list(rows)
    finally:
        sys.setprofile(None)
    assert calls < 3000  # of C alone: the keys and the values of the dicts
