from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes, check_transform
from tests import reference
from tests.marks import first_by_default
from tests.reference import Failed
from tests.running import results

WORDS = [np.full(n * 7 % 11, n) for n in range(60)]


async def length(row: Any) -> int:
    return len(row)


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("fn", first_by_default([length, len]))
def test_keeps_its_contract(bounded: bool, drop: bool, fn: Any) -> None:
    check_transform(
        lambda ds: ds.bucket_by_sequence_length(
            fn, [3, 7], [4, 2, 1], pad_to_bucket_boundary=bounded, drop_remainder=drop
        ),
        lambda items: reference.bucket_by_sequence_length(items, len, [3, 7], [4, 2, 1], drop, bounded),
        [(), WORDS[:1], [word for word in WORDS if len(word) < 7 or not bounded]],
    )


def shown(ds: ad.Dataset) -> list[Any]:
    return [batch if isinstance(batch, Failed) else batch.tolist() for batch in results(ds)]


def test_a_boundary_is_the_first_length_of_the_next_bucket() -> None:
    ds = ad.Dataset.from_iterable([[1], [1, 2], [1, 2, 3]]).bucket_by_sequence_length(len, [2, 3], [9, 9, 9])
    assert shown(ds) == [[[1]], [[1, 2]], [[1, 2, 3]]]


def test_shapes_and_values_are_those_of_padded_batch() -> None:
    pairs = ad.Dataset.from_iterable([([1], "a"), ([1, 2], "b")])
    ds = pairs.bucket_by_sequence_length(lambda row, name: len(row), [9], [2, 2], ([4], []), (-1, None))
    ((rows, names),) = ds
    assert (rows.tolist(), names.tolist()) == ([[1, -1, -1, -1], [1, 2, -1, -1]], ["a", "b"])


def test_to_the_boundary_is_padded_what_no_shape_tells() -> None:
    images = [np.zeros((2, 5)), np.zeros((3, 5))]
    (batch,) = ad.Dataset.from_iterable(images).bucket_by_sequence_length(
        len, [8], [2, 2], [None, 6], pad_to_bucket_boundary=True
    )
    assert batch.shape == (2, 7, 6)


def test_what_is_beyond_all_boundaries_fails_where_all_is_padded_to_one() -> None:
    ds = ad.Dataset.from_iterable([[1], [1, 2, 3], [2]])
    bucketed = ds.bucket_by_sequence_length(len, [3], [2, 2], pad_to_bucket_boundary=True)
    assert shown(bucketed) == [Failed("ValueError"), [[1, 0], [2, 0]]]
    with pytest.raises(ValueError, match="length 3 is not below the last boundary, 3"):
        list(bucketed)


def test_without_padding_elements_are_stacked_as_they_are() -> None:
    ds = ad.Dataset.from_iterable([[1], [2], [1, 2], [1, 2, 3]])
    assert shown(ds.bucket_by_sequence_length(len, [2], [2, 2], no_padding=True)) == [
        [[1], [2]],
        Failed("StructureError"),
    ]


def test_a_batch_that_cannot_be_made_is_gone_and_the_next_one_comes() -> None:
    ds = ad.Dataset.from_iterable([[1], [[1]], [2], [3]]).bucket_by_sequence_length(len, [2], [2, 2])
    assert shown(ds) == [Failed("StructureError"), [[2], [3]]]
    with pytest.raises(ad.StructureError) as caught:
        list(ds)
    assert any("bucket_by_sequence_length(2), elements 0 to 1" in note for note in caught.value.__notes__)


def test_an_endless_input() -> None:
    ds = ad.Dataset.counter(1).map(lambda x: [x] * (x % 5)).bucket_by_sequence_length(len, [3], [2, 2])
    assert shown(ds.take(2)) == [[[1, 0], [2, 2]], [[3, 3, 3, 0], [4, 4, 4, 4]]]


@pytest.mark.parametrize(
    ("bounds", "sizes", "how", "word"),
    [
        ([], [1], {"pad_to_bucket_boundary": True}, "bucket_boundaries"),
        ([3, 2], [1, 1, 1], {}, "bucket_boundaries"),
        ([2, 2], [1, 1, 1], {}, "bucket_boundaries"),
        ([0], [1, 1], {}, "bucket_boundaries"),
        ([0.5], [1, 1], {}, "bucket_boundaries"),
        ([2], [1], {}, "bucket_batch_sizes"),
        ([2], [1, 0], {}, "bucket_batch_sizes"),
        ([2], [1, 1], {"padded_shapes": "x"}, "padded_shapes"),
        ([2], [1, 1], {"no_padding": True, "pad_to_bucket_boundary": True}, "no_padding"),
    ],
)
def test_wrong_arguments_are_refused_where_they_are_given(bounds: Any, sizes: Any, how: Any, word: str) -> None:
    with pytest.raises(ad.PlanError, match=word):
        ad.Dataset.range(3).bucket_by_sequence_length(len, bounds, sizes, **how)


def test_goes_on_anywhere() -> None:
    def build() -> ad.Dataset:
        return ad.Dataset.from_iterable(WORDS).bucket_by_sequence_length(len, [3, 7], [4, 2, 1])

    check_resumes(build)
    check_resumes(lambda: build().shuffle(4, seed=1))
