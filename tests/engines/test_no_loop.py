"""A few elements of what never waits: read in the calling thread, with no loop, no task and no thread."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.engines.no_loop import elements_by_hand
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import Unary
from asyncdata.graph.stages import Opener, Rerun
from asyncdata.planning import optimizer
from asyncdata.planning.optimizer import Planner
from asyncdata.runtime.block import Blocks, Demand
from asyncdata.runtime.tickets import FRESH
from asyncdata.testing import leaves_nothing
from tests.reference import Boom


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no pipeline run on a loop."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("an engine was started")

    for name in ("thread_engine", "LoopEngine", "TaskEngine"):
        monkeypatch.setattr(f"asyncdata.iterator.{name}", refuse)


async def awaited(x: Any) -> Any:
    return x


async def awaited_pair(state: int, x: int) -> tuple[int, int]:
    return state + x, state


async def awaited_sum(state: int, x: int) -> int:
    return state + x


def generated() -> Iterator[int]:
    yield from range(3)


async def streamed() -> AsyncIterator[int]:
    yield 1


def fail_at_1(x: int) -> int:
    if x == 1:
        raise Boom(x)
    return x


NUMBERS = ad.Dataset.range(20)

BY_HAND: dict[str, ad.Dataset[Any]] = {
    "memory": NUMBERS.enumerate().take(9).skip(1).shard(2, 1).repeat(2),
    "arrays": ad.Dataset.from_tensor_slices(np.arange(12).reshape(6, 2)).shuffle(4, seed=1).batch(3),
    "batches": ad.Dataset.from_list([[1], [2, 3]]).padded_batch(2).unbatch().prefetch(2),
    "functions": NUMBERS.map(abs).filter(bool).map(lambda xs: xs + 1, batch=4),
    "memories": NUMBERS.scan(0, lambda total, x: (total + x, total)).take_while(lambda x: x < 50).unique().distinct(),
    "several": ad.Dataset.zip(NUMBERS, NUMBERS.concatenate(NUMBERS).shuffle(seed=2)),
    "mixed": ad.Dataset.sample_from_datasets([NUMBERS, ad.Dataset.counter()], seed=1).window(3),
    "chosen": ad.Dataset.choose_from_datasets([NUMBERS, NUMBERS], ad.Dataset.range(2).repeat()).cache(),
    "read ahead": NUMBERS.prefetch(3).batch(2).prefetch(ad.AUTOTUNE),
    "shuffle and repeat": NUMBERS.shuffle(5, seed=1).repeat(),
    "here anyway": NUMBERS.with_options(ad.Options(placement="current")),
    "as it is": NUMBERS.shuffle(9, seed=3).repeat(2).with_options(ad.Options(optimize=False)),
}

MAY_WAIT: dict[str, Callable[[], ad.Dataset[Any]]] = {
    "threads": lambda: NUMBERS.map(abs, num_parallel_calls=2),
    "pure": lambda: NUMBERS.map(abs, pure=True).batch(2),
    "coroutine function": lambda: NUMBERS.map(awaited),
    "awaited predicate": lambda: NUMBERS.take_while(awaited),
    "awaited key": lambda: NUMBERS.distinct(awaited),
    "awaited state": lambda: NUMBERS.scan(0, awaited_pair),
    "awaited sum": lambda: NUMBERS.group_by_reducer(
        lambda x: x % 3, ad.Reducer(lambda key: 0, awaited_sum, lambda total: total)
    ),
    "flat_map": lambda: NUMBERS.flat_map(ad.Dataset.range),
    "interleave": lambda: NUMBERS.skip(1).interleave(ad.Dataset.range),
    "generator": lambda: ad.Dataset.from_generator(generated).batch(2),
    "source": lambda: ad.Dataset.from_source(range(3)),
    "rate": lambda: NUMBERS.rate_limit(1e6),
    "in a thread": lambda: NUMBERS.with_options(ad.Options(placement="thread")),
    "one of two": lambda: NUMBERS.concatenate(ad.Dataset.from_generator(generated)),
}


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize("name", BY_HAND)
def test_what_never_waits_needs_no_engine(name: str) -> None:
    ds = BY_HAND[name]
    assert len(ds.head(3)) > 0
    assert repr(ds.peek()) == repr(ds.head(1)[0])
    assert ds.take(1).get_single_element() is not None


@pytest.mark.parametrize("name", MAY_WAIT)
def test_what_may_wait_runs_as_an_iterator_does(name: str) -> None:
    ds = MAY_WAIT[name]()
    assert Planner(ds.options()).runs_by_hand(ds.plan) is None
    with leaves_nothing():
        found = ds.head(2)
    assert repr(found) == repr(list(MAY_WAIT[name]().take(2)))


@pytest.mark.usefixtures("no_engine")
def test_a_running_loop_is_no_hindrance() -> None:
    ds = NUMBERS.map(lambda x: (x, threading.current_thread().name)).prefetch(2)

    async def on_a_loop() -> list[Any]:
        return [*ds.head(2), ds.peek(), ds[3], ds.take(1).get_single_element(), ds.skip(4).element_spec[0].dtype]

    here = threading.current_thread().name
    expected = [(0, here), (1, here), (0, here), (3, here), (0, here), np.dtype(np.int64)]
    assert asyncio.run(on_a_loop(), debug=True) == expected


@pytest.mark.usefixtures("no_engine")
def test_no_more_is_called_than_is_asked_for() -> None:
    seen: list[int] = []

    def note(x: int) -> int:
        seen.append(x)
        return x

    ds = NUMBERS.map(note).prefetch(5)
    assert ds.head(0) == seen == []
    assert ds.head(3) == seen == [0, 1, 2]
    assert ds[7] == 7
    with pytest.raises(ad.StructureError, match="more than one"):
        ds.get_single_element()
    assert seen == [0, 1, 2, 7, 0, 1]


def thread_of(_: Any) -> str:
    return threading.current_thread().name


class Threads:
    """A source whose elements are the names of the threads that they are read in."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> str:
        return thread_of(index)


