from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.executors.autotune import Choice, Tuning
from asyncdata.testing import check_resumes, check_transform, virtual_time
from asyncdata.transforms import interleave, interleave_inputs
from tests import reference
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import WAYS, collect, read_plain, results

CALLS = [None, 1, 2, ad.AUTOTUNE]


def inner(x: int) -> ad.Dataset:
    return ad.Dataset.range(x % 4).map(lambda i: (x, i))


def inner_elements(x: int) -> list[tuple[int, int]]:
    return [(x, i) for i in range(x % 4)]


@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("cycle", first_by_default([3, 2, 16]))
@pytest.mark.parametrize("block", first_by_default([2, 1, 5]))
def test_keeps_its_contract(calls: int | None, cycle: int, block: int) -> None:
    check_transform(
        lambda ds: ds.interleave(inner, cycle_length=cycle, block_length=block, num_parallel_calls=calls),
        lambda items: reference.interleave(items, inner_elements, cycle, block),
        [(), (1,), range(24)],
    )


def rows(x: int) -> ad.Dataset:
    """Return a dataset in memory, or one that is not."""
    if x % 5 == 4:
        return inner(x)
    return ad.Dataset.from_iterable(inner_elements(x)) if x % 2 else ad.Dataset.range(x)


def rows_elements(x: int) -> list[Any]:
    return inner_elements(x) if x % 5 == 4 or x % 2 else list(range(x))


@pytest.mark.parametrize("cycle", first_by_default([3, 1, 2, 16], 2))
@pytest.mark.parametrize("block", first_by_default([2, 1, 5]))
def test_keeps_its_contract_with_rows_in_memory(cycle: int, block: int) -> None:
    check_transform(
        lambda ds: ds.interleave(rows, cycle_length=cycle, block_length=block),
        lambda items: reference.interleave(items, rows_elements, cycle, block),
        [(), (1,), range(24)],
    )
    check_resumes(lambda: ad.Dataset.range(24).interleave(rows, cycle_length=cycle, block_length=block))


