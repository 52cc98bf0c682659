"""Elements by number, sources with elements by number, and randomness that belongs to an element."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from tests.reference import Failed
from tests.running import results

NUMBERS = ad.Dataset.range(10, 20)


def plus_ten(x: Any) -> Any:
    return x + 10


@pytest.mark.parametrize(
    "ds",
    [
        NUMBERS,
        ad.Dataset.from_iterable("abcdef"),
        ad.Dataset.from_tensor_slices(np.arange(12).reshape(6, 2)),
        NUMBERS.map(plus_ten),
        NUMBERS.map(plus_ten, num_parallel_calls=2).prefetch(3),
        NUMBERS.take(4),
        NUMBERS.skip(3),
        NUMBERS.shard(3, 1),
        NUMBERS.take(3).concatenate(NUMBERS.skip(8)),
        NUMBERS.take(3).repeat(3),
        NUMBERS.enumerate(5),
        ad.Dataset.zip(NUMBERS, NUMBERS.skip(4)),
        NUMBERS.skip(1).shard(2, 0).repeat(2).enumerate().take(5),
    ],
    ids=str,
)
def test_at_gives_what_iterating_gives(ds: ad.Dataset[Any]) -> None:
    elements = list(ds)
    assert len(ds) == len(elements)
    for place in range(-len(elements), len(elements)):
        np.testing.assert_equal(ds[place], elements[place])
        if place >= 0:
            np.testing.assert_equal(ds.at(place), elements[place])
    for place in (len(elements), -len(elements) - 1):
        with pytest.raises(IndexError, match=f"no element {place}: the dataset has {len(elements)}"):
            ds[place]


def test_an_endless_dataset_has_any_element() -> None:
    assert ad.Dataset.counter(3, 2).at(10**12) == 2 * 10**12 + 3


@pytest.mark.parametrize("ds", [NUMBERS.filter(bool), NUMBERS.batch(2), NUMBERS.shuffle(seed=1)], ids=str)
def test_at_needs_random_access(ds: ad.Dataset[Any]) -> None:
    with pytest.raises(ad.PlanError, match=r"at\(\) needs random access"):
        ds.at(0)


def test_an_element_that_fails_fails_alone() -> None:
    ds = ad.Dataset.from_source(Letters())
    assert ds[1] == "b"
    with pytest.raises(KeyError) as caught:
        ds[2]
    assert caught.value.__notes__ == ["in from_source(Letters of 5), element 2"]


class Letters:
    """Five letters, one of which cannot be had."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> str:
        if index == 2:
            raise KeyError(index)
        return "abcde"[index]


