from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.elements.columns import ColumnBatch
from asyncdata.runtime.block import Block
from asyncdata.runtime.tickets import Ordinals
from asyncdata.testing import check_transform
from asyncdata.transforms.skip import Skipper
from tests.reference import Boom, Failed
from tests.running import WAYS, read_plain, taken


@pytest.mark.parametrize("count", [-1, 0, 1, 5, 1000])
def test_take_keeps_its_contract(count: int) -> None:
    check_transform(lambda ds: ds.take(count), lambda items: items if count < 0 else items[:count])


@pytest.mark.parametrize("count", [-1, 0, 1, 5, 1000])
def test_skip_keeps_its_contract(count: int) -> None:
    check_transform(lambda ds: ds.skip(count), lambda items: [] if count < 0 else items[count:])


def test_many_are_dropped_at_once_and_more_that_lie_in_small_rows() -> None:
    def asked_for(*inputs: list[Any] | ColumnBatch) -> list[int]:
        step = Skipper(10_000)
        asked = [step.need(1)]
        for items in inputs:
            tickets = Ordinals(0, len(items))
            step.feed(Block.of_columns([items], tickets) if isinstance(items, ColumnBatch) else Block(items, tickets))
            asked.append(step.need(1))
        return asked

    small, large = (ColumnBatch(np.zeros((1000, width)), 1000) for width in (1, 1000))
    assert asked_for([1, 2], small, large, small, [1]) == [1024, 1024, 4096, 1024, 4096, 1024]
    assert asked_for(*9 * [small], [1] * 900)[-4:] == [3000, 2000, 1000, 100]


@pytest.mark.parametrize(("shards", "index"), [(1, 0), (2, 0), (2, 1), (7, 6)])
def test_shard_keeps_its_contract(shards: int, index: int) -> None:
    check_transform(lambda ds: ds.shard(shards, index), lambda items: items[index::shards])


def test_shards_together_are_everything() -> None:
    ds = ad.Dataset.range(23)
    assert sorted(x for index in range(4) for x in ds.shard(4, index)) == list(range(23))


def test_infinite_input() -> None:
    assert list(ad.Dataset.counter().skip(5).shard(3, 1).take(3)) == [6, 9, 12]


def test_several_in_a_row() -> None:
    ds = ad.Dataset.range(100)
    assert list(ds.take(50).take(10).skip(3).skip(4)) == [7, 8, 9]
    assert list(ds.skip(5).take(4).shard(2, 1).take(-1)) == [6, 8]
    assert list(ds.shard(3, 1).shard(2, 1)) == list(range(100))[1::3][1::2]


@pytest.mark.parametrize("how", [{}, {"num_parallel_calls": 3}], ids=str)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_failure_counts_as_an_element(how: dict[str, Any], way: Any) -> None:
    def fail_on_even(x: int) -> int:
        if x % 2 == 0:
            raise Boom(x)
        return x

    ds = ad.Dataset.range(8).map(fail_on_even, **how)
    assert way(ds.take(3)) == [Failed("Boom(0)"), 1, Failed("Boom(2)")]
    assert way(ds.skip(5)) == [5, Failed("Boom(6)"), 7]
    assert way(ds.shard(4, 2)) == [Failed("Boom(2)"), Failed("Boom(6)")]


@pytest.mark.parametrize(
    "above",
    [
        lambda ds: ds,
        lambda ds: ds.filter(lambda x: x % 3 != 1),
        lambda ds: ds.batch(2),
        lambda ds: ds.skip(2),
        lambda ds: ds.unique(),
        lambda ds: ds.flat_map(lambda x: ad.Dataset.range(x)),
        lambda ds: ds.take(4),
    ],
)
def test_a_state_right_after_the_failure_of_a_source_says_what_is_left_to_skip(tmp_path: Path, above: Any) -> None:
    (tmp_path / "a").write_text("\n".join(map(str, range(10))))

    def build() -> ad.Dataset[Any]:
        return above(ad.JsonLinesDataset([tmp_path / "missing", tmp_path / "a"]).skip(3))

    with build().iterate() as elements:
        first, state = taken(elements, 1), json.loads(json.dumps(elements.state_dict()))
        rest = taken(elements)
    assert [type(element) for element in first] == [Failed]
    with build().iterate(state=state) as elements:
        assert [*map(str, taken(elements))] == [*map(str, rest)]


def test_a_sequential_function_is_called_for_what_is_skipped_too() -> None:
    """A plain function may have effects: which elements it sees depends on no rewrite."""
    calls: list[int] = []
    assert list(ad.Dataset.range(6).map(lambda x: calls.append(x) or x).skip(4)) == [4, 5]
    assert calls == list(range(6))


def test_the_source_of_take_is_closed_when_it_has_enough() -> None:
    closed: list[bool] = []

    def generate() -> Any:
        try:
            while True:
                yield 1
        finally:
            closed.append(True)

    assert read_plain(ad.Dataset.from_generator(generate).take(2)) == [1, 1]
    assert closed == [True]


def test_take_nothing_starts_nothing() -> None:
    def generate() -> Any:
        raise AssertionError("was started")
        yield

    assert list(ad.Dataset.from_generator(generate).take(0)) == []


@pytest.mark.parametrize("count", [-2, 1.5, None, "1"])
@pytest.mark.parametrize("method", ["take", "skip"])
def test_wrong_counts_are_refused_where_they_are_given(method: str, count: Any) -> None:
    with pytest.raises(ad.PlanError, match="count"):
        getattr(ad.Dataset.range(1), method)(count)


@pytest.mark.parametrize(("shards", "index"), [(0, 0), (-1, 0), (2, 2), (2, -1), (2.5, 0), (2, None)])
def test_wrong_shards_are_refused_where_they_are_given(shards: Any, index: Any) -> None:
    with pytest.raises(ad.PlanError, match="num_shards|index"):
        ad.Dataset.range(1).shard(shards, index)


def test_cardinality() -> None:
    ten, endless, unknown = ad.Dataset.range(10), ad.Dataset.counter(), ad.Dataset.range(9).filter(bool)
    assert [len(ten.take(3)), len(ten.take(30)), len(ten.take(-1)), len(endless.take(3))] == [3, 10, 10, 3]
    assert [len(ten.skip(3)), len(ten.skip(30)), len(ten.skip(-1))] == [7, 0, 0]
    assert [len(ten.shard(3, index)) for index in range(3)] == [4, 3, 3]
    assert len(ad.Dataset.range(1).shard(3, 2)) == 0
    assert endless.skip(3).cardinality() == endless.shard(2, 0).cardinality() == ad.INFINITE_CARDINALITY
    assert unknown.take(3).cardinality() == unknown.skip(3).cardinality() == ad.UNKNOWN_CARDINALITY
    assert unknown.take(0).cardinality() == 0
