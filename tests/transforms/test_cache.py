from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_transform
from tests.reference import Boom, Failed
from tests.running import WAYS, collect, read_plain, results


class Source:
    """A generator that counts its calls and the elements pulled from it."""

    def __init__(self, count: int = 5) -> None:
        self.count, self.calls, self.pulled = count, 0, 0

    def __call__(self) -> Iterator[int]:
        self.calls += 1
        for number in range(self.count):
            self.pulled += 1
            yield number


def test_keeps_its_contract() -> None:
    check_transform(lambda ds: ds.cache(), lambda items: items)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_source_is_read_once(way: Any) -> None:
    source = Source()
    ds = ad.Dataset.from_generator(source).cache()
    assert [way(ds) for _ in range(3)] == [[0, 1, 2, 3, 4]] * 3
    assert (source.calls, source.pulled) == (1, 5)


def test_repeat_reads_the_cache() -> None:
    source = Source()
    assert list(ad.Dataset.from_generator(source).cache().repeat(3)) == [0, 1, 2, 3, 4] * 3
    assert (source.calls, source.pulled) == (1, 5)


def test_left_early_the_rest_is_read_later() -> None:
    calls: list[int] = []
    ds = ad.Dataset.range(6).map(lambda x: calls.append(x) or x).cache()
    ds = ds.with_options(ad.Options(optimize=False))
    assert list(islice(ds, 3)) == [0, 1, 2]
    assert list(ds) == list(range(6))
    assert list(ds) == list(range(6))
    assert sorted(set(calls)) == list(range(6))


def test_cache_take_repeat() -> None:
    """What tf.data's cache gets wrong: never read to its end, it is still a cache."""
    ds = ad.Dataset.range(100).shuffle(100).cache().take(5)
    first = list(ds)
    assert list(ds) == first
    assert list(ds.repeat(2)) == first * 2


def test_a_shuffle_before_the_cache_is_kept_after_it_is_not() -> None:
    before = ad.Dataset.range(50).shuffle(50, seed=0).cache()
    assert list(before) == list(before)
    after = ad.Dataset.range(50).cache().shuffle(50, seed=0)
    assert list(after) != list(after)


def test_left_early_and_continued_a_shuffled_cache_loses_nothing() -> None:
    ds = ad.Dataset.range(50).shuffle(50).cache()
    prefix = list(islice(ds, 20))
    whole = list(ds)
    assert sorted(whole) == list(range(50))
    assert whole[:20] == prefix
    assert list(ds) == whole


def test_failures_are_remembered_in_their_places() -> None:
    def fail_at_1(x: int) -> int:
        if x == 1:
            raise Boom(x)
        return x

    ds = ad.Dataset.range(3).map(fail_at_1).cache()
    assert [results(ds) for _ in range(3)] == [[0, Failed("Boom(1)"), 2]] * 3


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_failed_is_tried_again_alone(way: Any) -> None:
    calls: list[int] = []
    bad = {0, 3, 4, 19}

    def decode(x: int) -> int:
        calls.append(x)
        if x in bad:
            raise Boom(x)
        return x

    ds = ad.Dataset.range(20).map(decode).cache()
    for tried in ([*range(20)], [0, 3, 4, 19], [0, 3, 4, 19], [3, 4]):
        assert way(ds) == [Failed(f"Boom({x})") if x in bad else x for x in range(20)]
        assert calls == tried
        calls.clear()
        if tried == [0, 3, 4, 19]:
            bad -= {0, 19}
    bad.clear()
    assert list(ds) == [*range(20)]
    calls.clear()
    assert (list(ds), calls) == ([*range(20)], [])


def fails_at_2(calls: list[int]) -> Callable[[int], int]:
    """A function that writes down what it is called with."""

    def decode(x: int) -> int:
        calls.append(x)
        if x == 2:
            raise Boom(x)
        return x

    return decode


def test_an_epoch_that_is_left_behind_a_failure_is_read_on_from_there() -> None:
    calls: list[int] = []
    decode = fails_at_2(calls)
    options = ad.Options(disabled_rules=("inject_prefetch",))
    ds = ad.Dataset.range(9).map(decode).cache().with_options(options)
    expected = [0, 1, Failed("Boom(2)"), *range(3, 9)]
    assert read_plain(ds, 3) == expected[:3]
    assert read_plain(ds, 5) == expected[:5]
    assert calls == [0, 1, 2, 2, 3, 4]
    assert read_plain(ds) == expected
    assert calls == [0, 1, 2, 2, 3, 4, 2, 5, 6, 7, 8]


