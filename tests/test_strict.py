"""A state of a similar pipeline: refused, or with `strict=False` used as far as the names of steps are the same."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata import ResumeError
from tests.marks import first_by_default

Build = Callable[[ad.Dataset[int]], ad.Dataset[Any]]


def double(x: int) -> int:
    return 2 * x


def triple(x: int) -> int:
    return 3 * x


def taken(ds: ad.Dataset[Any], count: int) -> tuple[list[Any], dict[str, Any]]:
    with ds.iterate() as elements:
        return [next(elements) for _ in range(count)], elements.state_dict()


R = ad.Dataset.range(40)


@pytest.mark.parametrize(
    ("before", "after", "rest"),
    [
        (R.map(double), R.map(triple), [3 * x for x in range(10, 40)]),
        (R.map(double), R, list(range(10, 40))),
        (R, R.map(double, num_parallel_calls=2).filter(lambda x: x % 3 == 0), [2 * x for x in range(12, 40, 3)]),
        (R.take(20), R.take(30), list(range(10, 30))),
        (R.enumerate(), R.map(double).enumerate(), [(x, 2 * x) for x in range(10, 40)]),
        (R, R.skip(15), list(range(10, 40))),
        (R.repeat(2), R.map(double).repeat(3), [2 * x for x in [*range(10, 40), *range(40), *range(40)]]),
    ],
    ids=str,
)
def test_what_has_the_same_name_goes_on(before: ad.Dataset[Any], after: ad.Dataset[Any], rest: list[Any]) -> None:
    _, state = taken(before, 10)
    with pytest.raises(ResumeError, match="if you have changed it on purpose, give strict=False"):
        after.iterate(state=state)
    assert list(after.iterate(state=state, strict=False)) == rest
    with after.iterate() as elements:
        elements.load_state_dict(state, strict=False)
        assert list(elements) == rest


def test_batches_of_another_size_lose_and_repeat_nothing() -> None:
    found, state = taken(R.map(double, num_parallel_calls=2).batch(3), 4)
    rest = list(R.map(double).batch(7).iterate(state=state, strict=False))
    assert [int(x) for batch in [*found, *rest] for x in batch] == [2 * x for x in range(40)]
    assert [len(batch) for batch in rest] == [7, 7, 7, 7]


@pytest.mark.parametrize(("before", "after"), [(10, 4), (4, 10), (10, 100)])
@pytest.mark.parametrize("source", [R, R.filter(lambda x: x % 2), R.flat_map(ad.Dataset.from_tensors)], ids=str)
def test_a_buffer_of_another_size_loses_and_repeats_nothing(source: ad.Dataset[int], before: int, after: int) -> None:
    everything = list(source)
    for count in (0, 1, 7, len(everything) - 3):
        found, state = taken(source.shuffle(before, seed=1).map(double), count)
        rest = list(source.shuffle(after, seed=2).map(double).iterate(state=state, strict=False))
        assert sorted(int(x) for x in [*found, *rest]) == [2 * int(x) for x in everything]


def test_the_seeds_of_the_state_go_with_the_steps_that_they_belonged_to() -> None:
    def crop(x: int, rng: Any) -> int:
        return x + int(rng.integers(10)) * 100

    found, state = taken(R.shuffle(8).map(crop, rng=True), 10)
    ds = R.shuffle(8).map(double).map(crop, rng=True)
    rest = list(ds.iterate(state=state, strict=False))
    assert sorted([*[x % 100 for x in found], *[x % 100 // 2 for x in rest]]) == list(range(40))


def test_other_files_go_on_by_their_numbers(tmp_path: Path) -> None:
    def write(name: str, records: int) -> None:
        with ad.TFRecordWriter(tmp_path / name) as writer:
            for record in range(records):
                writer.write(f"{name}-{record}".encode())

    def build() -> ad.Dataset[bytes]:
        return ad.TFRecordDataset(sorted(tmp_path.glob("*.tfrecord")))

    write("a.tfrecord", 5)
    write("b.tfrecord", 5)
    _, state = taken(build(), 7)
    write("c.tfrecord", 2)
    with pytest.raises(ResumeError, match="file"):
        build().iterate(state=state)
    rest = list(build().iterate(state=state, strict=False))
    assert rest == [b"b.tfrecord-2", b"b.tfrecord-3", b"b.tfrecord-4", b"c.tfrecord-0", b"c.tfrecord-1"]
    write("b.tfrecord", 6)
    with pytest.raises(ResumeError, match="had .* bytes when the state was made"):
        list(build().iterate(state=state, strict=False))


@pytest.mark.parametrize(
    "after",
    [R.batch(2), R.shuffle(3).take(20), R.repeat(2), ad.Dataset.from_iterable([1]).take(3), R.take(20).take(3)],
    ids=str,
)
def test_steps_that_remember_something_must_be_the_same(after: ad.Dataset[Any]) -> None:
    _, state = taken(R.take(20), 5)
    with pytest.raises(ResumeError, match=r"strict=False needs the same steps .* were range → take"):
        after.iterate(state=state, strict=False)


def test_a_shuffle_of_everything_needs_as_much() -> None:
    _, state = taken(R.shuffle(), 5)
    with pytest.raises(ResumeError, match="had 40 elements when the state was saved, and has 30 now"):
        list(ad.Dataset.range(30).shuffle().iterate(state=state, strict=False))


def three(x: int) -> ad.Dataset[int]:
    return ad.Dataset.from_list([3 * x, 3 * x + 1, 3 * x + 2])


def running(total: int, x: int) -> tuple[int, int]:
    return total + x, x


LARGE, SMALL = R.shuffle(20, seed=1), R.shuffle(5, seed=1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (R.batch(2).cache(), R.batch(4).cache()),
        (R.shuffle(5, seed=1).cache(), R.shuffle(9, seed=1).cache()),
        (R.cache(), R.skip(3).cache()),
        (R.cache(), R.filter(lambda x: x % 2 == 0).cache()),
        (LARGE.batch(4).unbatch(), SMALL.batch(4).unbatch()),
        (LARGE.batch(4).rebatch(3), SMALL.batch(4).rebatch(3)),
        (LARGE.flat_map(three), SMALL.flat_map(three)),
        (LARGE.window(4).flat_map(lambda rows: rows), SMALL.window(4).flat_map(lambda rows: rows)),
        (LARGE.unique(), SMALL.unique()),
        (LARGE.scan(0, running), SMALL.scan(0, running)),
        (
            LARGE.group_by_window(lambda x: x % 3, lambda _, rows: rows.batch(4), 4),
            SMALL.group_by_window(lambda x: x % 3, lambda _, rows: rows.batch(4), 4),
        ),
        (ad.Dataset.zip((R, LARGE.cache())), ad.Dataset.zip((R, SMALL.cache()))),
    ],
    ids=str,
)
def test_below_a_step_that_counts_only_maps_may_change(before: ad.Dataset[Any], after: ad.Dataset[Any]) -> None:
    _, state = taken(before, 3)
    with pytest.raises(ResumeError, match="only maps may change there"):
        after.iterate(state=state, strict=False)


def test_a_map_below_a_cache_may_change() -> None:
    _, state = taken(R.map(double).cache(), 10)
    assert list(R.map(triple).cache().iterate(state=state, strict=False)) == [3 * x for x in range(10, 40)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (R.batch(4).shuffle(5, seed=1), R.batch(2).shuffle(5, seed=1)),
        (LARGE.shuffle(3, seed=2), SMALL.shuffle(7, seed=2)),
        (LARGE.repeat(2), SMALL.repeat(2)),
        (LARGE.concatenate(R), SMALL.concatenate(R)),
        (R.batch(4).repeat(2), R.batch(3).repeat(2)),
        (LARGE.interleave(three, cycle_length=3), SMALL.interleave(three, cycle_length=3)),
    ],
    ids=str,
)
def test_sizes_elsewhere_lose_and_repeat_nothing(before: ad.Dataset[Any], after: ad.Dataset[Any]) -> None:
    def flat(elements: list[Any]) -> list[int]:
        return sorted(int(x) for element in elements for x in (element if hasattr(element, "__len__") else [element]))

    found, state = taken(before, 5)
    rest = list(after.iterate(state=state, strict=False))
    assert flat([*found, *rest]) == flat(list(before))


def rows(_: int, window: ad.Dataset[int]) -> ad.Dataset[Any]:
    return window.batch(16)


def by_two(_: int) -> int:
    return 2


def by_five(_: int) -> int:
    return 5


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (R.group_by_window(abs, rows, 4), R.group_by_window(abs, rows, 2)),
        (R.group_by_window(abs, rows, 4), R.group_by_window(abs, rows, window_size_func=by_two)),
        (
            R.group_by_window(abs, rows, window_size_func=by_two),
            R.map(double).group_by_window(abs, rows, window_size_func=by_five),
        ),
        (R.group_by_window(abs, rows, 4), R.group_by_window(double, rows, 4)),
        (R.group_by_window(abs, rows, 4), R.group_by_window(abs, lambda _, window: window.batch(3), 4)),
        (ad.Dataset.zip(R, R.group_by_window(abs, rows, 4)), ad.Dataset.zip(R, R.group_by_window(abs, rows, 2))),
    ],
    ids=str,
)
def test_windows_of_another_size_are_refused(before: ad.Dataset[Any], after: ad.Dataset[Any]) -> None:
    _, state = taken(before, 1)
    with pytest.raises(ResumeError, match="has become .* and strict=False would lose or repeat"):
        after.iterate(state=state, strict=False)
    assert len(list(before.iterate(state=state, strict=False))) == len(list(before)) - 1


@pytest.mark.parametrize(("before", "after"), [(R, ad.Dataset.range(5, 45)), (R, ad.Dataset.range(0, 80, 2))], ids=str)
def test_a_range_of_other_numbers_is_refused(before: ad.Dataset[Any], after: ad.Dataset[Any]) -> None:
    _, state = taken(before, 3)
    with pytest.raises(ResumeError, match="has become .* keep its start and its step"):
        after.iterate(state=state, strict=False)


def test_elements_skipped_without_reading_them_are_counted_in_the_same_steps() -> None:
    def build(size: int) -> ad.Dataset[Any]:
        return R.filter(lambda x: x >= 0).batch(size)

    with build(3).iterate() as batches:
        batches.skip(2)
        state = batches.state_dict()
    assert [int(x) for x in next(build(3).map(abs).iterate(state=state, strict=False))] == [6, 7, 8]
    with pytest.raises(ResumeError, match="batch"):
        build(7).iterate(state=state, strict=False)


COUNTING: dict[str, Callable[[ad.Dataset[int]], ad.Dataset[Any]]] = {
    "cache": lambda ds: ds.cache(),
    "unbatch": lambda ds: ds.batch(2).unbatch(),
    "rebatch": lambda ds: ds.batch(2).rebatch(3),
    "flat_map": lambda ds: ds.flat_map(three),
    "scan": lambda ds: ds.scan(0, running),
    "unique": lambda ds: ds.unique(),
    "group_by_window": lambda ds: ds.group_by_window(abs, rows, 4),
}


@pytest.mark.parametrize("name", COUNTING)
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("by_options", first_by_default([False, True]))
def test_what_a_step_counts_keeps_its_order(name: str, strict: bool, by_options: bool) -> None:
    def build(deterministic: bool) -> ad.Dataset[Any]:
        if by_options and name != "cache":  # which reads its input in order unless a step itself says otherwise
            ds = R.map(abs, num_parallel_calls=2).with_options(ad.Options(deterministic=deterministic))
        else:
            ds = R.map(abs, num_parallel_calls=2, deterministic=deterministic)
        return COUNTING[name](ds)

    _, state = taken(build(True), 3)
    with pytest.raises(ResumeError, match="had an order when the state was saved"):
        build(False).iterate(state=state, strict=strict)
    for resumed in (True, False):
        found, state = taken(build(False), 3)
        rest = list(build(resumed).iterate(state=state, strict=strict))
        assert len(found + rest) == len(list(build(True)))


def test_without_a_step_that_counts_the_order_may_go() -> None:
    _, state = taken(R.map(abs, num_parallel_calls=2).shuffle(5, seed=1).batch(4), 3)
    rest = R.map(abs, num_parallel_calls=2, deterministic=False).shuffle(5, seed=1).batch(4).iterate(state=state)
    assert sum(map(len, rest)) == 28


def vectors(ds: ad.Dataset[int]) -> ad.Dataset[Any]:
    return ds.map(lambda x: np.full(x % 4 + 1, x))


def numbers(value: Any) -> list[int]:
    """The numbers of a batch or a window."""
    if isinstance(value, ad.Dataset):
        return [x for element in value for x in numbers(element)]
    return [int(x) for x in np.ravel(value)]


SIZES: dict[str, list[ad.Dataset[Any]]] = {
    "padded_batch": [R.padded_batch(size) for size in (3, 5, 8)],
    "window": [R.window(size) for size in (3, 5, 8)],
    "buckets": [
        vectors(R).bucket_by_sequence_length(len, [2, 4], sizes).map(lambda rows: rows[:, 0])
        for sizes in ([2, 2, 2], [4, 4, 4], [5, 2, 3])
    ],
    "boundaries": [
        vectors(R).bucket_by_sequence_length(len, bounds, [3] * (len(bounds) + 1)).map(lambda rows: rows[:, 0])
        for bounds in ([2, 4], [3], [2, 3, 4])
    ],
    "tokens": [vectors(R).bucket_by_token_count(count).map(lambda rows: rows[:, 0]) for count in (8, 16)],
    "token buffer": [
        vectors(R).bucket_by_token_count(12, buffer_size=size).map(lambda rows: rows[:, 0]) for size in (8, 40)
    ],
    "rebatch": [R.batch(6).rebatch(size) for size in (4, 5, 9)],
}


@pytest.mark.parametrize("name", SIZES)
def test_other_sizes_of_steps_that_hold_elements_lose_and_repeat_nothing(name: str) -> None:
    for before, after in permutations(SIZES[name], 2):
        for count in (0, 1, 3, 4):
            found, state = taken(before, count)
            rest = list(after.iterate(state=state, strict=False))
            told = [x for element in [*found, *rest] for x in numbers(element)]
            assert sorted(told) == list(range(40)), (before, after, count)


def test_strict_false_is_named_only_where_it_would_do() -> None:
    cases = [(R.batch(4), R.shuffle(4, seed=1)), (R.batch(4), ad.Dataset.range(1, 41).batch(4))]
    for before, after in cases:
        _, state = taken(before, 2)
        for strict, words in ((True, "the state is of another pipeline"), (False, "strict=False")):
            with pytest.raises(ResumeError, match=words) as caught:
                after.iterate(state=state, strict=strict)
            assert ("strict=False" in str(caught.value)) is not strict


def test_another_seed_of_ones_own_names_strict_false() -> None:
    _, state = taken(R.shuffle(4, seed=1), 2)
    with pytest.raises(ResumeError, match="the seed was 1 when .* and is 2 now; or, if .* give strict=False"):
        R.shuffle(4, seed=2).iterate(state=state)
    assert list(R.shuffle(4, seed=2).iterate(state=state, strict=False)) == list(R.shuffle(4, seed=1))[2:]