@pytest.mark.usefixtures("no_engine")
@pytest.mark.parametrize(
    "ds",
    [
        ad.Dataset.from_source(Threads()),
        ad.Dataset.from_source(Threads(), num_parallel_calls=2).map(lambda name: name, pure=True).prefetch(1),
        NUMBERS.map(thread_of, pure=True).map(lambda name: name, ad.AUTOTUNE),
        NUMBERS.map(thread_of, executor=ad.AUTOTUNE).skip(2).repeat(2),
        ad.Dataset.from_source(Threads()).with_options(ad.Options(optimize=False)),
    ],
    ids=str,
)
def test_one_element_alone_is_made_here_where_nobody_else_was_named(ds: ad.Dataset[str]) -> None:
    assert ds[1] == threading.current_thread().name


@pytest.mark.parametrize("how", [{"num_parallel_calls": 2}, {"executor": "thread"}], ids=str)
def test_one_element_is_made_where_its_user_said(how: dict[str, Any]) -> None:
    assert NUMBERS.map(thread_of, **how)[1].startswith("asyncdata-")
    assert NUMBERS.map(thread_of, pure=True).with_options(ad.Options(placement="thread"))[1].startswith("asyncdata-")


def raised(read: Callable[[], Any]) -> list[Any]:
    """What is told of the error that a call raises."""
    with pytest.raises(BaseException) as caught:
        read()
    error = caught.value
    return [repr(error), getattr(error, "__notes__", []), repr(error.__context__), error.__suppress_context__]


def fail_and_end(x: int) -> int:
    try:
        return {}[x]
    except KeyError:
        raise SystemExit(x)  # noqa: B904  the key error is its context


@pytest.mark.parametrize(
    "ds",
    [
        NUMBERS.map(fail_at_1),
        NUMBERS.map(fail_at_1).batch(5),
        NUMBERS.map(fail_and_end),
        NUMBERS.map(fail_at_1).skip(2).map(fail_and_end),
        NUMBERS.filter(bool).assert_cardinality(3),
        NUMBERS.map(next),
        NUMBERS.map(awaited(0).send),
    ],
    ids=str,
)
def test_errors_are_those_of_an_iterator(ds: ad.Dataset[Any]) -> None:
    expected = raised(lambda: list(ds))
    with leaves_nothing():
        assert raised(lambda: ds.head(10)) == expected


@pytest.mark.usefixtures("no_engine")
def test_an_error_keeps_its_cause_and_nothing_keeps_the_error() -> None:
    def caused(x: int) -> int:
        raise Boom(x) from KeyError("why")

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(Boom) as caught:
            NUMBERS.map(caused).peek()
        assert repr(caught.value.__cause__) == "KeyError('why')"
        assert caught.value.__notes__[0].startswith("in map(")
        del caught
        assert not [found for found in gc.get_objects() if type(found) is Boom]
    finally:
        gc.enable()


def test_a_function_sees_the_callers_context_and_does_not_change_it() -> None:
    color = ContextVar("color", default="none")

    def paint(x: int) -> str:
        before = color.get()
        color.set("red")
        return before

    color.set("blue")
    assert NUMBERS.map(paint).head(2) == ["blue", "red"]
    assert color.get() == "blue"


def test_a_plan_is_rewritten_once() -> None:
    ds = NUMBERS.map(abs).map(abs).batch(4).take(1)
    with mock.patch.object(optimizer, "optimize", wraps=optimizer.optimize) as rewriting:
        for _ in range(3):
            ds.get_single_element()
            ds.head(2)
            list(ds)
    assert rewriting.call_count == 1


def test_it_takes_part_in_no_epoch() -> None:
    ds = NUMBERS.shuffle(20).map(lambda x: x)
    first = ds.head(20)
    assert ds.head(20) == first == list(ds) != list(ds)
    assert ds.head(20) == first


@dataclass(frozen=True, eq=False)
class Sleeper(Unary):
    """Says that it does not wait, and does."""

    def stage(self) -> Rerun:
        return Rerun(self.blocks, waits=False)

    async def blocks(self, scope: Scope, opener: Opener, want: Demand, position: Any) -> Blocks:
        await asyncio.get_running_loop().create_future()
        async for block in opener(scope, want, FRESH):
            yield block


def test_what_waits_although_it_should_not_is_told() -> None:
    async def on_a_loop() -> None:
        with pytest.raises(ad.StageError, match="must not wait is waiting for <Future") as caught:
            elements_by_hand(Sleeper(NUMBERS.plan), 1, 0)
        assert caught.value.__notes__ == ["this error ended the pipeline"]

    asyncio.run(on_a_loop())
