"""Steps that leave elements out ask for more at a time where a buffer keeps what comes too early, and nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.executors import function_call
from asyncdata.graph.stages import CLOSE_LOOKS
from asyncdata.runtime.block import MOST_AHEAD, Demand
from asyncdata.steps import Block, Fold, Step, Unary
from asyncdata.testing import check_resumes, virtual_time

COUNT = 6000
RARE = 997
LEFT = range(RARE - 1, COUNT, RARE)
HOUR = 3600.0

Transform = Callable[[Any], Any]


def number(x: Any) -> int:
    return int(np.ravel(x[0] if isinstance(x, tuple) else x)[0])


def is_rare(x: Any) -> bool:
    return number(x) % RARE == RARE - 1


def only_rare(x: Any) -> Any:
    if is_rare(x):
        return x
    raise ValueError(f"{number(x)} is common")


def kind(x: Any) -> int:
    return number(x) + 1 if is_rare(x) else 0


STEPS: dict[str, Transform] = {
    "filter": lambda ds: ds.filter(is_rare),
    "filter, map": lambda ds: ds.filter(is_rare).map(lambda x: x),
    "map, filter": lambda ds: ds.map(lambda x: x).filter(is_rare),
    "unique": lambda ds: ds.map(kind).unique().filter(bool),
    "distinct": lambda ds: ds.map(kind).distinct().filter(bool),
    "ignore_errors": lambda ds: ds.map(only_rare).ignore_errors(),
    "ignore_errors with a budget": lambda ds: ds.map(only_rare).ignore_errors(max_errors=COUNT),
    "unbatch": lambda ds: ds.map(lambda x: np.full(int(is_rare(x)), number(x))).unbatch(),
    "rejection_resample": lambda ds: ds.rejection_resample(lambda x: int(is_rare(x)), [0.0, 1.0], [0.5, 0.5]),
    "group_by_window": lambda ds: ds.group_by_window(lambda _: 0, lambda _, group: group.batch(RARE), RARE),
}


@dataclass(frozen=True, eq=False)
class Looked(Unary):
    """The elements of its input, and in a list how many came in each block."""

    sizes: list[int]

    def stage(self) -> Fold:
        return Fold(lambda _: Looker(self.sizes))


class Looker(Step):
    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes

    def feed(self, block: Block) -> Block:
        self.sizes.append(len(block))
        return block


def looked(ds: ad.Dataset, sizes: list[int]) -> ad.Dataset:
    return ad.Dataset(Looked(ds.plan, sizes))


def lines(folder: Path) -> ad.Dataset:
    (folder / "lines.txt").write_text("".join(f"{x}\n" for x in range(COUNT)))
    return ad.TextLineDataset(folder / "lines.txt").map(int)


SOURCES: dict[str, Callable[[Path], ad.Dataset]] = {
    "range": lambda _: ad.Dataset.range(COUNT),
    "generator": lambda _: ad.Dataset.from_generator(lambda: iter(range(COUNT))),
    "shuffle": lambda _: ad.Dataset.range(COUNT).shuffle(100, seed=1),
    "files": lines,
    "unbatch": lambda _: ad.Dataset.range(COUNT).batch(100).unbatch(),
    "interleave": lambda _: ad.Dataset.range(60).interleave(
        lambda x: ad.Dataset.range(x * 100, x * 100 + 100), cycle_length=4
    ),
    "flat_map": lambda _: ad.Dataset.range(60).flat_map(lambda x: ad.Dataset.range(x * 100, x * 100 + 100)),
    "zip": lambda _: ad.Dataset.zip((ad.Dataset.range(COUNT), ad.Dataset.range(COUNT))).map(lambda x, _: x),
    "cache": lambda _: ad.Dataset.range(COUNT).cache(),
}
CALM = {name: source for name, source in SOURCES.items() if name not in ("generator", "interleave", "flat_map")}
"""Sources that give as many elements at a time as they are asked for."""


@pytest.mark.parametrize("placement", ["thread", "current"])
@pytest.mark.parametrize("step", [name for name in STEPS if name != "unbatch"])
def test_what_leaves_most_out_reads_many_at_a_time(step: str, placement: Any) -> None:
    sizes: list[int] = []
    ds = STEPS[step](looked(ad.Dataset.range(COUNT), sizes))
    list(ds.with_options(ad.Options(placement=placement)))
    assert sum(sizes) == COUNT
    assert len(sizes) < COUNT / 16
    assert max(sizes) <= MOST_AHEAD[0] or step == "group_by_window"  # which knows how many it needs


@pytest.mark.parametrize("source", CALM)
def test_so_it_does_from_each_source(source: str, tmp_path: Path) -> None:
    sizes: list[int] = []
    found = list(looked(SOURCES[source](tmp_path), sizes).filter(is_rare))
    assert sorted(map(number, found)) == [*LEFT]
    assert len(sizes) < COUNT / 16


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("placement", ["thread", "current", "process"])
def test_the_elements_are_those_of_a_run_that_does_not_read_ahead(source: str, placement: Any, tmp_path: Path) -> None:
    ds = SOURCES[source](tmp_path).filter(is_rare)
    alone = list(ds.with_options(ad.Options(optimize=False, placement="current")))
    assert sorted(map(number, alone)) == [*LEFT]
    assert list(ds.with_options(ad.Options(placement=placement))) == alone


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("source", ["range", "shuffle", "generator"])
def test_states_are_exact(source: str, step: str, tmp_path: Path) -> None:
    check_resumes(lambda: STEPS[step](SOURCES[source](tmp_path)), places=5)


def test_a_state_between_two_elements_of_one_block_is_exact() -> None:
    def late(x: int) -> bool:
        return x >= 1000

    check_resumes(lambda: ad.Dataset.range(1300).filter(late), places=40)
    check_resumes(lambda: ad.Dataset.range(1300).shuffle(50, seed=1).map(late).unique(), places=40)


def called_for(ds: Transform, options: ad.Options) -> int:
    """How many elements are read for one."""
    sizes: list[int] = []
    with ds(looked(ad.Dataset.range(COUNT), sizes)).with_options(options).iterate() as elements:
        next(elements)
    return sum(sizes)


@pytest.mark.parametrize("rare", [1, 2, 40, 500, 3000])
def test_at_most_as_many_are_read_too_many_as_were_needed(rare: int) -> None:
    def first(ds: Any) -> Any:
        return ds.filter(lambda x: x == rare).take(1).prefetch(1)

    needed = rare + 1
    assert called_for(first, ad.Options(optimize=False)) < min(2 * needed, needed + MOST_AHEAD[0])


def test_nothing_is_read_too_early_where_no_buffer_keeps_it() -> None:
    def first(ds: Any) -> Any:
        return ds.filter(is_rare).take(1)

    assert called_for(first, ad.Options(optimize=False)) == RARE
    assert called_for(first, ad.Options(disabled_rules=("inject_prefetch",))) == RARE
    sizes: list[int] = []
    assert looked(ad.Dataset.range(COUNT), sizes).filter(is_rare).head(1) == [RARE - 1]
    assert sum(sizes) == RARE


def test_few_large_elements_are_read_at_a_time() -> None:
    sizes: list[int] = []
    pictures = ad.Dataset.range(300).map(lambda x: np.full(MOST_AHEAD[1] // 4, x % 256, np.uint8))
    dropped = looked(pictures, sizes).filter(lambda _: False).prefetch(1)
    assert list(dropped.with_options(ad.Options(optimize=False))) == []
    assert max(sizes) <= 4


def test_a_demand_grows_while_nothing_comes_and_shrinks_after() -> None:
    demand, sizes = Demand(ahead=True), list[int]()
    for made in [0] * 10 + [1] * 10:
        demand.ask(1)
        sizes.append(demand.items)
        demand.came(Block([0] * demand.items), made)
    assert sizes == [1, 2, 4, 8, 16, 32, 64, 128, 256, 256, 256, 128, 64, 32, 16, 8, 4, 2, 1, 1]


def test_a_reader_that_wants_many_is_not_given_several_times_as_many() -> None:
    demand = Demand(ahead=True)
    for _ in range(10):
        demand.ask(1)
        demand.came(Block([0] * demand.items), 0)
    demand.ask(3)
    assert demand.items == MOST_AHEAD[0]
    demand.ask(5000)
    assert demand.items == 5000


def test_a_demand_does_not_grow_where_less_came_than_was_asked_for() -> None:
    demand = Demand(8, ahead=True)
    demand.came(Block([0] * 7), 0)
    assert demand.times == 1


BETWEEN: dict[str, Transform] = {
    "nothing": lambda ds: ds,
    "map": lambda ds: ds.map(lambda x: x),
    "an awaited map": lambda ds: ds.map(slept),
    "awaited maps": lambda ds: ds.map(slept, num_parallel_calls=3),
    "shuffle": lambda ds: ds.shuffle(1),
    "batch": lambda ds: ds.batch(1).unbatch(),
    "scan": lambda ds: ds.scan(0, lambda count, x: (count + 1, x)),
    "zip": lambda ds: ad.Dataset.zip((ds, ad.Dataset.counter())).map(lambda x, _: x),
    "flat_map": lambda ds: ds.flat_map(lambda x: ad.Dataset.from_tensors(x)),
    "interleave": lambda ds: ds.interleave(lambda x: ad.Dataset.from_tensors(x), cycle_length=1),
    "prefetch": lambda ds: ds.prefetch(300),
    "cache": lambda ds: ds.cache(),
}


async def slept(x: int) -> int:
    await asyncio.sleep(0)
    return x


@pytest.mark.parametrize(
    ("step", "between"),
    [*[(step, "nothing") for step in STEPS if step != "group_by_window"], *[("filter", name) for name in BETWEEN]],
)
def test_a_ready_element_does_not_wait_for_others(step: str, between: str) -> None:
    """After the elements that it comes with, the source pauses for an hour; nothing may hold the one that is ready."""

    async def source() -> AsyncIterator[int]:
        for x in range(RARE):
            yield x
        yield 0  # for the buffer of a shuffle
        await asyncio.sleep(HOUR)

    async def body() -> None:
        ds = STEPS[step](BETWEEN[between](ad.Dataset.from_async_iterable(source())))
        async with ds.with_options(ad.Options(placement="current")).iterate() as elements:
            await anext(elements)
        assert asyncio.get_running_loop().time() < HOUR

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        runner.run(body())


@pytest.mark.parametrize("slow", ["map", "filter"])
def test_a_function_that_becomes_slow_holds_few_back(slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is as if no call may be made any more whenever the clock is looked at."""
    called: list[int] = []

    def call(x: int) -> bool:
        called.append(x)
        return x >= 1000

    many = ad.Dataset.range(2000)
    ds = many.filter(lambda x: x >= 1000).map(call) if slow == "map" else many.filter(call)
    monkeypatch.setattr(function_call, "LATE", -1.0)
    with ds.with_options(ad.Options(placement="current")).iterate() as elements:
        next(elements)
        assert sum(x >= 1000 for x in called) <= 2 * CLOSE_LOOKS


@pytest.mark.parametrize("ahead", [True, False])
def test_many_inner_datasets_are_read_some_turns_ahead(ahead: bool) -> None:
    sizes: list[int] = []
    many, each = 64, 40
    ds = ad.Dataset.range(many).interleave(
        lambda x: looked(ad.Dataset.range(each).map(lambda y: (x, y)), sizes), cycle_length=many
    )
    options = ad.Options() if ahead else ad.Options(disabled_rules=("inject_prefetch",))
    found = list(ds.with_options(options))
    assert found == [(x, y) for y in range(each) for x in range(many)]
    assert max(sizes) <= 16
    assert len(sizes) < many * each / 4 if ahead else len(sizes) == many * each