def test_what_failed_in_an_input_that_is_not_run_again_is_kept() -> None:
    calls: list[int] = []
    decode = fails_at_2(calls)
    for ds in (
        ad.Dataset.range(5).map(decode, num_parallel_calls=2, deterministic=False).cache(),
        ad.Dataset.from_generator(lambda: iter(range(5))).map(decode).cache(),
    ):
        for _ in range(3):
            assert sorted(map(str, results(ds))) == sorted(map(str, [0, 1, Failed("Boom(2)"), 3, 4]))
        assert sorted(calls) == [0, 1, 2, 3, 4]
        calls.clear()


def test_later_epochs_of_an_input_without_a_fixed_order_are_the_same_in_every_run() -> None:
    """Not in the order of a shuffle before: to fill the cache again must give what it gave."""

    def made() -> ad.Dataset:
        return ad.Dataset.range(10).batch(2, within=1e6).shuffle(5, seed=0).cache()

    def shown(ds: ad.Dataset) -> list[list[int]]:
        return [batch.tolist() for batch in ds]

    ds, again = made(), made()
    first, second = shown(ds), shown(ds)
    assert sorted(first) == second == shown(ds)
    assert first != second
    with ds.iterate() as elements:
        begun = [next(elements).tolist() for _ in range(2)]
        state = elements.state_dict()
    with again.iterate(state=state) as elements:
        assert [*begun, *(batch.tolist() for batch in elements)] == second


@pytest.mark.parametrize("at", ["current", "thread"])
def test_iterators_that_take_turns_are_given_each_element_once(at: Any) -> None:
    options = ad.Options(placement=at, disabled_rules=("inject_prefetch",))
    ds = ad.Dataset.range(60).map(abs).cache().with_options(options)
    first, second = iter(ds), iter(ds)
    found = [next(first) for _ in range(5)]
    others = [next(second) for _ in range(30)]
    assert [*found, *first] == [*others, *second] == [*ds] == [*range(60)]


def test_branches_of_one_cache_get_each_element_once() -> None:
    ds = ad.Dataset.range(40).map(abs).cache()
    pairs = list(ad.Dataset.zip(ds.skip(20), ds.take(20)))
    assert pairs == [(x + 20, x) for x in range(20)]
    assert list(ds) == [*range(40)]
    mixed = ad.Dataset.sample_from_datasets([ds, ds.map(lambda x: -x)], seed=1)
    assert sorted(mixed) == sorted([*range(40), *[-x for x in range(40)]])


def fails_once(at: int) -> Callable[[Any], Any]:
    """A function that fails the first time that it is given what begins with a number."""
    failed: list[int] = []

    def function(x: Any) -> Any:
        if np.ravel(x)[0] == at and not failed:
            failed.append(at)
            raise Boom(at)
        return x

    return function


BEHIND: dict[str, Callable[[ad.Dataset[Any]], ad.Dataset[Any]]] = {
    "nothing": lambda ds: ds,
    "batch": lambda ds: ds.batch(2),
    "filter": lambda ds: ds.filter(lambda x: x != 2),
    "flat_map": lambda ds: ds.flat_map(lambda x: ad.Dataset.range(x)),
    "interleave": lambda ds: ds.interleave(lambda x: ad.Dataset.range(x), 2),
    "take_while": lambda ds: ds.take_while(lambda x: x < 5),
    "scan": lambda ds: ds.scan(0, lambda total, x: (total + x, total)),
    "unique": lambda ds: ds.unique(),
    "shuffle": lambda ds: ds.shuffle(3, seed=1),
    "rows": lambda ds: ds.map(lambda x: [x, x + 10]).unbatch(),
    "parallel": lambda ds: ds.map(abs, num_parallel_calls=2),
}


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND.keys())
def test_what_failed_once_is_mended_and_the_rest_stays_what_it_was(behind: Any) -> None:
    for at in (0, 2, 6):
        expected = results(behind(ad.Dataset.range(7).map(lambda x: x)))
        ds = behind(ad.Dataset.range(7).map(fails_once(at))).cache()
        results(ds)
        for _ in range(3):
            assert list(map(str, results(ds))) == list(map(str, expected))


def test_a_batch_that_failed_in_a_map_is_mended_as_a_batch() -> None:
    ds = ad.Dataset.range(6).batch(2).map(fails_once(2)).cache()
    assert sum(type(batch) is Failed for batch in results(ds)) == 1
    for _ in range(2):
        assert [batch.tolist() for batch in ds] == [[0, 1], [2, 3], [4, 5]]


