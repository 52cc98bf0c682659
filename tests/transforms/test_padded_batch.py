from __future__ import annotations

import dataclasses
import re
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes, check_transform
from asyncdata.testing.checks import same
from tests import reference
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import results


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Sample:
    words: Any
    label: Any


def batch_of(*items: Any, **how: Any) -> Any:
    (only,) = ad.Dataset.from_iterable(items).padded_batch(len(items), **how)
    return only


def fail_at_2(x: int) -> Any:
    if x == 2:
        raise Boom(x)
    return np.full(x, x)


@pytest.mark.parametrize("size", first_by_default([3, 1000, 1], 2))
@pytest.mark.parametrize("drop", [False, True])
def test_keeps_its_contract(size: int, drop: bool) -> None:
    check_transform(
        lambda ds: ds.padded_batch(size, drop_remainder=drop),
        lambda items: reference.padded_batch(items, size, drop),
        [(), (1,), range(100), [np.arange(i % 5) for i in range(40)], [np.zeros((i, 5 - i, 2)) for i in range(5)]],
    )


def test_what_is_missing_is_the_zero_of_the_dtype() -> None:
    assert batch_of([1.5], [2.0, 3.0]).tolist() == [[1.5, 0.0], [2.0, 3.0]]
    assert batch_of([True], []).dtype == bool  # NumPy would make floats of an empty list
    assert batch_of([], []).dtype == np.float64
    assert batch_of(np.array([True]), np.array([], bool)).tolist() == [[True], [False]]
    assert batch_of(["a", "b"], ["c"]).tolist() == [["a", "b"], ["c", ""]]
    assert batch_of([b"a", b"b"], [b"c"]).tolist() == [[b"a", b"b"], [b"c", b""]]
    assert batch_of(np.array([1], object), np.array([], object)).tolist() == [[1], [None]]


@pytest.mark.parametrize("longest", first_by_default([3, 100_000, 100], 2))
@pytest.mark.parametrize("value", [None, 0, 0.0, -0.0, 7])
@pytest.mark.parametrize("dtype", ["?", "u1", "i8", ">i4", "f2", "f8", "g", "c16"])
def test_every_number_is_as_if_it_were_put_into_its_place(dtype: str, value: Any, longest: int) -> None:
    if dtype == "?" and value == 7:
        value = True
    step = (np.arange(2 * longest) % 100).astype(dtype)[::2]  # no block of memory
    items = [step[:longest], np.zeros(0, dtype), step[1:3][::-1]]
    found = batch_of(*items, padding_values=value)
    expected = np.full((3, longest), 0 if value is None else value, np.dtype(dtype).newbyteorder("="))
    for row, item in zip(expected, items, strict=True):
        row[: len(item)] = item
    assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())
    assert np.array_equal(np.signbit(found.real), np.signbit(expected.real)) or dtype == "?"
    assert found.flags.writeable
    assert found.flags.c_contiguous


@pytest.mark.parametrize("dtype", ["?", "u1", "i8", ">i4", "f2", "f8", "g", "c16", "U3", "O", "M8[s]"])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"padded_shapes": [None]},
        {"padded_shapes": [9]},
        {"padded_shapes": [4]},
        {"padded_shapes": [3, 2]},
        {"padded_shapes": [9], "padding_values": 1},
        {"padding_values": -1},
        {"padded_shapes": 6},
    ],
)
def test_what_is_known_of_the_elements_changes_nothing(dtype: str, how: dict[str, Any]) -> None:
    """A list tells what all its elements are, so that they need not be looked at again; an iterable does not."""
    long = np.arange(14).astype(dtype)
    arrays = [long[:5], long[::3], long[:0], long[1:2], long[:6].copy(), long[:6], long[:3], long[4:7]]

    known, unknown = ad.Dataset.from_list(arrays), ad.Dataset.from_iterable(arrays)
    assert known.plan.signature is not None
    assert unknown.plan.signature is None
    found = results(unknown.padded_batch(2, **how))
    try:
        batches = known.padded_batch(2, **how)
    except ad.PlanError:  # it is known already that this does not fit
        assert any(isinstance(batch, Failed) for batch in found)
    else:
        assert same(results(batches), found)


