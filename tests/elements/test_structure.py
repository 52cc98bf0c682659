"""Stacking, splitting, describing and checking nested elements."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.elements.isolation import isolate
from asyncdata.elements.structure import as_arrays, conform, leading_dimension, nbytes, paired, spec_of, stack, unstack


class Pair(NamedTuple):
    image: Any
    label: int


@dataclasses.dataclass
class Sample:
    image: Any
    label: int


@pytest.mark.parametrize(
    ("column", "dtype"),
    [
        ([1, 2], np.int64),
        ([1.0, 2.0], np.float64),
        ([True, False], np.bool_),
        ([1, 2.5], np.float64),
        ([np.float32(1), np.float32(2)], np.float32),
        (["a", "b"], object),
        ([b"a", b"bb"], object),
        ([None, None], object),
        ([1, "a"], object),
        ([[1, 2], [3, 4]], np.int64),
        ([np.uint8([1]), np.uint8([2])], np.uint8),
        ([np.zeros(2, np.float32), [1, 2]], np.float64),
        ([np.str_("a"), np.str_("b")], object),
    ],
)
def test_dtypes_of_stacked_leaves(column: list[Any], dtype: Any) -> None:
    assert stack(column).dtype == dtype
    assert len(stack(column)) == 2


@pytest.mark.parametrize(
    "make",
    [lambda x: (x, x), lambda x: {"a": x}, lambda x: Pair(x, 1), lambda x: Sample(x, 1), lambda x: OrderedDict(z=x)],
)
def test_structure_is_kept(make: Any) -> None:
    stacked = stack([make(1), make(2)])
    assert type(stacked) is type(make(1))
    assert [str(element) for element in unstack(stacked)] == [str(spec_free(make(np.int64(x)))) for x in (1, 2)]


def spec_free(element: Any) -> Any:
    """An element as unstacking gives it back: with NumPy's scalars for numbers."""
    if isinstance(element, Pair):
        return Pair(element.image, np.int64(element.label))
    if isinstance(element, Sample):
        return Sample(element.image, np.int64(element.label))
    return element


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ([np.zeros(2), np.zeros(2), np.zeros(3)], "the value of element 2 of the batch has shape (3,), that of"),
        ([{"x": np.zeros(2)}, {"x": np.zeros((1, 2))}], "leaf ['x'] of element 1 of the batch has shape (1, 2)"),
        ([(1, (2,)), (1, (2, 3))], "leaf [1] of element 1 of the batch has parts 2, that of element 0 has parts 1"),
        ([{"x": 1}, {"y": 1}], "element 1 of the batch has keys ['y'], that of element 0 has ['x']"),
        ([np.ma.zeros(2), np.ma.zeros(3)], "the value of element 1 of the batch has shape (3,)"),
        ([1, (1,)], "element 1 of the batch is a tuple, that of element 0 a int"),
        ([Pair([1], 1), Pair([1, 2], 1)], "leaf .image of element 1 of the batch has shape (2,)"),
        ([1, 2**70], "element 1 of the batch does not fit int64"),
        ([[1, [2]], [1]], "element 0 of the batch is not an array"),
    ],
)
def test_what_does_not_stack_is_named(column: list[Any], words: str) -> None:
    with pytest.raises(ad.StructureError) as caught:
        stack(column)
    assert words in str(caught.value)


@given(st.lists(st.tuples(st.integers(-100, 100), st.floats(allow_nan=False), st.text(max_size=3)), min_size=1))
def test_unstacking_undoes_stacking(elements: list[Any]) -> None:
    assert unstack(stack(elements)) == elements


@pytest.mark.parametrize(
    ("value", "problem"), [(5, "scalar"), ((), "no leaves"), ((np.zeros(2), np.zeros(3)), "3 rows")]
)
def test_what_has_no_rows(value: Any, problem: str) -> None:
    assert problem in str(leading_dimension(value).problem)


def test_lists_become_arrays_and_strings_objects() -> None:
    arrays = as_arrays({"x": [1, 2], "s": ["a", "b"], "c": "c"})
    assert arrays["x"].dtype == np.int64
    assert arrays["s"].dtype == object
    assert arrays["c"] == "c"


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (300, "uint8"),
        (np.int64(300), "uint8"),
        (np.array([1, -1]), "uint32"),
        (np.uint64(2**63), "int64"),
        (2.5, "int32"),
        ([1, 2.5], "int32"),
        (np.float32("nan"), "int32"),
        (np.array([1j]), "int64"),
        (1e300, "float32"),
        (np.array([1.0, 1e300]), "float32"),
        (70_000, "float16"),
    ],
)
@pytest.mark.filterwarnings("ignore:Casting complex values")
def test_a_dtype_that_cannot_hold_a_number_is_no_dtype_for_it(value: Any, dtype: str) -> None:
    with pytest.raises(ad.StructureError, match=f"expected .*dtype={dtype}.*, got "):
        conform(value, ad.TensorSpec(np.shape(value), dtype))


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (np.int64(3), "int32", 3),
        (2.0, "int32", 2),
        (0.1, "float32", np.float32(0.1)),
        (float("inf"), "float32", np.inf),
        (2**53 + 1, "float64", 2.0**53),
        (np.uint64(5), "int64", 5),
        (True, "int32", 1),
    ],
)
def test_a_number_is_only_rounded(value: Any, dtype: str, expected: Any) -> None:
    assert conform(value, ad.TensorSpec((), dtype)) == expected


