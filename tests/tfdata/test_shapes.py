"""Elements that do not fit together: the message says which leaf, which element and both shapes, for all that join."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncdata as ad

FLAT = [{"a": (np.zeros(3), 1)}, {"a": (np.zeros(3), 1)}, {"a": (np.zeros(4), 1)}]
DEEP = [{"a": (np.zeros(3), 1)}, {"a": (np.zeros(3), 1)}, {"a": (np.zeros((3, 4)), 1)}]
ROWS = [{"a": (np.zeros((2, 3)), [1, 2])}, {"a": (np.zeros((1, 4)), [1])}]

JOINED: dict[str, tuple[list[Any], Callable[[ad.Dataset[Any]], ad.Dataset[Any]]]] = {
    "batch": (FLAT, lambda ds: ds.batch(3)),
    "batch in parallel": (FLAT, lambda ds: ds.batch(3, num_parallel_calls=2)),
    "padded_batch": (DEEP, lambda ds: ds.padded_batch(3)),
    "padded_batch to a shape": (FLAT, lambda ds: ds.padded_batch(3, {"a": ([3], [])})),
    "ragged_batch": (DEEP, lambda ds: ds.ragged_batch(3)),
    "rebatch": (ROWS, lambda ds: ds.rebatch(3)),
    "rebatch to sizes": (ROWS, lambda ds: ds.rebatch([3, 1])),
    "bucket_by_sequence_length": (
        FLAT,
        lambda ds: ds.bucket_by_sequence_length(always_one, [9], [3, 3], no_padding=True),
    ),
    "bucket_by_token_count": (DEEP, lambda ds: ds.bucket_by_token_count(9, always_one)),
    "group_by_window": (FLAT, lambda ds: ds.group_by_window(always_one, lambda key, window: window.batch(3), 3)),
}


def always_one(element: Any) -> int:
    return 1


@pytest.mark.parametrize("how", JOINED)
def test_the_message_says_which_leaf_which_element_and_both_shapes(how: str) -> None:
    items, join = JOINED[how]
    last = items[-1]["a"][0]
    shape, first = (last[0].shape, (3,)) if how.startswith("rebatch") else (last.shape, (3,))
    with pytest.raises(ad.StructureError) as caught:
        list(join(ad.Dataset.from_iterable(items)))
    for words in ("leaf ['a'][0] of element 2 of the batch", f"shape {shape}", f"{first}"):
        assert words in str(caught.value)
    assert "0" in caught.value.__notes__[0]


def test_the_note_says_where_the_batch_was() -> None:
    shapes = [(3,)] * 5 + [(4,)]
    with pytest.raises(ad.StructureError, match=r"the value of element 1 of the batch has shape \(4,\)") as caught:
        list(ad.Dataset.from_iterable([np.zeros(shape) for shape in shapes]).batch(2))
    assert caught.value.__notes__ == ["in batch(2), elements 4 to 5"]


@pytest.mark.parametrize(
    ("elements", "words"),
    [
        ([{"x": 1, "y": [1, 2]}, {"x": 1, "y": [1]}], ["leaf ['y']", "(2,)", "int32", "(1,)"]),
        ([{"x": 1, "y": [1, 2]}, {"x": 1}], ["['x']", "['y']"]),
        ([{"x": 1, "y": [1, 2]}, {"x": "a", "y": [1, 2]}], ["leaf ['x']", "int32", "'a'"]),
        ([{"x": 1, "y": [1, 2]}, {"x": 2**40, "y": [1, 2]}], ["leaf ['x']", "int32", str(2**40)]),
    ],
)
def test_a_declared_signature_is_checked_for_each_element(elements: list[Any], words: list[str]) -> None:
    signature = {"x": ad.TensorSpec((), np.int32), "y": ad.TensorSpec((2,), np.int32)}
    ds = ad.Dataset.from_generator(lambda: [*elements, elements[0]], output_signature=signature)
    read = iter(ds)
    assert next(read)["y"].dtype == np.int32
    with pytest.raises(ad.StructureError) as caught:
        next(read)
    assert [word for word in words if word not in str(caught.value)] == []
    assert next(read)["x"] == 1