def test_an_error_that_is_kept_holds_nobody_who_caught_it() -> None:
    class Odd(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(f"{one} {two}")

    def fail(x: int) -> int:
        raise Boom(x) if x else Odd(x, x)

    ds = ad.Dataset.range(2).map(fail, num_parallel_calls=2, deterministic=False).cache()
    lengths: set[int] = set()
    for _ in range(4):
        found = iter(ds)
        for _ in range(2):
            with pytest.raises((Boom, Odd)) as caught:
                next(found)
            assert len(caught.value.__notes__) == 1
            if caught.type is Boom:
                assert caught.traceback[-1].name == "fail"
                lengths.add(len(caught.traceback))
    assert len(lengths) <= 2  # the first time from the map, then from the cache


def test_a_hole_takes_no_room_until_it_is_filled() -> None:
    bad = {1}

    def decode(x: int) -> Any:
        if x in bad:
            raise Boom(x)
        return np.zeros(100, np.uint8)

    for most in (150, 350, 1000):
        bad.add(1)
        ds = ad.Dataset.range(4).map(decode).cache(max_bytes=most)
        for _ in range(2):
            assert sum(type(item) is Failed for item in results(ds)) == 1
        bad.clear()
        for _ in range(2):
            assert len(list(ds)) == 4
        kept: Any = ds.plan
        assert sum(item.nbytes for item in kept.store.items) <= most


def test_iterators_at_once_fill_a_hole_and_lose_nothing() -> None:
    bad = {5, 6, 7}

    def decode(x: int) -> int:
        if x in bad:
            raise Boom(x)
        return x

    ds = ad.Dataset.range(200).map(decode).cache()
    results(ds)
    bad.clear()
    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(list, [ds] * 20)] == [[*range(200)]] * 20


def test_a_failure_seen_often_gathers_no_notes() -> None:
    def fail(x: int) -> int:
        raise Boom(x)

    ds = ad.Dataset.range(1).map(fail).cache()
    for _ in range(3):
        with pytest.raises(Boom) as caught:
            list(ds)
        assert len(caught.value.__notes__) == 1


def test_two_readers_at_once() -> None:
    source = Source(200)
    ds = ad.Dataset.from_generator(source).cache()

    async def both() -> Any:
        return await asyncio.gather(collect(ds), collect(ds))

    assert asyncio.run(both()) == [list(range(200))] * 2
    assert list(ds) == list(range(200))


def test_a_reader_that_finds_no_more_just_before_another_one_has_all() -> None:
    ds = ad.Dataset.range(5).cache()
    store: Any = ds.plan.store
    cached = store.cached

    def overtaken(position: int, count: int) -> Any:
        found = cached(position, count)
        if found is None and not store.complete:
            store.cached = cached
            assert list(ds) == list(range(5))
        return found

    store.cached = overtaken
    assert list(ds) == list(range(5))


def test_zipped_with_itself() -> None:
    ds = ad.Dataset.range(5).cache()
    assert list(ad.Dataset.zip(ds, ds)) == [(x, x) for x in range(5)]
    shuffled = ad.Dataset.range(5).shuffle(5).cache()
    assert all(one == other for one, other in ad.Dataset.zip(shuffled, shuffled))


def test_a_consumer_that_writes_into_an_element_spoils_no_later_epoch() -> None:
    ds = ad.Dataset.from_tensors(np.zeros(3)).cache()
    for element in ds:
        with contextlib.suppress(ValueError):  # read-only
            np.add(element, 1, out=element)
    (element,) = ds
    assert element.tolist() == [0, 0, 0]


def test_two_datasets_share_nothing() -> None:
    source = Source()
    ds = ad.Dataset.from_generator(source)
    assert list(ds.cache()) == list(ds.cache())
    assert source.calls == 2


def test_cardinality_is_kept() -> None:
    assert len(ad.Dataset.range(3).cache()) == 3


def test_a_cache_that_is_filled_again_later_holds_what_it_would_have_held() -> None:
    """The position is behind the cache, and says nothing of it: what it is filled with cannot depend on when."""

    def build() -> ad.Dataset[int]:
        return ad.Dataset.range(5).shuffle(2, seed=0).cache().concatenate(ad.Dataset.range(5)).repeat(2)

    whole = list(build())
    with build().iterate() as elements:
        elements.skip(6)
        state = elements.state_dict()
    assert list(build().iterate(state=state)) == whole[6:]


def test_what_is_behind_max_bytes_is_read_in_each_epoch_and_nothing_before_it() -> None:
    calls: list[int] = []
    ds = ad.Dataset.range(10).map(lambda x: calls.append(x) or np.full(1000, x)).cache(max_bytes=33_000)
    ds = ds.with_options(ad.Options(optimize=False))
    for _ in range(3):
        assert [int(x[0]) for x in ds] == [*range(10)]
    assert calls == [*range(10), *range(4, 10), *range(4, 10)]


