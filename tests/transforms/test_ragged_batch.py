from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.errors import PlanError, StructureError
from asyncdata.testing import check_resumes, check_transform
from tests import reference
from tests.reference import Failed
from tests.running import results

ROWS = [np.arange(length) for length in (3, 0, 1, 5, 2, 0, 4)]


class Point(NamedTuple):
    x: Any
    y: Any


def batch_of(*items: Any) -> Any:
    (only,) = ad.Dataset.from_iterable(items).ragged_batch(len(items))
    return only


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
@pytest.mark.parametrize("drop", [False, True])
def test_keeps_its_contract(size: int, drop: bool) -> None:
    check_transform(
        lambda ds: ds.ragged_batch(size, drop),
        lambda items: reference.ragged_batch(items, size, drop),
        [(), (np.arange(3),), ROWS, range(10)],
    )


def test_goes_on_from_any_place() -> None:
    def pipeline() -> ad.Dataset[Any]:
        return ad.Dataset.range(40).map(lambda x: (x, np.arange(x % 4))).ragged_batch(3)

    check_resumes(pipeline)
    check_resumes(lambda: pipeline().shuffle(5, seed=1))
    check_resumes(lambda: pipeline().unbatch())


def test_rows_keep_their_lengths() -> None:
    ragged = batch_of(*ROWS)
    assert isinstance(ragged, ad.Ragged)
    assert ragged.values.tolist() == [0, 1, 2, 0, 0, 1, 2, 3, 4, 0, 1, 0, 1, 2, 3]
    assert ragged.row_splits.tolist() == [0, 3, 3, 4, 9, 11, 11, 15]
    assert [row.tolist() for row in ragged] == ragged.to_list() == [row.tolist() for row in ROWS]
    assert (len(ragged), ragged.shape, ragged.dtype) == (7, (7, None), np.int64)
    assert (ragged[-1].tolist(), ragged[0].tolist()) == ([0, 1, 2, 3], [0, 1, 2])
    with pytest.raises(IndexError):
        ragged[7]


def test_rows_of_arrays_and_of_strings() -> None:
    assert batch_of(np.zeros((2, 3)), np.zeros((0, 3))).shape == (2, None, 3)
    assert batch_of(["a", "bc"], ["d\0"]).to_list() == [["a", "bc"], ["d\0"]]
    assert batch_of([], [1.5]).to_list() == [[], [1.5]]


def test_dtypes_mix_under_rules_of_numpy() -> None:
    assert batch_of(np.array([1], np.int8), np.array([2.0], np.float32)).dtype == np.float32


def test_masks_are_kept() -> None:
    masked = np.ma.array([1, 2], mask=[False, True])
    assert batch_of(masked, np.array([3])).values.mask.tolist() == [False, True, False]


@pytest.mark.parametrize("items", [(1, 2), ("a", "bc"), (None, 1), (b"a", "b"), (np.float32(1), 2.5)])
def test_what_has_no_axis_is_stacked(items: Any) -> None:
    assert batch_of(*items).tolist() == list(items)
    assert batch_of(np.array(1), np.array(2)).tolist() == [1, 2]


def test_structures_are_joined_leaf_by_leaf() -> None:
    batch = batch_of({"a": (1, Point("x", [1]))}, {"a": (2, Point("y", []))})
    number, point = batch["a"]
    assert (number.tolist(), point.x.tolist(), point.y.to_list()) == ([1, 2], ["x", "y"], [[1], []])


@pytest.mark.parametrize("dtype", ["int32", np.int32, np.dtype("int64")])
def test_splits_have_the_dtype_that_was_asked_for(dtype: Any) -> None:
    (ragged,) = ad.Dataset.from_iterable([[1], [2, 3]]).ragged_batch(2, row_splits_dtype=dtype)
    assert ragged.row_splits.dtype == np.dtype(dtype)


def test_unbatch_and_rebatch_take_it_apart() -> None:
    ragged = ad.Dataset.from_iterable(ROWS).ragged_batch(4)
    assert [row.tolist() for row in ragged.unbatch()] == [row.tolist() for row in ROWS]
    assert [len(part) for part in ragged.unbatch().padded_batch(5)] == [5, 2]


def test_its_elements_can_be_batched_and_cached() -> None:
    ds = ad.Dataset.from_iterable(ROWS).ragged_batch(2).cache()
    assert list(ds) == list(ds)
    with pytest.raises(ValueError, match="read-only"):
        next(iter(ds)).values[0] = 1
    (batch,) = ds.batch(4)
    assert (batch.dtype, batch[1].to_list()) == (np.dtype(object), [[0], [0, 1, 2, 3, 4]])


@pytest.mark.parametrize("odd", [np.zeros((2, 4)), np.zeros(3), 5, "x"])
def test_what_does_not_fit_fails_in_the_place_of_the_batch(odd: Any) -> None:
    rows = [np.zeros((1, 3)), odd, np.zeros((2, 3)), np.zeros((3, 3))]
    found = results(ad.Dataset.from_iterable(rows).ragged_batch(2))
    assert found[0] == Failed("StructureError")
    assert found[1].shape == (2, None, 3)


def test_an_error_names_leaf_element_and_shapes() -> None:
    ds = ad.Dataset.from_iterable([{"a": np.zeros((1, 3))}, {"a": np.zeros((2, 4))}]).ragged_batch(2)
    with pytest.raises(StructureError, match=r"leaf \['a'\] of element 1 .* \(2, 4\).* \(1, 3\)") as error:
        list(ds)
    assert error.value.__notes__ == ["in ragged_batch(2), elements 0 to 1"]


def test_what_elements_look_like_is_known() -> None:
    ds = ad.Dataset.from_tensor_slices((np.zeros((6, 2, 3), np.float32), np.arange(6))).ragged_batch(4)
    assert ds.element_spec == (ad.RaggedTensorSpec((None, None, 3), "float32"), ad.TensorSpec((None,), "int64"))
    assert ds.map(lambda *parts: parts).element_spec[0] == ad.RaggedTensorSpec((4, None, 3), "float32")
    assert ds.ragged_batch(3).element_spec[0] == ds.padded_batch(3).element_spec[0] == ad.TensorSpec((None,), object)
    assert len(ds) == 2


@pytest.mark.parametrize("size", [0, -1, 1.5, None])
def test_wrong_sizes_are_refused(size: Any) -> None:
    with pytest.raises(PlanError, match=r"ragged_batch\(batch_size=\)"):
        ad.Dataset.range(3).ragged_batch(size)


@pytest.mark.parametrize("dtype", ["float32", "int8", "nonsense", object()])
def test_wrong_dtypes_of_splits_are_refused(dtype: Any) -> None:
    with pytest.raises(PlanError, match=r"row_splits_dtype=\) must be int64 or int32"):
        ad.Dataset.range(3).ragged_batch(1, row_splits_dtype=dtype)


@pytest.mark.parametrize("splits", [[], [1, 3], [0, 2], [0, 2, 1, 3], [[0, 3]], [0.0, 3.0]])
def test_wrong_splits_are_refused(splits: Any) -> None:
    with pytest.raises(StructureError, match="Ragged"):
        ad.Ragged(np.arange(3), np.array(splits))
