"""Rows of arrays stay in arrays through steps that only move them, and nobody can tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.elements.columns import ColumnBatch, divided
from asyncdata.engines.no_loop import driven
from asyncdata.executors.function_call import ChunkSizer
from asyncdata.executors.scope import LooplessScope
from asyncdata.options import Options
from asyncdata.planning.optimizer import Planner
from asyncdata.runtime.block import Block, Demand
from asyncdata.runtime.tickets import FRESH
from asyncdata.testing import check_resumes
from asyncdata.testing.checks import same
from asyncdata.transforms.concatenate import Concatenate
from asyncdata.transforms.shuffle_buffer import ColumnBuffer
from tests.marks import first_by_default

ROWS = 300
DS = ad.Dataset.from_tensor_slices


def joined(one: ad.Dataset[Any], other: ad.Dataset[Any]) -> ad.Dataset[Any]:
    """One after the other, also where `concatenate` would not have it, as elements of no known dtype may come."""
    return ad.Dataset(Concatenate.of(one.plan, [other.plan]))


SOURCES: dict[str, Callable[[], ad.Dataset[Any]]] = {
    "array": lambda: DS(np.arange(ROWS) * 0.5),
    "matrix": lambda: DS(np.arange(ROWS * 3, dtype=np.int8).reshape(ROWS, 3)),
    "dict": lambda: DS({"x": np.arange(ROWS), "y": (np.ones((ROWS, 2), np.float32), np.arange(ROWS) % 3 == 0)}),
    "range": lambda: ad.Dataset.range(ROWS),
    "wide": lambda: DS(np.arange(ROWS * 600).reshape(ROWS, 600)),
    "two kinds": lambda: joined(DS(np.arange(ROWS)), DS(np.arange(ROWS) * 0.5)),
    "two shapes": lambda: DS(np.ones((ROWS, 1))).concatenate(DS(np.ones((ROWS, 2)))),
    "two orders": lambda: DS({"x": np.arange(ROWS), "y": np.arange(ROWS)}).concatenate(
        DS({"y": np.arange(ROWS), "x": np.arange(ROWS)})
    ),
    "text after numbers": lambda: joined(DS(np.arange(ROWS)), DS(["a", "b"] * 50)),
    "unbatched": lambda: DS(np.arange(ROWS * 4).reshape(-1, 4)).unbatch(),
}
STEPS: dict[str, Callable[[ad.Dataset[Any]], ad.Dataset[Any]]] = {
    "shuffle": lambda ds: ds.shuffle(50, seed=1),
    "shuffle of everything": lambda ds: ds.shuffle(5000, seed=1),
    "repeat": lambda ds: ds.repeat(3),
    "shuffle, repeat": lambda ds: ds.shuffle(70, seed=2).repeat(2),
    "repeat, shuffle": lambda ds: ds.repeat(2).shuffle(70, seed=2),
    "shard": lambda ds: ds.shard(3, 1),
    "shard of what was shuffled": lambda ds: ds.shuffle(40, seed=3).shard(2, 0).shard(2, 1),
    "zip": lambda ds: ad.Dataset.zip((ds, ds.skip(5))),
    "zip of dicts": lambda ds: ad.Dataset.zip({"a": ds, "b": (ds.shuffle(9, seed=3), ds)}),
    "zip with a range": lambda ds: ad.Dataset.zip((ds, ad.Dataset.range(1000))),
    "take, skip": lambda ds: ds.skip(7).take(200),
}


def outcomes(ds: ad.Dataset[Any]) -> list[Any]:
    """Return elements, and errors as their words."""
    found: list[Any] = []
    elements = iter(ds)
    while True:
        try:
            found.append(next(elements))
        except StopIteration:
            return found
        except Exception as error:
            found.append(repr(error))


def listed(value: Any) -> Any:
    """Return an element with what tells two apart that are equal."""
    if isinstance(value, dict):
        return [(key, listed(part)) for key, part in value.items()]
    return tuple(map(listed, value)) if isinstance(value, tuple) else value


@pytest.mark.parametrize("size", first_by_default([7, None, 64]))
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("source", SOURCES)
def test_elements_and_batches_are_what_they_are_without_arrays(source: str, step: str, size: int | None) -> None:
    def build(ds: ad.Dataset[Any]) -> ad.Dataset[Any]:
        ds = STEPS[step](ds)
        return ds if size is None else ds.batch(size)

    one = outcomes(build(SOURCES[source]()))
    other = outcomes(build(SOURCES[source]().map(lambda *element: element[0] if len(element) == 1 else element)))
    assert len(one) == len(other)
    assert all(same(listed(a), listed(b)) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("step", STEPS)
def test_it_resumes_anywhere(step: str) -> None:
    check_resumes(lambda: STEPS[step](DS({"x": np.arange(100), "y": np.ones((100, 2))})).batch(8), places=8)


@pytest.mark.parametrize("step", ["shuffle", "repeat", "shuffle, repeat", "repeat, shuffle", "shard", "zip"])
def test_no_element_is_made_for_a_batch(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    elements, measured = ColumnBatch.elements, ChunkSizer.measured
    # groups that are small, as on a machine that is busy, are made of elements
    monkeypatch.setattr(ChunkSizer, "measured", lambda self, count, _: measured(self, count, 0.0))
    monkeypatch.setattr(ColumnBatch, "elements", lambda self: [made.append(len(self)), elements(self)][1])
    ds = STEPS[step](DS({"x": np.arange(6400), "y": np.ones((6400, 2))})).batch(64)
    assert sum(len(batch["x"] if isinstance(batch, dict) else batch[0]["x"]) for batch in ds) > 2000
    assert sum(made) < 200


def test_a_later_epoch_whose_first_rows_are_wanted_singly_stays_in_columns() -> None:
    plan = Planner(Options()).runs_by_hand(DS({"x": np.arange(640)}).shuffle(70, seed=2).repeat(2).plan)
    assert plan is not None
    want = Demand(64)
    source = plan.open(LooplessScope((0,)), want, FRESH)

    def read(count: int) -> Block:
        want.items = count
        block = driven(anext(source), lambda: None)
        assert 0 < len(block) <= count
        return block

    given = 0
    while given < 1000:
        given += len(read(1 if 500 < given < 800 else 64))  # the last rows of the first epoch, the first of the next
    assert read(64).columns
    driven(source.aclose(), lambda: None)


def test_batches_of_what_was_shuffled_are_the_consumers_own() -> None:
    array = np.arange(640)
    for batch in DS(array).shuffle(100, seed=1).batch(64):
        batch[:] = -1
    assert array.tolist() == list(range(640))
    assert sorted(int(x) for x in DS(array).shuffle(100, seed=1)) == list(range(640))


def test_a_shelf_uses_its_places_again() -> None:
    rows = ColumnBatch((np.arange(10), np.arange(20.0).reshape(10, 2)), 10)
    shelf = ColumnBuffer.like(rows)
    assert shelf is not None
    for _ in range(100):
        places = shelf.put([rows[:6], rows[6:]])
        assert places is not None
        taken = shelf.take(places[::-1])
        assert same(listed(tuple(taken.elements())), listed(tuple(rows.elements()[::-1])))
    assert len(shelf.leaves[0]) == 10


def test_a_shelf_tells_structures_apart() -> None:
    """A part of a tuple and of a dict may have the same name."""
    inputs = DS({"k": (np.arange(50.0),)}), DS({"k": {0: np.arange(50.0)}})
    ds = ad.Dataset.range(2).flat_map(inputs.__getitem__).shuffle(60, seed=1)
    kinds = [type(row["k"]) for row in ds]
    assert (kinds.count(tuple), kinds.count(dict)) == (50, 50)


@pytest.mark.parametrize(
    "columns", [ColumnBatch.ints(range(10)), ColumnBatch(np.zeros((2, 1000)), 2)], ids=["integers", "large rows"]
)
def test_elements_do_better(columns: ColumnBatch) -> None:
    assert ColumnBuffer.like(columns) is None


def test_rows_that_are_nobody_elses_are_handed_on_once() -> None:
    array = np.arange(8)
    columns = ColumnBatch(array, 8, owned=True)
    taken = [ColumnBatch.stacked([columns[start : start + 4]]) for start in (0, 0, 2, 4, 4)]
    assert [rows.tolist() for rows in taken] == [[0, 1, 2, 3], [0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7], [4, 5, 6, 7]]
    assert [np.shares_memory(rows, array) for rows in taken] == [True, False, False, True, False]


def test_rows_are_not_handed_on_once_there_are_elements_of_them() -> None:
    array = np.arange(8)
    columns = ColumnBatch(array, 8, owned=True)
    assert columns[4:].elements() == [4, 5, 6, 7]
    assert not np.shares_memory(ColumnBatch.stacked([columns[:4]]), array)


def test_a_part_that_is_used_up_is_no_longer_in_the_way() -> None:
    """Of columns that end with a batch the next ones are whole, and are handed on."""
    arrays = [np.arange(8), np.arange(8, 16), np.arange(16, 24)]
    parts = [*divided([ColumnBatch(array, 8, owned=True) for array in arrays], range(8, 25, 8))]
    assert [[len(columns) for columns in part] for part in parts] == [[8], [8], [8]]
    assert all(np.shares_memory(ColumnBatch.stacked(part), array) for part, array in zip(parts, arrays, strict=True))
