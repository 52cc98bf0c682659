"""Small arrays of an element travel as one, by a layout that is remembered; each is what it was."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.devices import staging
from asyncdata.devices.packed_layout import PIECE, SMALL, PackedLayout
from asyncdata.devices.simulated import Accelerator

DTYPES = ("?", "u1", "i2", "<i4", ">i4", ">f8", "f2", "c8", "c16", "g")
SHAPES = ((), (0,), (3, 0, 2), (1,), (5,), (2, 3, 4), (257,))


class Pair(NamedTuple):
    one: Any
    other: Any


def sample(number: int, rows: int = 3) -> dict[str, Any]:
    """Return arrays of all dtypes and shapes, small and large, in a nested structure."""
    arrays = {
        f"{dtype}{shape}": (np.arange(np.prod(shape, dtype=int)) % 7 + number).astype(dtype).reshape(shape)
        for dtype in DTYPES
        for shape in SHAPES
    }
    grid = np.arange(60).reshape(rows, -1) + number
    return {
        "large": np.full(SMALL + 1, number, np.uint8),
        "nested": (Pair(grid.T, grid[:, ::2]), {"columns": np.asfortranarray(grid), "backwards": grid[::-1]}),
        "text": f"{number}",
        "number": np.float32(number),
        "border": np.full(SMALL, number, np.uint8),
        **arrays,
        "last": np.full(SMALL, number, np.int32),
    }


def assert_same(found: Any, want: Any) -> None:
    if isinstance(want, dict):
        assert list(found) == list(want)
        found, want = tuple(found.values()), tuple(want.values())
    if isinstance(want, tuple):
        assert len(found) == len(want)
        for one, other in zip(found, want, strict=True):
            assert_same(one, other)
    elif isinstance(want, str):
        assert found == want
    else:
        array = found.numpy()
        assert (array.dtype, array.shape) == (want.dtype.newbyteorder("="), want.shape)
        np.testing.assert_array_equal(array, want)


@pytest.mark.parametrize("mode", ["fresh", "ring"])
def test_arrays_of_every_kind_are_what_they_were(mode: Any) -> None:
    accelerator = Accelerator()
    for number, element in enumerate(ad.Dataset.range(4).map(sample).prefetch_to_device(accelerator, mode=mode)):
        assert type(element["nested"][0]) is Pair
        assert_same(element, sample(number))
    assert accelerator.races == []


def test_layouts_that_change_from_batch_to_batch() -> None:
    rows = [3, 3, 5, 2, 3, 3, 60]
    accelerator = Accelerator()
    ds = ad.Dataset.from_list(list(enumerate(rows))).map(lambda number, count: sample(number, count))
    for number, element in enumerate(ds.prefetch_to_device(accelerator)):
        assert_same(element, sample(number, rows[number]))
    dtypes = ["f4", "i4", ">i4", "f4", "f8"]
    ds = ad.Dataset.from_list(dtypes).map(lambda dtype: (np.arange(5).astype(dtype), np.arange(3)))
    for dtype, (array, _) in zip(dtypes, ds.prefetch_to_device(accelerator), strict=True):
        assert_same(array, np.arange(5).astype(dtype))
    last = ad.Dataset.range(10).map(lambda x: {"x": x, "y": (x, 2 * x)}).batch(4).prefetch_to_device(accelerator)
    assert [batch["y"][1].numpy().tolist() for batch in last] == [[0, 2, 4, 6], [8, 10, 12, 14], [16, 18]]


def test_a_layout_is_computed_once_for_batches_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []

    class Counted(PackedLayout):
        def __init__(self, arrays: Any) -> None:
            computed.append(len(arrays))
            super().__init__(arrays)

    monkeypatch.setattr(staging, "PackedLayout", Counted)
    ds = ad.Dataset.range(22).map(lambda x: (x, np.full(3, x))).batch(4)
    assert len(list(ds.prefetch_to_device(Accelerator()))) == 6
    assert computed == [0, 2, 2]  # one before the first batch, one for the last batch, which is shorter


def test_elements_that_are_kept_do_not_change() -> None:
    accelerator = Accelerator()
    kept = list(ad.Dataset.range(12).map(sample).prefetch_to_device(accelerator))
    for number, element in enumerate(kept):
        assert_same(element, sample(number))
    assert accelerator.races == []


def test_many_arrays_are_joined_in_pieces() -> None:
    arrays = [np.full(1000 + 100 * number, number, np.int32) for number in range(100)]
    layout = PackedLayout(arrays)
    assert len(layout.cuts) > 2
    packed = np.empty(layout.size, np.uint8)
    layout.pack(arrays, packed)
    for array, part in zip(arrays, layout.parts, strict=True):
        assert part.start % 256 == 0
        found = packed[part.start : part.start + array.nbytes].view(part.dtype)
        np.testing.assert_array_equal(found, array)
    sizes = [
        layout.parts[end - 1].start - layout.parts[begin].start for begin, end in zip(layout.cuts, layout.cuts[1:])
    ]
    assert max(sizes) < PIECE + SMALL
