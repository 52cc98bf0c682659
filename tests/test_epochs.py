"""Which epoch a dataset begins at: what is made from another one in a loop reshuffles; parts of one do not mix."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad

Made = Callable[[ad.Dataset[int]], ad.Dataset[Any]]


def shuffled() -> ad.Dataset[int]:
    return ad.Dataset.range(20).shuffle(20, seed=3)


def flat(elements: list[Any]) -> list[int]:
    """Return the numbers in elements of any structure, in order."""
    found: list[int] = []
    for element in elements:
        if isinstance(element, (tuple, list)) or getattr(element, "shape", ()):
            found.extend(flat(list(element)))
        else:
            found.append(int(element))
    return found


MADE: dict[str, Made] = {
    "take": lambda ds: ds.take(3),
    "skip": lambda ds: ds.skip(17),
    "batch": lambda ds: ds.batch(4),
    "shard": lambda ds: ds.shard(2, 0),
    "map": lambda ds: ds.map(lambda x: x),
    "with_options": lambda ds: ds.with_options(ad.Options(placement="current")),
    "apply": lambda ds: ds.apply(lambda one: one.take(5)),
    "prefetch": lambda ds: ds.prefetch(2),
    "zip": lambda ds: ad.Dataset.zip(ds, ad.Dataset.range(20)),
    "zip of a dict": lambda ds: ad.Dataset.zip({"x": ds}).map(lambda e: e["x"]),
    "concatenate": lambda ds: ad.Dataset.range(0).concatenate(ds),
    "sample_from_datasets": lambda ds: ad.Dataset.sample_from_datasets([ds, ad.Dataset.range(0)], seed=1),
    "choose_from_datasets": lambda ds: ad.Dataset.choose_from_datasets([ds], ad.Dataset.range(1).repeat(20)),
    "choices": lambda ds: ad.Dataset.choose_from_datasets(
        [ad.Dataset.range(100 * i, 100 * i + 9) for i in range(20)], ds
    ),
    "steps": lambda ds: ds.filter(lambda x: x % 2 == 0).map(lambda x: x + 1).batch(2).prefetch(1),
    "pickled": lambda ds: pickle.loads(pickle.dumps(ds)),
    "copied": copy.copy,
}


@pytest.mark.parametrize("name", [name for name in MADE if name not in ("pickled", "copied")])
def test_made_in_a_loop_reshuffles_as_one_that_is_made_once(name: str) -> None:
    ds = shuffled()
    in_the_loop = [flat(list(MADE[name](ds))) for _ in range(3)]
    once = MADE[name](shuffled())
    assert in_the_loop == [flat(list(once)) for _ in range(3)]
    assert len({tuple(epoch) for epoch in in_the_loop}) == 3


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_begins_at_the_next_epoch(name: str) -> None:
    ds, same = shuffled(), shuffled()
    whole = MADE[name](shuffled())
    expected = [flat(list(whole)) for _ in range(3)][2]
    assert list(ds) == list(same)
    assert list(ds) == list(same)
    assert flat(list(MADE[name](ds))) == expected


def test_with_another_argument_in_each_turn() -> None:
    ds = shuffled()
    firsts = [next(iter(ds.take(n))) for n in range(1, 8)]
    whole = shuffled()
    assert firsts == [next(iter(whole)) for _ in range(7)]


def test_parts_made_side_by_side_have_nothing_in_common() -> None:
    ds = shuffled()
    training, validation = ds.take(15), ds.skip(15)
    for _ in range(3):
        assert sorted([*training, *validation]) == list(range(20))


def test_parts_that_go_on_being_made_into_others_have_nothing_in_common() -> None:
    ds = shuffled()
    training, validation = ds.take(15), ds.skip(15)
    orders = []
    for _ in range(3):
        orders.append(flat(list(training.batch(4))))
        assert sorted(orders[-1] + flat(list(validation.batch(2)))) == list(range(20))
    assert len({tuple(order) for order in orders}) == 3


def test_parts_made_in_the_loop_before_either_is_read() -> None:
    ds = shuffled()
    orders = []
    for _ in range(3):
        training, validation = ds.take(15), ds.skip(15)
        orders.append(list(training))
        assert sorted(orders[-1] + list(validation)) == list(range(20))
    assert len({tuple(order) for order in orders}) == 3


def test_without_reshuffling_each_epoch_is_the_same() -> None:
    ds = ad.Dataset.range(20).shuffle(20, seed=3, reshuffle_each_iteration=False)
    assert list(ds.take(5)) == list(ds.take(5)) == list(ds)[:5]


@pytest.mark.parametrize(
    "make",
    [
        lambda ds: ds.shuffle(20, seed=1),
        lambda ds: ds.shuffle(seed=1),
        lambda ds: ds.map(lambda x, rng: x + int(rng.integers(100)), rng=True, seed=1),
        lambda ds: ad.Dataset.sample_from_datasets([ds, ds], seed=1, rerandomize_each_iteration=True),
        lambda ds: ds.map(lambda x: x % 2).rejection_resample(lambda x: x, [0.5, 0.5], seed=1),
    ],
)
def test_a_seed_gives_the_same_whenever_it_is_used(make: Made) -> None:
    numbers = ad.Dataset.range(20).map(lambda x: x)
    first = [list(made) for made in [make(numbers)] * 2]
    list(numbers), list(numbers.batch(2))
    assert [list(made) for made in [make(numbers)] * 2] == first


def test_files_that_were_read_are_shuffled_as_files_that_were_not(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text("\n".join(f"{name}{i}" for i in range(9)))
    lines = ad.TextLineDataset([tmp_path / "a", tmp_path / "b"])
    first = list(lines.shuffle(18, seed=1))
    assert list(lines) != first
    assert list(lines.shuffle(18, seed=1)) == first


def test_what_shuffles_inside_a_users_function_reshuffles() -> None:
    ds = ad.Dataset.range(2).flat_map(lambda i: ad.Dataset.range(10 * i, 10 * i + 10).shuffle(10, seed=1))
    in_the_loop = [list(ds.take(15)) for _ in range(3)]
    whole = [list(one)[:15] for one in [ds.take(20)] * 3]
    assert len({tuple(epoch) for epoch in [*in_the_loop, *whole]}) == 6


def test_looking_changes_nothing() -> None:
    ds = shuffled()
    ds.head(3), ds.peek(), ds.element_spec, len(ds), ds.take(1).get_single_element(), ds.explain(), ds.fingerprint()
    assert list(ds) == list(shuffled())
    assert ds.head(20) == list(shuffled())
    later = ds.take(3)
    assert later.head(3) == list(later) != ds.head(3)
    assert later.head(3) != list(later)


def test_looking_where_a_loop_is_needed_changes_nothing() -> None:
    async def itself(x: int) -> int:
        return x

    ds = shuffled().map(itself)
    first = ds.head(20)
    assert first == list(ds) == ds.head(20)
    assert list(ds) != first


def test_windows_have_epochs_of_their_own() -> None:
    ds = shuffled()
    read = [[list(window) for window in ds.window(5)] for _ in range(2)]
    again = shuffled()
    assert [[x for window in windows for x in window] for windows in read] == [list(again), list(again)]


def test_groups_have_epochs_of_their_own() -> None:
    ds = shuffled()
    turns = [flat(list(ds.group_by_window(lambda _: 0, lambda _, group: group.batch(5), 5))) for _ in range(2)]
    again = shuffled()
    assert turns == [list(again), list(again)]


def test_a_resumed_loop_is_the_uninterrupted_one() -> None:
    ds = shuffled()
    epochs = [list(ds.take(6)) for _ in range(4)]
    ds = shuffled()
    assert list(ds.take(6)) == epochs[0]
    with ds.take(6).iterate() as elements:
        begun = [next(elements), next(elements)]
        state = elements.state_dict()
    for later in (shuffled(), ds):  # in a new process, and in this one, which has gone on meanwhile
        list(later), list(later)
        with later.take(6).iterate(state=state) as elements:
            assert begun + list(elements) == epochs[1]
        assert [list(later.take(6)) for _ in range(2)] == epochs[2:]


def test_epochs_of_a_resumed_part_leave_the_other_alone() -> None:
    ds = shuffled()
    training, validation = ds.take(15), ds.skip(15)
    list(training), list(validation)
    with training.iterate() as elements:
        next(elements)
        state = elements.state_dict()
    ds = shuffled()
    training, validation = ds.take(15), ds.skip(15)
    list(validation)
    with training.iterate(state=state) as elements:
        rest = list(elements)
    assert len(rest) == 14
    assert not set(rest) & set(validation)


@pytest.mark.parametrize("placement", ["current", "thread", "process"])
def test_in_each_placement(placement: str) -> None:
    ds = shuffled().with_options(ad.Options(placement=placement))
    whole = shuffled()
    assert [list(ds.take(20)) for _ in range(3)] == [list(whole) for _ in range(3)]


def test_shared_inputs_are_counted_once() -> None:
    ds = made = shuffled()
    for _ in range(3):
        made = ad.Dataset.zip(made, made).map(lambda one, _: one)
    for _ in range(50):
        made = made.prefetch(1)
    epochs = [list(one) for one in (made, ds, made, ds)]
    first, second, third = [list(one) for one in [shuffled()] * 3]
    assert epochs == [first, second, second, third]


def test_an_epoch_that_is_told_is_read_and_the_next_ones_follow() -> None:
    once = shuffled()
    epochs = [list(once) for _ in range(5)]
    ds = shuffled()
    assert [list(ds.iterate(epoch=3)), list(ds), list(ds.iterate(epoch=0)), list(ds)] == [
        epochs[3],
        epochs[4],
        epochs[0],
        epochs[1],
    ]
    ds.set_epoch(2)
    assert ds.iterate().epoch == 2
    assert list(ds) == epochs[3]


def test_an_epoch_that_is_set_is_that_of_what_the_dataset_was_made_from() -> None:
    ds = shuffled()
    batches = ds.batch(4)
    batches.set_epoch(2)
    assert flat(list(batches)) == list(shuffled().iterate(epoch=2))
    assert list(ds) == list(shuffled().iterate(epoch=3))


def test_no_epoch_comes_before_the_first_and_a_state_has_its_own() -> None:
    ds = shuffled()
    state = ds.iterate().state_dict()
    for wrong in (-1, 1.5):
        with pytest.raises(ad.PlanError, match=r"set_epoch\(epoch=\)"):
            ds.set_epoch(wrong)  # type: ignore[arg-type]
        with pytest.raises(ad.PlanError, match=r"iterate\(epoch=\)"):
            ds.iterate(epoch=wrong)  # type: ignore[arg-type]
    with pytest.raises(ad.PlanError, match="a state has its epoch"):
        ds.iterate(state=state, epoch=1)


def test_after_an_iterator_has_loaded_a_state_the_epoch_after_that_one_follows() -> None:
    once = shuffled()
    epochs = [list(once) for _ in range(3)]
    with once.iterate(epoch=1) as elements:
        first = [next(elements) for _ in range(5)]
        state = elements.state_dict()
    ds = shuffled()
    elements = iter(ds)
    elements.load_state_dict(state)
    assert first + list(elements) == epochs[1]
    assert list(ds) == epochs[2]
