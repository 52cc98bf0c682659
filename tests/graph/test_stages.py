"""Stages do not hold what they gave out while the next is made."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.executors.inflight_window import InFlightWindow
from asyncdata.graph import stages

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncdata.runtime.block import Block, Demand


class Large:
    """Stands for a batch of many megabytes."""


@pytest.mark.parametrize(
    "then",
    [
        lambda ds: ds,
        lambda ds: ds.map(lambda one: one),
        lambda ds: ds.filter(lambda _: True),
        lambda ds: ds.enumerate(),
        lambda ds: ds.take(1000),
        lambda ds: ds.batch(1),
    ],
)
def test_what_was_given_out_is_let_go_of_before_the_next_is_made(then: Callable[[Any], Any]) -> None:
    made, most = weakref.WeakSet[Large](), 0

    def make(_: int) -> Large:
        nonlocal most
        most = max(most, len(made))
        made.add(one := Large())
        return one

    ones = ad.Dataset.counter().take(20).shuffle(1, seed=0).map(make)
    options = ad.Options(optimize=False, placement="current")
    assert list(then(ones).filter(lambda *_: False).with_options(options)) == []
    assert most == 0


def test_large_batches_are_made_one_by_one_however_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "INLINE_GROUP", 1e9)
    most = {"large": 0, "small": 0}

    def longest(name: str, size: int) -> None:
        seen: list[weakref.ref[Any]] = []

        def look(batch: Any) -> bool:
            seen.append(weakref.ref(batch))
            most[name] = max(most[name], sum(one() is not None for one in seen))
            return False

        rows = ad.Dataset.from_tensors(np.zeros(size, np.uint8)).repeat(64)
        dropped = rows.batch(4).filter(look).prefetch(16)
        assert list(dropped.with_options(ad.Options(optimize=False))) == []

    longest("large", 1 << 19)
    longest("small", 1 << 10)
    assert most["large"] == 1
    assert most["small"] > 1


@pytest.mark.parametrize(
    ("then", "least"),
    [
        (lambda ds: ds, 1),
        (lambda ds: ds.batch(8), 8),
        (lambda ds: ds.map(str).filter(len).take(1000).batch(2).batch(4), 8),
        (lambda ds: ds.shuffle(4, seed=0), 5),
        (lambda ds: ds.unbatch(), 1),
        (lambda ds: ds.prefetch(2).batch(8), 1),
    ],
)
def test_parallel_calls_know_of_how_few_elements_nothing_is_made(
    then: Callable[[Any], Any], least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, collect = list[int](), InFlightWindow.collect

    async def noted(window: InFlightWindow, want: Demand) -> Block | None:
        asked.append(want.least)
        return await collect(window, want)

    monkeypatch.setattr(InFlightWindow, "collect", noted)
    options = ad.Options(optimize=False)
    list(then(ad.Dataset.range(64).map(lambda number: np.array([number]), 2)).with_options(options))
    assert max(asked) == least


async def test_a_step_lets_other_tasks_run_only_if_its_input_did_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "INLINE_GROUP", 0.0)
    yields, yield_to_loop = list[None](), stages.yield_to_loop

    async def noted() -> None:
        yields.append(None)
        await yield_to_loop()

    async def slow(number: int) -> int:
        await asyncio.sleep(0)
        return number

    monkeypatch.setattr(stages, "yield_to_loop", noted)
    ds = ad.Dataset.range(16).map(slow, 1).batch(8)
    options = ad.Options(optimize=False, placement="current")
    assert [len(batch) async for batch in ds.with_options(options)] == [8, 8]
    assert len(yields) == 2  # after each batch
