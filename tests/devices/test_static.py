"""What CUDA graphs need: memory that stays where it is, and nothing asked of the device while a graph is captured."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest

import asyncdata as ad
import asyncdata.testing
from asyncdata.devices.simulated import Accelerator

ROWS = ad.Dataset.range(20).map(lambda x: {"x": np.full(4, x, np.float32), "name": f"{x}"})


def own(accelerator: Accelerator, rows: int) -> dict[str, Any]:
    return {"x": accelerator.empty((rows, 4), np.dtype(np.float32), accelerator.default)}


def test_each_batch_is_copied_to_the_callers_arrays() -> None:
    accelerator = Accelerator()
    static = own(accelerator, 4)
    found: list[Any] = []
    for batch in ROWS.batch(4).prefetch_to_device(accelerator, static=static):
        assert batch["x"] is static["x"]
        found.append((batch["x"].numpy()[0, 0], batch["name"][0]))
    assert found == [(0, "0"), (4, "4"), (8, "8"), (12, "12"), (16, "16")]
    assert accelerator.races == []


def test_a_batch_of_another_shape_fails_in_its_place() -> None:
    accelerator = Accelerator()
    ds = ROWS.batch(8).prefetch_to_device(accelerator, static=own(accelerator, 8))
    with ds.iterate() as batches:
        assert [next(batches)["x"].numpy()[0, 0] for _ in range(2)] == [0, 8]
        with pytest.raises(ad.StructureError, match=r"leaf \['x'\] is float32 of shape \(4, 4\).*drop_remainder=True"):
            next(batches)
        with pytest.raises(StopIteration):
            next(batches)
        assert batches.stats().steps[-1].failed == 1


def test_a_leaf_that_is_not_among_them_is_told() -> None:
    accelerator = Accelerator()
    ds = ROWS.batch(4).prefetch_to_device(accelerator, static={"y": own(accelerator, 4)["x"]})
    with pytest.raises(ad.StructureError, match=r"no array for leaf \['x'\]"):
        next(iter(ds))


@pytest.mark.parametrize("placement", ["thread", "current"])
def test_while_it_is_paused_no_other_thread_uses_the_device(placement: Any) -> None:
    accelerator = Accelerator()
    ds = ROWS.batch(4).repeat().prefetch_to_device(accelerator).with_options(ad.Options(placement=placement))
    with ds.iterate() as batches:
        next(batches)
        for _ in range(3):
            with batches.paused(), mock.patch.object(accelerator, "submit") as submit:
                with pytest.raises(ad.StageError, match="within paused"):
                    next(batches)
                with pytest.raises(ad.StageError, match="entered already"), batches.paused():
                    pass
                submit.assert_not_called()
            next(batches)


def test_pausing_what_has_ended_or_has_no_device_does_nothing() -> None:
    with ROWS.prefetch_to_device(Accelerator()).iterate() as rows:
        with rows.paused():
            pass
        assert len(list(rows)) == 20
        with rows.paused():
            pass
    with rows.paused():
        pass
    with ROWS.iterate() as rows, rows.paused():
        assert next(rows)["name"] == "0"


def test_closing_while_paused_ends_all() -> None:
    ds = ROWS.repeat().prefetch_to_device(Accelerator())
    with ad.testing.leaves_nothing(), ds.iterate() as rows:
        next(rows)
        with rows.paused():
            rows.close()
        with pytest.raises(ad.ClosedError):
            next(rows)