@pytest.mark.parametrize("value", [None, 7])
@pytest.mark.parametrize("longest", [3, 100_000])
@pytest.mark.parametrize("inner", [(2,), (2, 3), (0,)])
def test_rows_of_one_shape_are_filled_up_behind_the_last(inner: tuple[int, ...], longest: int, value: Any) -> None:
    whole = np.arange(longest * np.prod(inner)).reshape(longest, *inner)
    items = [whole, whole[:0], whole[1:3], np.asfortranarray(whole[::2])]
    found = batch_of(*items, padding_values=value)
    expected = np.full((4, longest, *inner), value or 0)
    for row, item in zip(expected, items, strict=True):
        row[: len(item)] = item
    assert same(found, expected)
    assert found.flags.writeable


def test_numbers_of_several_dtypes_are_of_one_that_holds_all() -> None:
    found = batch_of(np.array([1], np.int8), np.array([0.5, 2], np.float32), np.zeros(0, ">i2"))
    assert found.dtype == np.float32
    assert found.tolist() == [[1, 0], [0.5, 2], [0, 0]]
    words = batch_of(np.array([1]), np.array(["a", "b"], object))
    assert words.tolist() == [[1, None], ["a", "b"]]


def test_a_value_fills_up_instead() -> None:
    assert batch_of([1], [2, 3], padding_values=-1).tolist() == [[1, -1], [2, 3]]
    assert np.isnan(batch_of([1.0], [2.0, 3.0], padding_values=np.nan)[0, 1])
    assert batch_of(["a"], [], padding_values="<pad>").tolist() == [["a"], ["<pad>"]]
    assert batch_of(np.array([1], "uint8"), np.array([], "uint8"), padding_values=255).dtype == np.uint8
    assert batch_of([1.5], [], padding_values=np.int64(2**53)).tolist() == [[1.5], [2.0**53]]
    seconds = np.array([1], "m8[s]")
    assert batch_of(seconds, seconds[:0], padding_values=np.timedelta64(2, "s")).astype(int).tolist() == [[1], [2]]


@pytest.mark.parametrize("value", [b"\0", b"z\0", "\0"])
@pytest.mark.parametrize("kind", [list, np.array])
def test_zeros_at_the_end_of_padding_stay(value: Any, kind: Any) -> None:
    text = type(value)()
    assert batch_of(kind([text, text]), kind([text]), padding_values=value).tolist() == [[text, text], [text, value]]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int64", 0.5),
        ("uint8", -1),
        ("int8", 200),
        ("int64", "x"),
        ("?", 2),
        ("int8", np.nan),
        ("float16", 70_000),
        ("float64", 2**53 + 1),
        ("complex64", 2**24 + 1),
        ("timedelta64[s]", 5),
    ],
)
def test_a_value_that_the_dtype_cannot_hold_is_refused(dtype: str, value: Any) -> None:
    with pytest.raises(ad.StructureError, match=re.escape(f"{value!r} does not fit {np.dtype(dtype)}")):
        batch_of(np.zeros(1, dtype), np.zeros(2, dtype), padding_values=value)


