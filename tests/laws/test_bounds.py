"""How far a pipeline may run ahead of its consumer, and how many calls may run at once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from tests import reference
from tests.laws import functions, pipelines
from tests.laws.pipelines import FIRST, Pipeline, Step
from tests.reference import Failed

PLAIN = ad.Options(optimize=False, placement="current")


class Source:
    """A generator that counts what was pulled out of it."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.pulled = 0

    def __call__(self) -> Iterator[int]:
        for number in range(self.count):
            self.pulled += 1
            yield number


class Gauge:
    """Counts calls, and how many of them run at once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.calls = self.running = self.most = 0

    def __enter__(self) -> None:
        with self.lock:
            self.calls += 1
            self.running += 1
            self.most = max(self.most, self.running)

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.running -= 1

    def plain(self, x: Any) -> Any:
        with self:
            return x

    async def crossing(self, x: Any) -> Any:
        with self:
            for _ in range(x % 5):
                await asyncio.sleep(0)
            return x


def ahead(prefetch: int) -> int:
    return prefetch + max(1, prefetch // 4)


async def settle() -> None:
    """Let everything run that can run without the consumer."""
    for _ in range(200):
        await asyncio.sleep(0)


@given(size=st.integers(1, 40), steps=st.lists(st.integers(1, 9), max_size=6))
def test_prefetch_never_runs_further_ahead_than_promised(size: int, steps: list[int]) -> None:
    async def body() -> None:
        gauge, consumed = Gauge(), 0
        ds = ad.Dataset.range(1000).map(gauge.plain).prefetch(size).with_options(PLAIN)
        async with ds.iterate() as elements:
            for step in steps:
                for _ in range(step):
                    await anext(elements)
                    consumed += 1
                    assert gauge.calls <= consumed + ahead(size)
                await settle()
                assert gauge.calls <= consumed + ahead(size)
                assert gauge.calls >= consumed + size

    asyncio.run(body())


@pytest.mark.parametrize("placement", ["thread", "current"])
@given(size=st.integers(0, 20), count=st.integers(1, 30))
def test_a_generator_is_asked_for_no_more_than_promised(placement: Any, size: int, count: int) -> None:
    source = Source(1000)
    options = ad.Options(optimize=False, placement=placement)
    with ad.Dataset.from_generator(source).prefetch(size).with_options(options).iterate() as elements:
        for consumed in range(1, count + 1):
            next(elements)
            assert source.pulled <= consumed + (ahead(size) if size else 0)


@given(count=st.integers(0, 50), optimize=st.booleans())
def test_take_calls_a_function_no_more_often_than_it_takes(count: int, optimize: bool) -> None:
    gauge = Gauge()
    ds = ad.Dataset.range(100).map(gauge.plain).take(count)
    assert len(list(ds.with_options(ad.Options(optimize=optimize)))) == count == gauge.calls


@given(count=st.integers(0, 30), placement=st.sampled_from(["thread", "current"]))
def test_without_prefetch_a_consumer_that_stops_has_caused_no_further_calls(count: int, placement: Any) -> None:
    gauge = Gauge()
    ds = ad.Dataset.range(100).map(gauge.plain).with_options(ad.Options(optimize=False, placement=placement))
    with ds.iterate() as elements:
        for _ in range(count):
            next(elements)
    assert gauge.calls == count


def mixed(inputs: list[ad.Dataset[Any]], choices: ad.Dataset[Any] | None) -> ad.Dataset[Any]:
    """Several datasets in an order that is drawn, or the one that is given."""
    if choices is None:
        return ad.Dataset.sample_from_datasets(inputs, [0.6, 0.3, 0.1], seed=1)
    return ad.Dataset.choose_from_datasets(inputs, choices)


@pytest.mark.parametrize("placement", ["thread", "current"])
@given(size=st.integers(0, 20), count=st.integers(0, 60), by_choice=st.booleans())
def test_a_mixture_asks_its_inputs_for_no_more_than_promised(
    placement: Any, size: int, count: int, by_choice: bool
) -> None:
    inputs, choices = [Gauge() for _ in range(3)], Gauge()
    numbers = ad.Dataset.range(1000)
    chosen = numbers.map(choices.plain).map(lambda x: x % 3) if by_choice else None
    ds = mixed([numbers.map(gauge.plain) for gauge in inputs], chosen).prefetch(size)
    with ds.with_options(ad.Options(optimize=False, placement=placement)).iterate() as elements:
        for consumed in range(1, count + 1):
            next(elements)
            limit = consumed + (ahead(size) if size else 0)
            assert sum(gauge.calls for gauge in inputs) <= limit
            assert choices.calls <= limit


@given(count=st.integers(0, 100), by_choice=st.booleans(), optimize=st.booleans())
def test_take_of_a_mixture_reads_no_more_of_its_inputs_than_it_takes(
    count: int, by_choice: bool, optimize: bool
) -> None:
    gauge = Gauge()
    inputs = [ad.Dataset.range(1000).map(gauge.plain) for _ in range(3)]
    ds = mixed(inputs, ad.Dataset.range(3).repeat() if by_choice else None).take(count)
    assert len(list(ds.with_options(ad.Options(optimize=optimize)))) == count == gauge.calls


@given(count=st.integers(0, 60))
def test_a_shuffle_of_several_parts_reads_no_more_of_them_than_is_taken(count: int) -> None:
    gauge = Gauge()
    part = ad.Dataset.range(500).map(gauge.plain)
    ds = part.concatenate(part.repeat(3)).shuffle(seed=1).take(count).with_options(ad.Options(optimize=False))
    assert len(list(ds)) == count == gauge.calls


@given(calls=st.integers(1, 8), coroutine=st.booleans(), ordered=st.booleans(), length=st.integers(0, 40))
def test_no_more_calls_at_once_than_asked_for(calls: int, coroutine: bool, ordered: bool, length: int) -> None:
    gauge = Gauge()
    fn = gauge.crossing if coroutine else gauge.plain
    ds = ad.Dataset.range(length).map(fn, num_parallel_calls=calls, deterministic=ordered)
    assert sorted(ds) == list(range(length))
    assert gauge.calls == length
    assert gauge.most <= calls


@given(calls=st.integers(1, 6), taken=st.integers(0, 20))
def test_a_parallel_map_works_ahead_within_its_window(calls: int, taken: int) -> None:
    """Of a map of n calls: at most n are running and n wait for their turn, beside what was consumed."""

    async def body() -> None:
        gauge = Gauge()
        ds = ad.Dataset.range(1000).map(gauge.crossing, num_parallel_calls=calls).with_options(PLAIN)
        async with ds.iterate() as elements:
            for _ in range(taken):
                await anext(elements)
            await settle()
            assert gauge.calls <= taken + 2 * calls + 1

    asyncio.run(body())


@given(cycle=st.integers(1, 6), taken=st.integers(0, 20))
def test_interleave_opens_no_more_inputs_than_its_cycle(cycle: int, taken: int) -> None:
    opened = Gauge()

    def inner(x: int) -> ad.Dataset:
        return ad.Dataset.from_tensors(opened.plain(x)).repeat(1000)

    ds = ad.Dataset.range(100).interleave(inner, cycle_length=cycle).with_options(ad.Options(optimize=False))
    with ds.iterate() as elements:
        for _ in range(taken):
            next(elements)
    assert opened.calls <= cycle


def raising(_: ad.Dataset) -> ad.Dataset:
    raise ValueError


@given(
    cycle=st.integers(1, 5),
    size=st.integers(1, 4),
    taken=st.integers(0, 20),
    ordered=st.booleans(),
    made=st.sampled_from([lambda rows: rows, lambda rows: rows.map(lambda x: x), raising]),
)
def test_a_parallel_interleave_opens_few_inputs_ahead(
    cycle: int, size: int, taken: int, ordered: bool, made: Any
) -> None:
    """So many as its cycle has are open, and so many stand by, however short they are, and if they are failures."""
    opened = Gauge()

    def inner(x: int) -> ad.Dataset:
        return made(ad.Dataset.range(size + opened.plain(0)))

    async def body() -> None:
        ds = ad.Dataset.range(1000).interleave(inner, cycle, num_parallel_calls=cycle, deterministic=ordered)
        async with ds.with_options(PLAIN).iterate() as elements:
            for _ in range(taken):
                with contextlib.suppress(ValueError):
                    await anext(elements)
            await settle()
            assert opened.calls <= -(-taken // (1 if made is raising else size)) + 2 * cycle + 1

    asyncio.run(body())


def test_a_generator_that_never_ends_is_pulled_by_take_alone() -> None:
    source = Source(10**9)
    ds = ad.Dataset.from_generator(source).take(5).with_options(ad.Options(optimize=False))
    assert list(ds) == [0, 1, 2, 3, 4]
    assert source.pulled == 5


def test_autotuned_prefetch_stays_small_for_a_consumer_that_keeps_up() -> None:
    async def body() -> int:
        gauge = Gauge()
        ds = ad.Dataset.range(10_000).map(gauge.plain).prefetch(ad.AUTOTUNE).with_options(PLAIN)
        async with ds.iterate() as elements:
            for _ in range(500):
                await anext(elements)
                await settle_little()
            return gauge.calls - 500

    assert asyncio.run(body()) <= ahead(2)


async def settle_little() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def increment(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    return pipelines.mapped(pipe, functions.increment)


ENDLESS = Pipeline("range(1).repeat()", lambda: ad.Dataset.range(1).repeat(), lambda _: itertools.repeat(0))
"""What stands beside a dataset: of one, as much is read as is wanted before another one is known to end."""


def zipped(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    return replace(
        pipe,
        text=f"zip({pipe}, {ENDLESS})",
        build=lambda: ad.Dataset.zip(pipe.build(), ENDLESS.build()),
        meaning=lambda epoch: reference.zip_(pipe.meaning(epoch), ENDLESS.meaning(epoch)),
    )


def sampled(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    if not pipelines.alike(pipe, ENDLESS):
        return pipe
    pipes = draw(st.permutations([pipe, ENDLESS]))
    weights, seed = draw(st.sampled_from([[1.0, 1.0], [0.7, 0.3], [2.0, 5.0]])), draw(st.integers(0, 3))
    return replace(
        pipe,
        text=f"sample_from_datasets({pipes}, {weights}, {seed})",
        build=lambda: ad.Dataset.sample_from_datasets([one.build() for one in pipes], weights, seed, True),
        meaning=lambda epoch: reference.sample_from_datasets(
            [one.meaning(epoch) for one in pipes], weights, seed, (), True
        ),
        counted=False,
    )


def chosen(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    if not pipelines.alike(pipe, ENDLESS):
        return pipe
    pipes, choices = draw(st.permutations([pipe, ENDLESS])), draw(st.lists(st.integers(0, 1), max_size=60))
    return replace(
        pipe,
        text=f"choose_from_datasets({pipes}, {choices})",
        build=lambda: ad.Dataset.choose_from_datasets(
            [one.build() for one in pipes], ad.Dataset.from_iterable(choices)
        ),
        meaning=lambda epoch: reference.choose_from_datasets([one.meaning(epoch) for one in pipes], choices),
        counted=False,
    )


EXACT_STEPS: tuple[Step, ...] = (
    *(increment, pipelines.filter_, pipelines.take, pipelines.skip, pipelines.shard, pipelines.enumerate_),
    *(pipelines.batch, pipelines.padded_batch, pipelines.ragged_batch, pipelines.rebatch, pipelines.unbatch),
    *(pipelines.window, pipelines.scan, pipelines.take_while, pipelines.unique, pipelines.distinct),
    *(pipelines.group_by_window, pipelines.group_all, pipelines.bucket_by_sequence_length),
    *(pipelines.group_by_reducer, pipelines.rejection_resample, pipelines.ignore_errors),
    *(pipelines.pack_sequences, pipelines.bucket_by_token_count, pipelines.flat_map, pipelines.interleave),
    *(pipelines.balance, pipelines.repeat, pipelines.concatenate, zipped, pipelines.shuffle, pipelines.cache),
    *(sampled, chosen),
    *(pipelines.assert_cardinality, pipelines.pad_to_cardinality, pipelines.rate_limit),
)
"""What reads no more of its input than it needs for what is asked for: a failure beside a batch waits for that one.

