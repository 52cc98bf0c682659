from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.elements.structure import spec_of
from asyncdata.errors import PlanError
from asyncdata.testing import check_resumes, check_transform
from tests import reference
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import results

BATCHES = [np.arange(4), np.arange(4, 5), np.arange(0), np.arange(5, 16)]


def lengths(ds: ad.Dataset) -> list[int]:
    return [len(batch) for batch in ds]


def fail_at_2(x: int) -> int:
    if x == 2:
        raise Boom(x)
    return x


@pytest.mark.parametrize("sizes", first_by_default([3, [1, 2, 4], 100, 1, [2], [3, 1], [5, 5]], 3))
@pytest.mark.parametrize("drop", [False, True])
def test_keeps_its_contract(sizes: Any, drop: bool) -> None:
    check_transform(
        lambda ds: ds.rebatch(sizes, drop),
        lambda items: reference.rebatch(items, sizes, drop),
        [(), (np.arange(1),), BATCHES],
    )


@pytest.mark.parametrize("sizes", [3, [3, 1], [1, 2, 4], [50, 2]])
@pytest.mark.parametrize("seed", [None, 1])
def test_goes_on_from_any_place(sizes: Any, seed: int | None) -> None:
    def pipeline() -> ad.Dataset:
        rows = ad.Dataset.range(60).map(lambda x: x)
        return (rows if seed is None else rows.shuffle(9, seed)).batch(7).rebatch(sizes)

    check_resumes(pipeline)
    check_resumes(lambda: pipeline().shuffle(4, seed=2))


def test_goes_on_behind_elements_that_failed() -> None:
    check_resumes(lambda: ad.Dataset.from_iterable([np.arange(5), 1, np.arange(4), None, np.arange(3)]).rebatch([2, 3]))


def test_sizes_take_turns() -> None:
    batches = ad.Dataset.range(20).batch(4)
    assert lengths(batches.rebatch([1, 2, 3])) == [1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 1]
    assert lengths(batches.rebatch((1, 2, 3), drop_remainder=True)) == [1, 2, 3, 1, 2, 3, 1, 2, 3, 1]
    assert lengths(batches.rebatch(range(15, 9, -5))) == [15, 5]


def test_structures_are_cut_as_a_whole() -> None:
    rows = ad.Dataset.range(5).map(lambda x: {"a": x, "b": (f"{x}", np.full(2, x))})
    first, last = rows.batch(2).rebatch(3)
    assert first["a"].tolist() == [0, 1, 2]
    assert last["b"][0].tolist() == ["3", "4"]
    assert last["b"][1].tolist() == [[3, 3], [4, 4]]


@pytest.mark.parametrize(
    ("sizes", "drop", "count"), [(3, False, 4), (3, True, 3), ([1, 4], False, 4), ([1, 4], True, 4)]
)
def test_the_length_is_known_where_rows_are_counted(sizes: Any, drop: bool, count: int) -> None:
    ds = ad.Dataset.range(11).batch(5, drop_remainder=True).rebatch(sizes, drop)
    assert len(ds) == len(list(ds))
    ds = ad.Dataset.from_tensors(np.arange(10)).rebatch(sizes, drop)
    assert len(ds) == len(list(ds)) == count


@pytest.mark.parametrize("sizes", [list(range(1, 4)), [2, 5], [7, 1]])
@pytest.mark.parametrize("drop", [False, True])
def test_the_length_of_a_cycle_is_the_number_of_batches(sizes: list[int], drop: bool) -> None:
    for rows in range(25):
        ds = ad.Dataset.from_tensors(np.arange(rows)).rebatch(sizes, drop)
        assert len(ds) == len(list(ds))


def test_an_endless_input_gives_batches_without_end() -> None:
    assert lengths(ad.Dataset.counter().batch(3).rebatch([1, 5]).take(4)) == [1, 5, 1, 5]


@pytest.mark.parametrize("sizes", [2, [2, 3]])
def test_an_element_without_rows_fails_in_its_place_and_moves_no_size_on(sizes: Any) -> None:
    found = results(ad.Dataset.from_iterable([np.arange(5), "x", np.arange(5)]).rebatch(sizes))
    assert [x if isinstance(x, Failed) else len(x) for x in found] == (
        [2, 2, Failed("StructureError"), 2, 2, 2] if sizes == 2 else [2, 3, Failed("StructureError"), 2, 3]
    )


def test_an_error_before_it_passes() -> None:
    ds = ad.Dataset.range(5).map(fail_at_2).batch(2).rebatch([3, 1])
    assert [x if isinstance(x, Failed) else x.tolist() for x in results(ds)] == [Failed("Boom(2)"), [0, 1, 3], [4]]