def test_max_bytes_edges() -> None:
    for size in (0, 1, 10**9):
        ds = ad.Dataset.range(10).shuffle(5, seed=1).cache(max_bytes=size)
        assert list(ds) == list(ds.repeat(2))[10:] == list(ds)
    with pytest.raises(ad.PlanError, match="must be at least 0"):
        ad.Dataset.range(3).cache(max_bytes=-1)
    with pytest.raises(ad.PlanError, match="is for memory"):
        ad.Dataset.range(3).cache("file", max_bytes=1)


def test_a_limit_for_records_of_a_file_is_refused_in_memory() -> None:
    with pytest.raises(ValueError, match=r"cache\(max_record_bytes=\) is for a file"):
        ad.Dataset.range(3).cache(max_record_bytes=1000)


def test_filled_in_part_the_rest_is_the_same_wherever_it_is_read() -> None:
    """The first epoch of a dataset and that of its repetitions have other paths; what is kept has one."""
    ds = ad.Dataset.range(20).shuffle(20, seed=1).cache()
    with ds.iterate() as elements:
        begun = [next(elements) for _ in range(5)]
    whole = list(ds.repeat(2).repeat(2))[:20]
    assert whole[:5] == begun
    assert sorted(whole) == [*range(20)]


def shuffled() -> ad.Dataset:
    """Shuffled by a seed that is another one in each dataset."""
    return ad.Dataset.range(20).shuffle(20).cache()


def begun() -> tuple[list[int], Any, list[int]]:
    """The first elements of a dataset, a state behind them, and the others."""
    numbers = iter(shuffled())
    first = [next(numbers) for _ in range(6)]
    state = numbers.state_dict()
    return first, state, list(numbers)


@pytest.mark.parametrize("look", [list, lambda ds: ds.head(5), lambda ds: next(iter(ds)), lambda ds: None])
def test_a_state_of_another_order_finds_nothing_of_what_was_kept_before(look: Callable[[ad.Dataset], Any]) -> None:
    first, state, rest = begun()
    ds = shuffled()
    look(ds)
    assert list(ds.iterate(state=state)) == rest
    assert list(ds) == first + rest
    assert list(ds) == first + rest


def test_an_iterator_goes_on_in_another_order_beside_its_dataset() -> None:
    _, state, rest = begun()
    ds = shuffled()
    numbers = ds.iterate()
    next(numbers)
    numbers.load_state_dict(state)
    assert list(numbers) == rest
    assert sorted(ds) == list(range(20))


def test_what_was_kept_without_order_is_in_order_for_others() -> None:
    base = ad.Dataset.range(40).map(lambda x: x, num_parallel_calls=4).cache()
    assert sorted(base.with_options(ad.Options(deterministic=False))) == list(range(40))
    assert list(base) == list(range(40))


ELEMENTS: dict[str, Callable[[int], Any]] = {
    "a dict": lambda x: {"x": x},
    "a dict in a tuple": lambda x: (x, {"x": x}),
    "a dict in a dict": lambda x: {"x": x, "inner": {"x": x}},
    "a list": lambda x: [x],
    "a list in a dict": lambda x: {"x": [x]},
}


def changed(*element: Any) -> int:
    """Put something into every dict and list of an element; return how many parts there were before."""
    parts, found = list(element), 0
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            found += len(part)
            parts += part.values()
            part[f"new {len(part)}"] = 1
        elif isinstance(part, list):
            found += len(part)
            part.append(1)
    return found


@pytest.mark.parametrize("kind", ELEMENTS)
def test_who_changes_elements_changes_nothing_that_is_kept(kind: str) -> None:
    ds = ad.Dataset.range(5).map(ELEMENTS[kind]).cache().map(changed)
    first = list(ds)
    assert [list(ds) for _ in range(2)] == [first] * 2
    assert len(set(first)) == 1


def test_parts_of_a_dataclass_stay_what_they_are() -> None:
    @dataclasses.dataclass
    class Point:
        x: int
        twice: int = dataclasses.field(init=False)

        def __post_init__(self) -> None:
            self.twice = 2 * self.x

    def moved(point: Point) -> Point:
        point.x, point.twice = point.x + 1, 7
        return point

    ds = ad.Dataset.range(2).map(Point).cache()
    assert [(point.x, point.twice) for point in ds.map(moved)] == [(1, 7), (2, 7)]
    assert [(point.x, point.twice) for point in ds] == [(0, 0), (1, 2)]