class AtOnce(Letters):
    """Gives several at once, if all can be had."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def get_batch(self, indices: list[int]) -> list[str]:
        self.asked.append(indices)
        return [self[index] for index in indices]


@pytest.mark.parametrize("source", [Letters(), AtOnce()], ids=["one by one", "at once"])
@pytest.mark.parametrize("calls", [None, 1, 4, ad.AUTOTUNE])
def test_sources(source: Letters, calls: int | None) -> None:
    found: list[Any] = []
    with ad.Dataset.from_source(source, num_parallel_calls=calls).iterate() as letters:
        while len(found) < 5:
            try:
                found.append(next(letters))
            except KeyError as error:
                found.append(error.args)
        with pytest.raises(StopIteration):
            next(letters)
    assert found == ["a", "b", (2,), "d", "e"]


def test_several_are_asked_for_at_once() -> None:
    source = AtOnce()
    assert list(ad.Dataset.from_source(source).skip(3)) == ["d", "e"]
    assert {index for indices in source.asked for index in indices} == {3, 4}


class Asked:
    """A source that counts how often it is asked for several elements at once."""

    def __init__(self, first: int, count: int) -> None:
        self.first, self.count, self.times = first, count, 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return self.first + index

    def get_batch(self, indices: list[int]) -> list[int]:
        self.times += 1
        return [self[index] for index in indices]


def test_parts_that_take_turns_are_each_asked_for_many_at_once() -> None:
    one, other = Asked(0, 1000), Asked(1000, 1000)
    ds = ad.Dataset.from_source(one).concatenate(ad.Dataset.from_source(other)).shuffle(seed=1)
    expected = list(ad.Dataset.range(2000).shuffle(seed=1))
    assert list(ds.prefetch(2000).with_options(ad.Options(optimize=False))) == expected
    assert one.times + other.times < 500


@pytest.mark.parametrize("times", [2, 16, 17, 100])
def test_more_parts_than_are_open_at_once(times: int) -> None:
    ds = ad.Dataset.range(7).map(plus_ten).repeat(times).shuffle(seed=2)
    assert list(ds) == [10 + place % 7 for place in ad.Dataset.range(7 * times).shuffle(seed=2)]


def test_a_failure_in_a_part_has_its_place() -> None:
    def fail(x: int) -> int:
        if x == 3:
            raise KeyError(x)
        return x

    ds = ad.Dataset.range(3).concatenate(ad.Dataset.range(3, 6).map(fail)).shuffle(seed=1)
    expected = [Failed("KeyError") if x == 3 else x for x in ad.Dataset.range(6).shuffle(seed=1)]
    assert results(ds) == expected


def test_a_batch_that_cannot_be_had_is_asked_for_one_by_one_whatever_it_raises() -> None:
    class Cancelling(Letters):
        def __getitem__(self, index: int) -> str:
            if index == 2:
                raise asyncio.CancelledError
            return super().__getitem__(index)

        def get_batch(self, indices: list[int]) -> list[str]:
            return [self[index] for index in indices]

    elements = iter(ad.Dataset.from_source(Cancelling()))
    assert [next(elements), next(elements)] == [*"ab"]
    with pytest.raises(asyncio.CancelledError):
        next(elements)
    assert next(elements) == "d"


def test_a_batch_of_the_wrong_length_ends_the_pipeline() -> None:
    class Short(Letters):
        def get_batch(self, indices: list[int]) -> list[str]:
            return []

    with pytest.raises(ad.StageError, match=r"from_source\(Short of 5\): it returned 0 elements for"):
        list(ad.Dataset.from_source(Short()))


@pytest.mark.parametrize("source", [iter([1]), 5, {1, 2}])
def test_what_is_no_source(source: Any) -> None:
    with pytest.raises(ad.PlanError, match="__len__ and __getitem__"):
        ad.Dataset.from_source(source)


# randomness


def noisy(x: int, *, rng: np.random.Generator) -> tuple[int, int]:
    return x, int(rng.integers(1 << 60))


async def noisy_later(x: int, *, rng: np.random.Generator) -> tuple[int, int]:
    await asyncio.sleep(0)
    return noisy(x, rng=rng)


@pytest.mark.parametrize("fn", [noisy, noisy_later])
@pytest.mark.parametrize(
    "how", [{}, {"num_parallel_calls": 4}, {"num_parallel_calls": 4, "deterministic": False}], ids=str
)
def test_random_numbers_belong_to_elements(fn: Any, how: dict[str, Any]) -> None:
    expected = list(NUMBERS.map(noisy, rng=True, seed=7))
    assert len({number for _, number in expected}) == 10
    found = list(NUMBERS.map(fn, rng=True, seed=7, **how))
    assert sorted(found) == sorted(expected)
    shuffled = list(NUMBERS.map(fn, rng=True, seed=7, num_parallel_calls=2).shuffle(seed=1).batch(3).unbatch())
    assert sorted((int(a), int(b)) for a, b in shuffled) == sorted(expected)


def test_random_numbers_of_other_seeds_maps_and_epochs_differ() -> None:
    once = NUMBERS.map(noisy, rng=True, seed=7)
    first, second = list(once), list(once)
    assert first != second
    assert list(NUMBERS.map(noisy, rng=True, seed=8)) != first
    twice = NUMBERS.map(noisy, rng=True, seed=7).map(lambda x, _: x).map(noisy, rng=True, seed=7)
    assert list(twice) != first
    repeated = list(NUMBERS.map(noisy, rng=True, seed=7).repeat(2))
    assert len(set(repeated)) == 20


def test_random_numbers_are_the_same_after_going_on() -> None:
    def build() -> ad.Dataset[Any]:
        return NUMBERS.map(noisy, rng=True)  # a seed that nobody chose is in the state

    with (ds := build()).iterate() as elements:
        first = [next(elements) for _ in range(4)]
        state = elements.state_dict()
        rest = list(elements)
    assert list(build().iterate(state=state)) == rest
    assert len({*first, *rest}) == 10
    assert ds.explain()


def test_a_seed_alone_is_a_mistake() -> None:
    with pytest.raises(ad.PlanError, match=r"map\(seed=\) is for rng=True"):
        NUMBERS.map(noisy, seed=3)