def test_rows_that_do_not_fit_are_an_error_that_names_the_step() -> None:
    ds = ad.Dataset.from_iterable([np.zeros((2, 1)), np.zeros((2, 3)), np.zeros((3, 3))]).rebatch([3, 2])
    with ds.iterate() as batches:
        with pytest.raises(ad.StructureError) as error:
            next(batches)
        assert "rebatch([3, 2])" in error.value.__notes__[0]
        assert next(batches).shape == (2, 3)


@pytest.mark.parametrize("sizes", [0, -1, 1.5, None, "2", [], [1, 0], [2, "x"]])
def test_wrong_sizes_are_refused(sizes: Any) -> None:
    with pytest.raises(PlanError, match=r"rebatch\(batch_size=\)"):
        ad.Dataset.range(3).batch(2).rebatch(sizes)


ODD_BATCHES: dict[str, list[Any]] = {
    "dtypes that differ": [np.arange(3, dtype=np.int32), np.arange(3, dtype=np.int64), np.arange(2.0)],
    "big-endian": [np.arange(3, dtype=">i4"), np.arange(4, dtype=">i4")],
    "objects that are numbers": [np.array([1, 2, 3], object), np.array([4, 5], object)],
    "strings": [np.array(["a", "bc"]), np.array(["d\0", "e"])],
    "dates": [np.array(["2020-01-01", "2020-01-02"], "M8[D]")] * 2,
    "flags and complex numbers": [(np.array([True, False]), np.array([1j, 2])), (np.array([True]), np.array([3j]))],
    "keys in another order": [{"a": np.arange(2), "b": np.ones(2)}, {"b": np.ones(3), "a": np.arange(3)}],
    "images": [np.arange(24.0).reshape(2, 3, 4), np.arange(36.0).reshape(3, 3, 4), np.zeros((0, 3, 4))],
    "masked": [np.ma.MaskedArray([1, 2, 3], [0, 1, 0])],
}


def leaves(batch: Any) -> list[Any]:
    return list(batch.values() if isinstance(batch, dict) else batch if isinstance(batch, tuple) else [batch])


@pytest.mark.parametrize("sizes", [1, 2, [1, 3]])
@pytest.mark.parametrize("batches", ODD_BATCHES.values(), ids=ODD_BATCHES)
def test_rows_become_what_single_rows_become(batches: list[Any], sizes: Any) -> None:
    ds = ad.Dataset.from_iterable(batches)
    rows = list(ds.unbatch())
    for batch in ds.rebatch(sizes):
        size = len(leaves(batch)[0])
        (expected,) = ad.Dataset.from_iterable(rows[:size]).batch(size)
        assert spec_of(batch) == spec_of(expected)
        assert repr(batch) == repr(expected)
        del rows[:size]
    assert not rows


def test_rows_of_other_shapes_are_the_error_of_their_batch() -> None:
    ds = ad.Dataset.from_iterable([np.zeros((2, 3)), np.zeros((2, 4)), np.zeros((2, 4))]).rebatch(3)
    first, second = results(ds)
    assert isinstance(first, Failed)
    assert second.shape == (3, 4)


def test_a_batch_shares_no_memory_with_what_it_was_cut_from() -> None:
    source = np.zeros(4)
    (batch,) = ad.Dataset.from_iterable([source]).rebatch(4)
    batch += 1
    assert not source.any()


ROWS = np.arange(960.0).reshape(240, 4)
NUMBERS = ad.Dataset.range(5)


def made(number: int) -> Any:
    return ROWS[number * 48 : number * 48 + 48].copy()


class Keeping:
    """Gives the arrays that it made once, again and again."""

    def __init__(self) -> None:
        self.arrays = [made(number) for number in range(5)]

    def __call__(self, number: int) -> Any:
        return self.arrays[number]

    def view(self, number: int) -> Any:
        return self.arrays[number][:]

    def parts(self, number: int) -> Any:
        return {"x": self.arrays[number], "y": made(number)}


KEEPING = Keeping()


async def made_later(number: int) -> Any:
    return made(number)