For so many rows `pack_sequences` asks for as many sequences, where one that is split may give several.
"""


ONES_THAT_READ_AHEAD = ("inject_prefetch", "map_parallelisation", "shuffle_and_repeat_fusion")
"""Functions that are pure are called on several elements at once; as one, shuffle and repeat fill the buffer with the
next epoch while it drains."""


@st.composite
def exact_pipelines(draw: st.DrawFn, source: Pipeline) -> Pipeline:
    """A pipeline of one to three steps in which nothing fails and nothing runs at once."""
    pipe = source
    for step in draw(st.lists(st.sampled_from(EXACT_STEPS), min_size=1, max_size=3)):
        longer = step(draw, pipe)
        found = list(longer.meaning(FIRST))
        exact = "parallel" not in longer.text and "split" not in longer.text
        if exact and len(found) < 300 and not any(isinstance(one, Failed) for one in found):
            pipe = longer
    return pipe


@given(data=st.data(), optimize=st.booleans(), placement=st.sampled_from(["thread", "current"]))
def test_no_more_is_read_than_what_is_asked_for_needs(data: st.DataObject, optimize: bool, placement: Any) -> None:
    """What each element needs, the reference tells, which reads its input one by one."""
    engine, needed = Gauge(), Gauge()
    count = data.draw(pipelines.counts(40, 17, 5))
    source = Pipeline(
        f"range({count})", lambda: ad.Dataset.range(count).map(engine.plain), lambda _: map(needed.plain, range(count))
    )
    pipe = data.draw(exact_pipelines(source))
    options = ad.Options(optimize=optimize, disabled_rules=ONES_THAT_READ_AHEAD, placement=placement)
    needed.calls = 0
    with pipe.build().with_options(options).iterate() as elements:
        for place, _ in enumerate(pipe.meaning(FIRST)):
            next(elements)
            assert engine.calls <= needed.calls, f"to deliver element {place}"


@given(size=st.integers(1, 9), taken=st.integers(0, 30), placement=st.sampled_from(["thread", "current"]))
def test_a_map_of_batches_reads_whole_batches_and_no_more(size: int, taken: int, placement: Any) -> None:
    gauge = Gauge()
    ds = ad.Dataset.range(100).map(gauge.plain).map(lambda batch: batch + 1, batch=size)
    with ds.with_options(ad.Options(optimize=False, placement=placement)).iterate() as elements:
        for consumed in range(1, taken + 1):
            next(elements)
            assert gauge.calls <= -(-consumed // size) * size


@given(calls=st.integers(1, 6), taken=st.integers(0, 20), ordered=st.booleans())
def test_a_parallel_filter_works_ahead_within_its_window(calls: int, taken: int, ordered: bool) -> None:
    """What is dropped makes room: beside what was needed, at most n calls run and n elements wait.

    One in three stays. Those in the window may all be dropped, if others overtake them.
    """
    needed = 3 * taken if ordered else 3 * (taken + 2 * calls)

    async def body() -> None:
        gauge = Gauge()

        async def third(x: int) -> bool:
            return await gauge.crossing(x) % 3 == 0

        ds = ad.Dataset.range(1000).filter(third, num_parallel_calls=calls, deterministic=ordered).with_options(PLAIN)
        async with ds.iterate() as elements:
            for _ in range(taken):
                await anext(elements)
            await settle()
            assert gauge.most <= calls
            assert gauge.calls <= needed + 2 * calls + 1

    asyncio.run(body())