def test_shapes_say_how_large() -> None:
    assert batch_of([1], [2, 3], padded_shapes=[4]).shape == (2, 4)
    assert batch_of(np.zeros((1, 2)), np.zeros((3, 1)), padded_shapes=[None, 4]).shape == (2, 3, 4)
    assert batch_of(np.zeros((1, 2)), np.zeros((3, 1)), padded_shapes=(-1, None)).shape == (2, 3, 2)
    assert batch_of(1, 2, padded_shapes=[]).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("element", "shapes", "values"),
    [
        (lambda i: ([i] * i, i), ([None], []), (7, None)),
        (lambda i: ([i] * i, i), ([None], ()), 7),
        (lambda i: ([i] * i, i), [[3], []], [7, 0]),
        (lambda i: Point([i] * i, i), Point([3], []), Point(7, 0)),
        (lambda i: Point([i] * i, i), ([3], []), (7, 0)),
        (lambda i: Sample([i] * i, i), Sample([3], []), Sample(7, 0)),
        (lambda i: {"x": [i] * i, "y": i}, {"y": [], "x": [3]}, {"y": 0, "x": 7}),
        (lambda i: {"x": [i] * i, "y": i}, None, 7),
    ],
)
def test_each_leaf_has_its_own(element: Any, shapes: Any, values: Any) -> None:
    batch = batch_of(*map(element, [1, 2, 3]), padded_shapes=shapes, padding_values=values)
    assert type(batch) is type(element(1))
    rows, numbers = (
        batch.values() if isinstance(batch, dict) else batch if isinstance(batch, tuple) else vars(batch).values()
    )
    assert rows.tolist() == [[1, 7, 7], [2, 2, 7], [3, 3, 3]]
    assert numbers.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("items", "how", "words"),
    [
        ([[1], [2, 3]], {"padded_shapes": [1]}, ["element 1", "(2,)", "(1,)"]),
        ([[1], [[2]]], {}, ["element 1", "shape (1, 1)", "shape (1,)"]),
        ([[1], [2]], {"padded_shapes": [None, 2]}, ["rank 1", "[None, 2]"]),
        ([[[1]], [[2]]], {"padded_shapes": 6}, ["rank 2", "[6]"]),
        ([([1], 2)], {"padded_shapes": ([1],)}, ["[0]", "[1]", "padding"]),
        ([{"a": [1]}], {"padded_shapes": {"b": [1]}}, ["a", "b"]),
        ([(1, 2), (1, 2, 3)], {}, ["element 1"]),
        ([{"a": ([1], 1)}, {"a": ([1, 2], 1)}], {"padded_shapes": {"a": ([1], [])}}, ["leaf ['a'][0]", "(2,)"]),
    ],
    ids=str,
)
def test_what_does_not_fit_is_named(items: list[Any], how: Any, words: list[str]) -> None:
    with pytest.raises(ad.StructureError) as caught:
        batch_of(*items, **how)
    for word in words:
        assert word in str(caught.value)
    assert any(f"in padded_batch({len(items)})" in note for note in caught.value.__notes__)


def test_a_batch_that_cannot_be_made_is_gone_and_the_next_one_comes() -> None:
    ds = ad.Dataset.from_iterable([[1], [2, 3], [4, 5, 6], [7], [8]]).padded_batch(2, [2])
    assert [x if isinstance(x, Failed) else x.tolist() for x in results(ds)] == [
        [[1, 0], [2, 3]],
        Failed("StructureError"),
        [[8, 0]],
    ]


def test_a_failure_passes_and_the_batch_goes_on() -> None:
    found = results(ad.Dataset.range(5).map(fail_at_2).padded_batch(3))
    shown = [x if isinstance(x, Failed) else x.tolist() for x in found]
    assert shown == [Failed("Boom(2)"), [[0, 0, 0], [1, 0, 0], [3, 3, 3]], [[4, 4, 4, 4]]]


@pytest.mark.parametrize(
    "wrong", ["x", [0.5], [-2], ([None], "x"), pytest.param({"a": [object()]}, id="object")], ids=str
)
def test_shapes_that_are_none_are_refused_where_they_are_given(wrong: Any) -> None:
    with pytest.raises(ad.PlanError, match="padded_shapes"):
        ad.Dataset.range(3).padded_batch(2, wrong)


def test_shapes_that_do_not_fit_what_is_known_are_refused_where_they_are_given() -> None:
    with pytest.raises(ad.PlanError, match="rank 0"):
        ad.Dataset.range(3).padded_batch(2, [None])
    with pytest.raises(ad.PlanError, match="parts"):
        ad.Dataset.range(3).enumerate().padded_batch(2, ([],))


@pytest.mark.parametrize("size", [0, -1, 1.5, None])
def test_wrong_sizes_are_refused_where_they_are_given(size: Any) -> None:
    with pytest.raises(ad.PlanError, match="batch_size"):
        ad.Dataset.range(3).padded_batch(size)


def test_cardinality_and_spec() -> None:
    rows = ad.Dataset.from_tensor_slices((np.zeros((10, 3)), np.arange(10)))
    assert len(rows.padded_batch(3)) == 4
    assert len(rows.padded_batch(3, drop_remainder=True)) == 3
    images, numbers = rows.padded_batch(3, ([5], []), drop_remainder=True).element_spec
    assert (images.shape, numbers.shape, images.dtype) == ((3, 5), (3,), np.float64)
    assert rows.padded_batch(3).element_spec[0].shape == (None, 3)
    assert ad.Dataset.counter().padded_batch(3).cardinality() == ad.INFINITE_CARDINALITY


