"""Arrays that functions make where their results travel."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.elements.structure import leaves_of
from asyncdata.executors.process import shm_arena
from asyncdata.executors.process.shm_arena import Message, SlotReader, SlotReference, Slots, SlotWriter, pack
from asyncdata.memory.output_buffers import giving
from tests.executors.process.test_map import processes

LARGE = 200_000


def filled(number: int) -> Any:
    array = ad.empty(LARGE, np.int32)
    array[:] = number
    return array


def alone(ds: ad.Dataset, fn: Callable[[int], Any]) -> ad.Dataset:
    """One worker, which sees all elements."""
    return ds.map(fn, 1, executor="process")


def test_results_arrive_whole_in_order_and_writable() -> None:
    for number, array in enumerate(processes(ad.Dataset.range(200), filled)):
        assert array.shape == (LARGE,)
        assert array.dtype == np.int32
        assert (array == number).all()
        array[:] = -1


def test_results_that_a_consumer_keeps_are_never_overwritten() -> None:
    arrays = list(processes(ad.Dataset.range(150), filled))
    assert [(int(array[0]), int(array[-1])) for array in arrays] == [(number, number) for number in range(150)]


def test_shuffled_and_cached_results_are_whole() -> None:
    ds = processes(ad.Dataset.range(100), filled).cache().shuffle(50, seed=1)
    for _ in range(2):
        assert sorted(int(array[0]) for array in ds if array[0] == array[-1]) == list(range(100))


def test_structures_and_parts_of_arrays_arrive() -> None:
    def several(number: int) -> Any:
        first, second = ad.empty((2, LARGE), np.uint8), ad.empty((LARGE, 3), np.float32)
        first[:], second[:] = number, number / 2
        return {"part": first[1], "turned": second.T, "text": str(number), "plain": np.full(LARGE, number)}

    for number, found in enumerate(processes(ad.Dataset.range(40), several)):
        assert found["text"] == str(number)
        assert found["turned"].shape == (3, LARGE)
        assert all((found[name] == value).all() for name, value in [("part", number), ("turned", number / 2)])
        assert (found["plain"] == number).all()


def test_what_a_function_keeps_stays_its_own() -> None:
    kept: list[Any] = []

    def keep(number: int) -> Any:
        array = filled(number)
        before = [int(old[0]) for old in kept if old[0] == old[-1]]
        kept.append(array)
        return array, np.array(before)

    ds = alone(ad.Dataset.range(30), keep)
    found = list(ds)
    for number, (array, before) in enumerate(found):
        array[:] = -1
        assert before.tolist() == list(range(number))
        assert all((other == place).all() for place, (other, _) in enumerate(found) if place > number)


def test_one_buffer_for_all_results_overwrites_none_that_has_arrived() -> None:
    buffers: list[Any] = []

    def reuse(number: int) -> Any:
        if not buffers:
            buffers.append(ad.empty(LARGE, np.int32))
        buffers[0][:] = number
        return buffers[0].copy() if number % 3 == 2 else buffers[0][number % 2 :]

    with alone(ad.Dataset.range(30), reuse).iterate() as arrays:
        first = next(arrays)
        assert int(first[0]) == 0
        rest = list(arrays)
    assert (first == 0).all()
    assert [len({*array.tolist()}) for array in rest] == [1] * 29


def test_results_that_share_memory_arrive_apart() -> None:
    def twice(number: int) -> Any:
        array = filled(number)
        return array, array[10:], array[:-10]

    for one, two, three in processes(ad.Dataset.range(20), twice):
        one[:] = -1
        two[:] = -2
        assert {*one.tolist(), *two.tolist()} == {-1, -2}
        assert -1 not in three
        assert -2 not in three


def test_what_fails_takes_no_result_with_it_and_keeps_no_memory() -> None:
    def odd(number: int) -> Any:
        array = filled(number)
        if number % 3 == 0:
            raise ValueError(f"number {number}, of {array.nbytes} bytes")
        return array, len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    found = list(alone(ad.Dataset.range(300), odd).map(first_and_count).ignore_errors())
    assert [number for number, _ in found] == [number for number in range(300) if number % 3]
    assert max(count for _, count in found) < 60, "a descriptor for each slot"


def first_and_count(array: Any, count: int) -> tuple[int, int]:
    return int(array[-1]), count


def test_other_threads_of_a_function_get_memory_of_their_own() -> None:
    def threaded(number: int) -> Any:
        made: list[Any] = []
        thread = threading.Thread(target=lambda: made.append(filled(number)))
        thread.start()
        mine = filled(-number)
        thread.join()
        return mine, made[0]

    for number, (mine, others) in enumerate(processes(ad.Dataset.range(20), threaded)):
        assert (mine == -number).all()
        assert (others == number).all()


@pytest.mark.parametrize("options", [{}, {"num_parallel_calls": 2}, {"executor": "process", "num_parallel_calls": 1}])
def test_rows_of_batches_are_as_without(options: dict[str, Any]) -> None:
    for number, batch in enumerate(ad.Dataset.range(64).map(filled, **options).batch(4)):
        assert batch.shape == (4, LARGE)
        assert (batch == np.arange(4 * number, 4 * number + 4)[:, None]).all()


# rows of batches

SIDE = 160
HALVES: list[Any] = []


def picture(number: int, shape: Any = (SIDE, SIDE, 3)) -> Any:
    array = ad.empty(shape, np.uint8)
    array[:] = number
    return array


def with_label(number: int) -> Any:
    return picture(number), number


def several_arrays(number: int) -> Any:
    return {"mask": picture(number + 1, (SIDE, SIDE, 4)), "image": picture(number), "plain": np.full(9, number)}


def two_alike_turned_round(number: int) -> Any:
    first, second = picture(number), picture(number + 1)
    return second, first


def not_what_was_filled(number: int) -> Any:
    scratch = picture(number)
    return scratch + 1, scratch[0]


def parts_of_what_was_filled(number: int) -> Any:
    scratch = picture(number)
    scratch[::2] = number + 1
    return scratch[::-1], scratch[:2]


def turned_round(number: int) -> Any:
    array = picture(number)
    array[0] = number + 1
    return array[::-1]


def filled_in_two_steps(number: int) -> Any:
    first = picture(number)
    second = picture(number + 1)
    return second if number % 2 else first


def failing(number: int) -> Any:
    array = picture(number)
    if number % 7 == 5:
        raise ValueError(number)
    return array


def of_several_shapes(number: int) -> Any:
    return picture(number)[: SIDE - (number % 7 == 5)]


def from_a_dataset(number: int) -> Any:
    if not HALVES:
        HALVES.append(ad.Dataset.range(256).map(picture).cache())
    return HALVES[0][number]


FUNCTIONS = [
    *(picture, with_label, several_arrays, two_alike_turned_round, not_what_was_filled, parts_of_what_was_filled),
    *(turned_round, filled_in_two_steps, failing, of_several_shapes, from_a_dataset),
]


def seen(ds: ad.Dataset) -> list[Any]:
    """What each batch is, or the kind of error in its place; batches are written over when they have been looked at."""
    found: list[Any] = []
    with ds.iterate() as batches:
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return found
            except Exception as error:
                found.append(type(error))
                continue
            leaves = leaves_of(batch)
            found.append([(leaf.dtype, leaf.shape, leaf.tobytes()) for leaf in leaves])
            for leaf in leaves:
                leaf[:] = 99


@pytest.mark.parametrize("how", [{}, {"executor": "process"}], ids=["threads", "processes"])
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_batches_are_the_same_wherever_their_rows_are_made(fn: Callable[[int], Any], how: dict[str, Any]) -> None:
    wanted = seen(ad.Dataset.range(96).map(fn).batch(8))
    ds = ad.Dataset.range(96).map(fn, 2, **how).batch(8)
    for _ in range(3):
        assert seen(ds) == wanted


def test_rows_are_made_in_their_batches() -> None:
    made: list[int] = []

    def noted(number: int) -> Any:
        array = picture(number)
        made.append(address(array))
        return array, number

    ds = ad.Dataset.range(96).map(noted, 1).batch(8)
    for epoch in range(2):
        made.clear()
        places = [[address(row) for row in pictures] for pictures, _ in ds]
        if epoch:
            assert [place for batch in places for place in batch[1:]] == [
                place for number, place in enumerate(made) if number % 8
            ]


def address(array: Any) -> int:
    return array.__array_interface__["data"][0]


def test_rows_that_a_function_keeps_stay_its_own_in_a_worker_process() -> None:
    kept: list[Any] = []

    def keep(number: int) -> Any:
        array = picture(number)
        kept.append(array)
        return array, [int(old[0, 0, 0]) for old in kept] == [*range(len(kept))]

    ds = alone(ad.Dataset.range(64), keep).batch(8)
    for pictures, unchanged in ds:
        assert unchanged.all()
        pictures[:] = 255


# one side


def sent(draft: SlotWriter, slots: Slots, number: int) -> Message:
    """What a worker sends."""
    with giving(draft.allocate):
        return pack(filled(number), slots, writer=draft)


def test_nothing_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shm_arena, "copy", lambda *_: pytest.fail("copied"))
    slots, attached = Slots(1 << 30), SlotReader()
    for number in range(5):
        draft = SlotWriter(slots)
        parcel = draft.settled(sent(draft, slots, number))
        array = attached.open(parcel)
        assert (array == number).all()
        del array
        gc.collect()
    assert len(slots.slots) == 1, "the slot is used again"
    slots.close()


def test_a_slot_is_not_used_again_while_its_maker_looks_into_it() -> None:
    slots, attached = Slots(1 << 30), SlotReader()
    draft = SlotWriter(slots)
    with giving(draft.allocate):
        kept = filled(1)
    parcel = draft.settled(pack(kept, slots, writer=draft))
    assert isinstance(parcel, SlotReference)
    assert parcel.number == slots.slots[1].number, "it was copied into another one"
    kept[:] = 2
    attached.discard(pack(np.full(LARGE, 3, np.int32), slots))
    assert (kept == 2).all()
    assert (attached.open(parcel) == 1).all()
    assert slots.slots[0].taken
    del kept
    assert not slots.slots[0].taken
    slots.close()


def test_what_no_array_can_be_made_of_is_refused_as_numpy_does() -> None:
    draft = SlotWriter(slots := Slots(1 << 30))
    for source in (draft.allocate, np.empty):
        with giving(source):
            with pytest.raises(ValueError, match="negative"):
                ad.empty((1000, -1000))
            with pytest.raises(ValueError, match="negative"):
                ad.empty((-1000, -1000))
            with pytest.raises(TypeError):
                ad.empty(2.5)  # type: ignore[arg-type]
            with pytest.raises(TypeError):
                ad.empty(3, "no dtype")
            assert ad.empty((LARGE,), object)[0] is None
            assert ad.empty((), np.int8).shape == ()
            assert ad.empty((LARGE, 0)).shape == (LARGE, 0)
            assert ad.empty(np.int64(LARGE), "M8[s]").dtype == np.dtype("M8[s]")
    draft.drop()
    slots.close()


def test_elsewhere_it_is_an_array_like_others() -> None:
    assert ad.empty(3).dtype == np.float64
    with pytest.raises(ValueError, match="negative"):
        ad.empty((-3000, -3000))
    large = ad.empty((1000, 1000))
    large[:] = 1
    assert large.flags.c_contiguous
    assert large.flags.writeable