PARTS = {
    "arrays that a function makes": lambda: NUMBERS.map(made),
    "arrays that threads make": lambda: NUMBERS.map(made, num_parallel_calls=2),
    "arrays that a coroutine makes": lambda: NUMBERS.map(made_later),
    "arrays that a function makes, in a buffer": lambda: NUMBERS.map(made).prefetch(2),
    "arrays that a function makes, in parts": lambda: NUMBERS.map(
        lambda number: {"x": made(number), "y": made(number)}
    ),
    "arrays that two functions give": lambda: NUMBERS.map(made).map(lambda array: array),
    "arrays that a function keeps": lambda: NUMBERS.map(KEEPING),
    "views of what a function keeps": lambda: NUMBERS.map(KEEPING.view),
    "arrays of which a function keeps some": lambda: NUMBERS.map(KEEPING.parts),
    "arrays that are kept": lambda: NUMBERS.map(made).cache(),
    "batches": lambda: ad.Dataset.from_tensor_slices(ROWS).batch(48),
    "batches in a dict": lambda: ad.Dataset.from_tensor_slices({"x": ROWS, "y": np.arange(240)}).batch(48),
    "batches of elements": lambda: ad.Dataset.from_iterable([*ROWS]).batch(48),
    "batches of batches": lambda: ad.Dataset.from_tensor_slices(ROWS).batch(120).rebatch(48),
    "padded batches": lambda: ad.Dataset.from_iterable([*ROWS]).padded_batch(48),
    "batches of one array": lambda: ad.Dataset.from_tensors(ROWS[0]).repeat(240).batch(48),
    "batches again and again": lambda: ad.Dataset.from_tensor_slices(ROWS[:120]).batch(48).repeat(2),
    "batches that were kept": lambda: KEPT.repeat(2),
    "an array again and again": lambda: ad.Dataset.from_tensors(ROWS[:48]).repeat(5),
    "an array that a function gives": lambda: ad.Dataset.range(5).map(lambda _: ROWS[:48]),
}
KEPT = ad.Dataset.from_tensor_slices(ROWS[:120]).batch(48).cache()
BEHIND = {
    "nothing": lambda ds: ds,
    "shuffle": lambda ds: ds.shuffle(3, seed=1),
    "rebatch": lambda ds: ds.rebatch(16),
    "window": lambda ds: ds.window(3, shift=1).flat_map(lambda window: ad.Dataset.zip(window).rebatch(12)),
}


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("sizes", first_by_default([24, 50, [7, 24, 17], 1, 48, 100, [30, 18]]))
@pytest.mark.parametrize("source", PARTS)
def test_to_write_into_a_batch_changes_no_other_and_no_source(source: str, sizes: Any, behind: str) -> None:
    def pipeline() -> ad.Dataset:
        return BEHIND[behind](PARTS[source]().rebatch(sizes))

    wanted = [[leaf.copy() for leaf in leaves(batch)] for batch in pipeline()]
    found: list[Any] = []
    for place, batch in enumerate(pipeline()):
        for leaf, before in zip(leaves(batch), wanted[place], strict=True):
            np.testing.assert_array_equal(leaf, before)
            leaf[:] = -1 - place
        found.append(batch)
    for place, batch in enumerate(found):
        assert all((leaf == -1 - place).all() for leaf in leaves(batch))
    assert (np.arange(960.0).reshape(240, 4) == ROWS).all()
    assert all((array == made(number)).all() for number, array in enumerate(KEEPING.arrays))


def test_parts_of_a_batch_are_not_copied_unless_they_are_small() -> None:
    batches = ad.Dataset.range(400).map(lambda number: np.full(250, number)).batch(80)

    def shared(ds: ad.Dataset) -> int:
        bases = [batch.base for batch in ds]
        return sum(base is not None for base in bases)

    assert shared(batches.rebatch(40)) == 10
    assert shared(batches.rebatch(10)) == 40
    assert shared(batches.rebatch(50)) == 4  # the others are of two batches each
    assert shared(batches.rebatch(8)) == 0
    assert shared(batches.map(lambda batch: batch).rebatch(40)) == 0
    assert shared(batches.unbatch().batch(40)) == 0


def test_parts_that_are_held_for_long_are_copied() -> None:
    batches = ad.Dataset.range(400).map(lambda number: np.full(250, number)).batch(80).rebatch(40)
    for ds in (batches.shuffle(8, seed=1), batches.cache()):
        assert all((batch if batch.base is None else batch.base).nbytes == batch.nbytes for batch in ds)


def test_what_has_no_rows_is_said_to_be_in_rebatch() -> None:
    for ds in (ad.Dataset.from_iterable([np.zeros(2), 1]).rebatch(2), ad.Dataset.from_iterable([1]).rebatch([2, 1])):
        with pytest.raises(ad.StructureError) as caught:
            list(ds)
        assert caught.value.__notes__[0].startswith("in rebatch(), element ")
