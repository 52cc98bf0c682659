from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.testing import check_transform
from asyncdata.transforms.repeat import block_end
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import WAYS


@pytest.mark.parametrize("count", first_by_default([2, 0, 1, 5], 3))
def test_keeps_its_contract(count: int) -> None:
    check_transform(lambda ds: ds.repeat(count), lambda items: items * count)


@pytest.mark.parametrize("count", [None, -1])
def test_for_ever(count: int | None) -> None:
    ds = ad.Dataset.range(3).repeat(count)
    assert list(islice(ds, 7)) == [0, 1, 2, 0, 1, 2, 0]
    assert ds.cardinality() == ad.INFINITE_CARDINALITY


@pytest.mark.parametrize("count", [None, -1, 3])
def test_of_nothing_ends(count: int | None) -> None:
    assert list(ad.Dataset.range(0).repeat(count)) == []
    assert list(ad.Dataset.range(9).filter(lambda x: False).repeat(count)) == []
    assert list(ad.Dataset.range(9).skip(-1).shuffle(3).repeat(count)) == []


def test_a_generator_is_called_again() -> None:
    calls: list[int] = []

    def generate() -> Iterator[int]:
        calls.append(1)
        yield from range(2)

    assert list(ad.Dataset.from_generator(generate).repeat(3)) == [0, 1] * 3
    assert len(calls) == 3


def test_nested() -> None:
    assert list(ad.Dataset.range(2).repeat(2).map(lambda x: x + 1).repeat(2)) == [1, 2] * 4
    assert list(ad.Dataset.range(2).repeat().repeat(2).take(5)) == [0, 1, 0, 1, 0]


def test_before_and_after_batch() -> None:
    assert [b.tolist() for b in ad.Dataset.range(3).repeat(2).batch(2)] == [[0, 1], [2, 0], [1, 2]]
    assert [b.tolist() for b in ad.Dataset.range(3).batch(2).repeat(2)] == [[0, 1], [2], [0, 1], [2]]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_failures_come_again(way: Any) -> None:
    def fail_at_1(x: int) -> int:
        if x == 1:
            raise Boom(x)
        return x

    assert way(ad.Dataset.range(2).map(fail_at_1).repeat(2)) == [0, Failed("Boom(1)")] * 2


def test_an_epoch_of_failures_alone_is_no_empty_epoch() -> None:
    def fail(x: int) -> int:
        raise Boom(x)

    elements = iter(ad.Dataset.range(1).map(fail).repeat())
    for _ in range(3):
        with pytest.raises(Boom):
            next(elements)
    elements.close()


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("wanted", [[2, 3], [1, 3], [3], []])
def test_a_counted_epoch_may_be_empty(wanted: list[int], shuffled: bool) -> None:
    """As where a filter draws by lot, or an epoch has failures alone, which are ignored."""
    turns = count(1)

    def one() -> Iterator[int]:
        if (turn := next(turns)) in wanted:
            yield turn

    ds = ad.Dataset.from_generator(one)
    assert list((ds.shuffle(2) if shuffled else ds).repeat(3)) == wanted
    assert next(turns) == 4


def test_what_is_known_to_be_empty_is_not_run_again_and_again() -> None:
    empty = ad.Dataset.range(0).map(abs)
    assert list(empty.repeat(10**15)) == list(empty.shuffle(3).repeat(10**15)) == []


@pytest.mark.parametrize("count", [-2, 1.5, "2"])
def test_wrong_counts_are_refused_where_they_are_given(count: Any) -> None:
    with pytest.raises(ad.PlanError, match="count"):
        ad.Dataset.range(1).repeat(count)


def test_cardinality() -> None:
    assert len(ad.Dataset.range(3).repeat(4)) == 12
    assert len(ad.Dataset.range(3).repeat(0)) == 0
    assert ad.Dataset.range(3).filter(bool).repeat(2).cardinality() == ad.UNKNOWN_CARDINALITY
    assert ad.Dataset.counter().repeat(0).cardinality() == 0


@given(start=st.integers(0, 1000), want=st.integers(1, 1000), size=st.integers(1, 200))
def test_a_block_of_several_turns_has_no_few_rows_of_one(start: int, want: int, size: int) -> None:
    """Those would be elements, and with them all the others, which may stay in arrays."""
    stop = block_end(start, start + want, size)
    assert start < stop <= start + want
    if size >= 64 and stop - start >= 64:
        bounds = [start, *range(start - start % size + size, stop, size), stop]
        assert all(after - before >= 16 for before, after in pairwise(bounds))


def marked(element: Any) -> int:
    """Write into a dict; return how often that was done before."""
    element["times"] = element.get("times", 0) + 1
    return element["times"] - 1


@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize("size", [1, 2, 20, 64, 100])
@pytest.mark.parametrize("placement", [None, "current"])
def test_who_changes_an_element_does_not_change_that_of_another_turn(size: int, count: int, placement: Any) -> None:
    for ds in (
        ad.Dataset.from_tensor_slices({"x": np.arange(size)}),
        ad.Dataset.from_tensor_slices((np.arange(size), {"x": np.arange(size)})).map(lambda _, inner: inner),
        ad.Dataset.from_list([{"x": number} for number in range(size)]),
        ad.Dataset.from_tensors({"x": size}),
    ):
        turns = ds.repeat(count).map(marked).with_options(ad.Options(placement=placement))
        assert set(turns) == set(turns) == {0}