def test_goes_on_anywhere() -> None:
    check_resumes(lambda: ad.Dataset.range(40).map(lambda x: np.full(x % 5, x)).padded_batch(4).shuffle(3, seed=1))
    check_resumes(lambda: ad.Dataset.range(9).map(fail_at_2).padded_batch(4, [9], -1))


def of_arrays(shape: tuple[int | None, ...] = (None,), dtype: str = "int64") -> ad.Dataset:
    """Return a dataset whose elements are known to be pairs of an array and a number."""
    signature = ad.TensorSpec(shape, dtype), ad.TensorSpec((), bool)
    return ad.Dataset.from_generator(lambda: [(np.zeros([2] * len(shape), dtype), True)], output_signature=signature)


@pytest.mark.parametrize(
    "pad",
    [
        lambda ds: ds.padded_batch(2, padding_values=0.5),
        lambda ds: ds.padded_batch(2, padding_values=("x", None)),
        lambda ds: ds.padded_batch(2, padded_shapes=([3], []), padding_values=0.5),
        lambda ds: ds.bucket_by_sequence_length(lambda x, _: len(x), [3], [2, 2], padding_values=0.5),
        lambda ds: ds.bucket_by_token_count(9, lambda x, _: len(x), padding_values=0.5),
    ],
)
def test_a_value_that_a_known_dtype_cannot_hold_is_refused_at_once(pad: Any) -> None:
    with pytest.raises(ad.PlanError, match=r"padding_values: .* does not fit int64, the dtype of leaf \[0\]"):
        pad(of_arrays())


def test_a_value_is_not_for_what_needs_none() -> None:
    assert next(iter(of_arrays((2,)).padded_batch(2, padding_values=0.5)))[0].tolist() == [[0, 0]]
    assert next(iter(of_arrays(dtype="float32").padded_batch(2, padding_values=0.5)))[1].tolist() == [True]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda ds: ds.padded_batch(4, [1]), "in padded_batch(4), elements 0 to 2"),
        (lambda ds: ds.batch(4), "in batch(4), elements 0 to 2"),
    ],
    ids=["padded", "batch"],
)
def test_a_short_batch_is_told_as_it_was_written(build: Any, words: str) -> None:
    with pytest.raises(ad.StructureError) as caught:
        list(build(ad.Dataset.from_iterable([np.zeros(1), np.zeros(1), np.zeros(2)])))
    assert caught.value.__notes__ == [words]


def test_a_size_is_the_shape_of_a_leaf_with_one_axis() -> None:
    rows = ad.Dataset.from_iterable([[1], [2, 3]])
    (batch,) = rows.padded_batch(2, 3)
    assert batch.tolist() == [[1, 0, 0], [2, 3, 0]]
    (pairs,) = rows.map(lambda row: {"a": row, "b": row}).padded_batch(2, {"a": np.int64(3), "b": [None]})
    assert (pairs["a"].shape, pairs["b"].shape) == ((2, 3), (2, 2))
    known = ad.Dataset.from_tensor_slices(np.ones((2, 2)))
    assert known.padded_batch(2, 3).element_spec == ad.TensorSpec((None, 3), float)
    with pytest.raises(ad.PlanError, match="has rank 1, but its padded_shapes is"):
        known.padded_batch(2, [3, 3])
    with pytest.raises(ad.PlanError, match="its padding is given as"):
        ad.Dataset.zip(known, known).padded_batch(2, 3)


@pytest.mark.parametrize("step", ["padded_batch", "ragged_batch"])
def test_arrays_beside_some_of_objects_keep_their_values(step):
    """NumPy makes Python's numbers of numbers among objects, and integers of times in nanoseconds."""
    times = np.array(["2020-01-01", "2020-01-02"], "datetime64[ns]")
    for values in (times, np.array([1, 2]), np.array([0.5, 1.5], np.float32)):
        missing = np.array([None], object)
        (found,) = getattr(ad.Dataset.from_iterable([missing, values]), step)(2)
        held = [item for row in found for item in row if item is not None]
        assert held == [*values]
        assert {type(item) for item in held} == {type(values[0])}