class Damaged(Sequence[int]):
    """A user's sequence that has lost what comes after its first element."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: Any) -> Any:
        if index.stop > 1:
            raise Boom(index.stop)
        return list(range(index.start, index.stop))


def test_what_is_ready_comes_before_what_ends_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interleave_inputs, "QUICK", 1e9)
    monkeypatch.setattr(interleave, "INLINE_GROUP", 1e9)
    made = [ad.Dataset.range(3), ad.Dataset.from_iterable(Damaged())]
    together = ad.Options(placement="current")
    found: list[int] = []
    with pytest.raises(Boom):
        for x in ad.Dataset.range(2).interleave(made.__getitem__, cycle_length=2).prefetch(8).with_options(together):
            found.append(x)  # noqa: PERF402 - what came before it fails is looked at
    assert found in ([0], [0, 0, 1])


def test_an_endless_row_of_empty_datasets_can_be_left() -> None:
    with ad.Dataset.counter().interleave(lambda x: ad.Dataset.range(0 if x else 3)).iterate() as elements:
        assert [next(elements) for _ in range(3)] == [0, 1, 2]


def test_the_example_of_tensorflows_documentation() -> None:
    ds = ad.Dataset.range(1, 6).interleave(
        lambda x: ad.Dataset.from_tensors(x).repeat(6), cycle_length=2, block_length=4
    )
    assert list(ds) == [1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 3, 3, 4, 4, 5, 5, 5, 5, 5, 5]


def test_the_default_cycle_is_16_whatever_the_machine() -> None:
    ds = ad.Dataset.range(20).interleave(lambda x: ad.Dataset.from_tensors(x).repeat(2))
    assert list(ds)[:16] == list(range(16))
    assert list(ds)[16:32] == list(range(16))


@pytest.mark.parametrize("calls", CALLS)
def test_an_exhausted_slot_is_filled_when_its_turn_comes(calls: int | None) -> None:
    """Lengths 1, 3, 1, 1 in two slots: slot 0 passes its turn on once before it takes the third input."""
    lengths = [1, 3, 1, 1]
    ds = ad.Dataset.range(4).interleave(
        lambda x: ad.Dataset.from_tensors(x).repeat(lengths[x]), cycle_length=2, num_parallel_calls=calls
    )
    assert list(ds) == [0, 1, 1, 2, 1, 3]


@pytest.mark.parametrize("calls", CALLS)
def test_infinite_inputs(calls: int | None) -> None:
    ds = ad.Dataset.counter().interleave(ad.Dataset.counter, cycle_length=3, num_parallel_calls=calls)
    assert list(ds.take(6)) == [0, 1, 2, 1, 2, 3]


def test_unordered_loses_nothing() -> None:
    ds = ad.Dataset.range(40).interleave(inner, cycle_length=8, num_parallel_calls=4, deterministic=False)
    assert sorted(ds) == sorted(pair for x in range(40) for pair in inner_elements(x))


def test_the_readers_of_the_guide() -> None:
    """`interleave(lambda _: dataset)` with two readers at once."""
    ds = ad.Dataset.range(2).interleave(lambda _: ad.Dataset.range(3), num_parallel_calls=ad.AUTOTUNE)
    assert list(ds) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_failures_in_place(calls: int | None, way: Any) -> None:
    """The slot of an input that failed takes the next input at once."""

    def fail_at_1(x: int) -> Any:
        if x == 1:
            raise Boom(x)
        return "text" if x == 3 else ad.Dataset.from_tensors(x).repeat(2)

    ds = ad.Dataset.range(5).interleave(fail_at_1, cycle_length=2, num_parallel_calls=calls)
    assert way(ds) == [0, Failed("Boom(1)"), 2, 0, 2, Failed("TypeError"), 4, 4]


@pytest.mark.parametrize("calls", CALLS)
def test_failures_inside_inner_datasets(calls: int | None) -> None:
    def fail_at_1(x: int, i: int) -> tuple[int, int]:
        if i == 1:
            raise Boom(x)
        return x, i

    ds = ad.Dataset.range(2).interleave(
        lambda x: ad.Dataset.range(3).map(lambda i: (x, i)).map(fail_at_1), num_parallel_calls=calls
    )
    assert results(ds) == [(0, 0), (1, 0), Failed("Boom(0)"), Failed("Boom(1)"), (0, 2), (1, 2)]


@pytest.mark.parametrize("calls", CALLS)
def test_left_early_its_generators_are_closed(calls: int | None) -> None:
    closed: list[int] = []

    def generate(x: int) -> Any:
        try:
            while True:
                yield x
        finally:
            closed.append(x)

    ds = ad.Dataset.range(3).interleave(
        lambda x: ad.Dataset.from_generator(generate, args=(x,)), cycle_length=3, num_parallel_calls=calls
    )
    assert read_plain(ds.take(6)) == [0, 1, 2, 0, 1, 2]
    assert sorted(closed) == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "value"),
    [("cycle_length", 0), ("cycle_length", -2), ("block_length", 0), ("block_length", -1), ("num_parallel_calls", 0)],
)
def test_wrong_numbers_are_refused_where_they_are_given(name: str, value: int) -> None:
    with pytest.raises(ad.PlanError, match=name):
        ad.Dataset.range(1).interleave(inner, **{name: value})


def test_more_calls_than_slots_are_refused() -> None:
    with pytest.raises(ad.PlanError, match="cycle_length"):
        ad.Dataset.range(1).interleave(inner, cycle_length=2, num_parallel_calls=3)


@pytest.mark.parametrize("parallel", [None, 2])
def test_a_state_after_a_failure_in_the_turn_of_another_slot(parallel: int | None) -> None:
    """A dataset that ends within its turn passes it on, and so does a state that is taken just after."""

    def inner(x: int) -> ad.Dataset[Any]:
        return ad.Dataset.range(x % 3 + 1).map(lambda y: (x, y)) if x % 4 else None  # type: ignore[return-value]

    check_resumes(lambda: ad.Dataset.range(12).interleave(inner, 2, 3, num_parallel_calls=parallel))


@pytest.mark.parametrize("calls", [None, 2])
@pytest.mark.parametrize("cycle", [3, 5, 16])
def test_fewer_datasets_than_slots(cycle: int, calls: int | None) -> None:
    """Their elements come in rounds too, once it is known that no other dataset follows."""
    sizes = [40, 3, 25, 40]

    def numbers(x: int) -> ad.Dataset:
        return ad.Dataset.range(100 * x, 100 * x + sizes[x]).map(int)

    def build() -> ad.Dataset:
        return ad.Dataset.range(4).interleave(numbers, cycle, num_parallel_calls=calls)

    expected = reference.interleave(range(4), lambda x: range(100 * x, 100 * x + sizes[x]), cycle, 1)
    assert list(build()) == list(expected)
    check_resumes(build)


def test_resumes_inside_of_rounds_that_were_drawn_at_once() -> None:
    """A block of several rounds of each slot, which a large demand and inputs in memory give."""

    def build() -> ad.Dataset[int]:
        inputs = ad.Dataset.range(7).interleave(lambda x: ad.Dataset.range(100 * x, 101 * x + 20), cycle_length=3)
        return inputs.prefetch(64)

    check_resumes(build)


class SlowToOpen:
    """Opens inputs of three elements, each in a time of its own; the fifth fails."""

    def __init__(self) -> None:
        self.opening = self.most = 0

    async def __call__(self, x: int) -> ad.Dataset[int]:
        self.opening += 1
        self.most = max(self.most, self.opening)
        await asyncio.sleep(100 - x)
        self.opening -= 1
        return ad.Dataset.from_list(opened_at_once(x))


def opened_at_once(x: int) -> list[int]:
    if x == 4:
        raise Boom(x)
    return [10 * x + y for y in range(3)]


@pytest.mark.parametrize("ordered", [None, False])
@pytest.mark.parametrize(
    ("calls", "most", "seconds"), [(None, 1, 772), (1, 1, 772), (4, 4, 196), (ad.AUTOTUNE, 4, 196)]
)
def test_as_many_inputs_are_opened_at_once_as_are_read_at_once(
    calls: int | None, most: int, seconds: float, ordered: bool | None
) -> None:
    opener = SlowToOpen()
    ds = ad.Dataset.range(8).interleave(opener, cycle_length=4, num_parallel_calls=calls, deterministic=ordered)

    async def consume() -> tuple[list[Any], float]:
        found = await collect(ds.with_options(ad.Options(placement="current", warn_after=math.inf)))
        return found, asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        begin = runner.get_loop().time()
        found, end = runner.run(consume())
    assert opener.most == most
    assert end - begin == pytest.approx(seconds, abs=10)
    plain = list(reference.interleave(range(8), opened_at_once, 4, 1))
    assert sorted(map(str, found)) == sorted(map(str, plain))
    assert found == plain or (ordered is False and calls is not None)


def computed(x: int) -> int:
    return sum(range(20_000)) + x  # by far the most of the time, also on a busy machine


def datasets_of(**how: Any) -> ad.Dataset[Any]:
    """Sixteen datasets of twenty elements, whose map is called so."""
    return ad.Dataset.range(16).interleave(
        lambda x: ad.Dataset.range(20 * x, 20 * x + 20).map(computed, **how), num_parallel_calls=16
    )


def test_statistics_name_the_function_inside_the_datasets() -> None:
    with datasets_of().iterate() as elements:
        _ = list(elements)
        step = elements.stats().steps[1]
    assert (step.kind, step.where, step.inner, step.open_datasets) == ("merge", "inline", "map(computed)", 16)
    assert "in map(computed) of its datasets" in elements.bottleneck().evidence
    with ad.Dataset.range(4).interleave(lambda x: ad.Dataset.range(x, x + 3)).iterate() as elements:
        _ = list(elements)
        step = elements.stats().steps[1]
    assert (step.where, step.inner) == ("", "")


def test_datasets_share_what_autotune_measures() -> None:
    with datasets_of(num_parallel_calls=ad.AUTOTUNE).iterate() as elements:
        assert len(list(elements)) == 320
        step = elements.stats().steps[1]
    assert step.inner == "map(computed, num_parallel_calls=AUTOTUNE)"
    assert step.tuned["inner"]["why"].startswith("a call takes")


class FixedTuning(Tuning):
    """Chooses two calls at once, whatever it is told."""

    def consider(self) -> Choice:
        return self.choice if self.choice.workers == 2 else Choice(self.waiting, 2, "told so")


@pytest.mark.parametrize("is_async", [False, True])
def test_datasets_share_the_threads_or_tasks_that_autotune_chose(is_async: bool) -> None:
    """They are as many as it chose in all, and go on when one of the datasets has ended."""
    now, most, threads, lock = 0, 0, set[str](), threading.Lock()

    def count(change: int) -> None:
        nonlocal now, most
        with lock:
            now += change
            most = max(most, now)
            threads.add(threading.current_thread().name)

    def called(x: int) -> int:
        count(1)
        time.sleep(1e-4)
        count(-1)
        return x

    async def awaited(x: int) -> int:
        count(1)
        await asyncio.sleep(1e-4)
        count(-1)
        return x

    def dataset(x: int) -> ad.Dataset[Any]:
        ds = ad.Dataset.range(x, x + 5 * (x + 1)).map(awaited if is_async else called, ad.AUTOTUNE)
        object.__setattr__(ds.plan, "executor", FixedTuning(tasks=is_async))
        return ds

    ds = ad.Dataset.range(12).interleave(dataset, cycle_length=6, num_parallel_calls=6)
    with ds.iterate() as elements:
        found = list(elements)
        step = elements.stats().steps[1]
    assert sorted(found) == sorted(x + y for x in range(12) for y in range(5 * (x + 1)))
    assert most == 2
    assert len(threads) <= 2
    assert step.workers == 2