def test_a_signature_converts_and_refuses() -> None:
    signature = {"x": ad.TensorSpec((None,), np.float32), "n": ad.TensorSpec((), np.int32), "s": ad.TensorSpec((), str)}
    good = conform({"x": [1, 2], "n": 3, "s": "a"}, signature)
    assert (good["x"].dtype, good["n"].dtype, good["s"]) == (np.float32, np.int32, "a")
    with pytest.raises(ad.StructureError, match=r"leaf \['x'\]: expected TensorSpec.*got an array of shape \(1, 1\)"):
        conform({"x": [[1]], "n": 3, "s": "a"}, signature)
    with pytest.raises(ad.StructureError, match="expected parts"):
        conform({"x": [1]}, signature)
    with pytest.raises(ad.StructureError, match="expected TensorSpec"):
        conform("a", ad.TensorSpec((), np.int64))


def test_the_older_pair_of_types_and_shapes() -> None:
    assert paired((str, np.float32), ((2, 1), (None,))) == (
        ad.TensorSpec((2, 1), object),
        ad.TensorSpec((None,), np.float32),
    )
    assert paired({"a": np.int64}, None) == {"a": ad.TensorSpec(None, np.int64)}


def test_specs_describe_elements() -> None:
    spec = spec_of((np.zeros((2, 3), np.uint8), 1, "a"))
    image, label = "TensorSpec(shape=(2, 3), dtype=uint8)", "TensorSpec(shape=(), dtype=int64)"
    assert str(spec) == f"({image}, {label}, TensorSpec(shape=(), dtype=object))"


def test_renewed_arrays_cannot_be_written() -> None:
    element = isolate({"x": (np.zeros(2), [1])})
    with pytest.raises(ValueError, match="read-only"):
        element["x"][0][0] = 1


def test_bytes_are_counted_through_the_structure() -> None:
    assert nbytes({"x": np.zeros(1000), "y": (b"a" * 500,)}) > 8500


@pytest.mark.parametrize("one", [{"a": 1}, (1, "x"), {"a": {"b": (1, np.arange(2))}}])
@pytest.mark.parametrize("step", ["batch", "padded_batch", "ragged_batch"])
def test_none_beside_structures_makes_an_array_of_objects(one: Any, step: str) -> None:
    for rows in ([one, None], [None, one, one], [None, None, one]):
        (batch,) = getattr(ad.Dataset.from_iterable(rows), step)(3)
        assert (batch.dtype, batch.shape) == (object, (len(rows),))
        assert [row is None for row in batch] == [row is None for row in rows]
        ds = ad.Dataset.from_iterable([{"row": row} for row in rows])
        assert repr(list(getattr(ds, step)(3).unbatch())) == repr(list(ds))


def test_none_beside_structures_of_several_types_is_an_error() -> None:
    with pytest.raises(ad.StructureError, match="of element 2 of the batch is a dict, that of element 1 a tuple"):
        stack([None, (1,), {"a": 1}])
    with pytest.raises(ad.StructureError, match="of element 2 of the batch is a int, that of element 1 a tuple"):
        stack([None, (1,), 1])


def test_arrays_of_objects_beside_others_change_no_value() -> None:
    times = np.array([1, 2], "M8[ns]")
    objects = np.array([np.datetime64(1, "ns"), None], object)
    batch = stack([times, objects])
    assert [type(value) for value in batch.ravel()] == [np.datetime64] * 3 + [type(None)]
    assert stack([np.array([0.1], "f4"), np.array([None], object)])[0, 0].dtype == "f4"


def test_records_of_one_dtype_are_stacked_as_they_are() -> None:
    rows = np.array([(1, 0.5), (2, 1.5)], [("a", "i4"), ("b", "f8")])
    batch = stack([*rows])
    assert (batch.dtype, batch.tolist()) == (rows.dtype, rows.tolist())


def test_values_without_parts_are_looked_at_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    class Leaf:
        pass

    def open_one(value: Any) -> None:
        opened.append(value)

    monkeypatch.setattr("asyncdata.elements.structure.open_level", open_one)
    leaves = [Leaf() for _ in range(50)]
    assert stack(leaves).tolist() == leaves
    assert opened == leaves[:1]


@pytest.mark.parametrize("x", ["<f4", ">f4"])
def test_batches_of_records_have_one_dtype_wherever_columns_end(x: str) -> None:
    gaps = np.dtype({"names": ["x", "y"], "formats": [x, "<i2"], "offsets": [1, 7], "itemsize": 21})
    halves = [ad.Dataset.from_tensor_slices(np.ones((5, *shape), gaps)) for shape in [(), (3,)] for _ in range(2)]
    for half, other in (halves[:2], halves[2:]):
        for size in (1, 3, 10):  # within the halves, and of both
            batches = list(half.concatenate(other).batch(size))
            assert {batch.dtype for batch in batches} == {np.dtype([("x", "f4"), ("y", "i2")])}
            assert all(np.all(batch["y"] == 1) for batch in batches)
