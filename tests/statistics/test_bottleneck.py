"""Which step is said to be the limit, and what the cure is to gain: in virtual time where it waits, else measured."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.devices.simulated import Accelerator, SimulatedDevice
from asyncdata.statistics.bottleneck import Bottleneck, Load, bottleneck_of
from asyncdata.statistics.statistics import Statistics
from asyncdata.testing import virtual_time

HERE = ad.Options(placement="current", warn_after=math.inf)


async def fetched(x: int) -> int:
    await asyncio.sleep(100)
    return x


async def slow_to_open(x: int) -> ad.Dataset[int]:
    await asyncio.sleep(500)
    return ad.Dataset.range(x, x + 5)


def consumed(ds: ad.Dataset[Any], step: float, elements: int = 60) -> tuple[Bottleneck, float]:
    """What is said of a pipeline whose reader takes so many seconds for a step, and what all took, in virtual time."""

    async def consume() -> tuple[Bottleneck, float]:
        async with ds.with_options(HERE).iterate() as found:
            done = 0
            async for _ in found:
                await asyncio.sleep(step)
                done += 1
                if done == elements:
                    break
            return found.bottleneck(), found.stats().seconds

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        return runner.run(consume())


async def slow_lines() -> Any:
    for x in range(60):
        await asyncio.sleep(100)
        yield x


def skewed(x: int) -> ad.Dataset[int]:
    """Of sixteen files one is forty times as long as the others."""

    async def rows() -> Any:
        for y in range(200 if x == 3 else 5):
            await asyncio.sleep(10)
            yield y

    return ad.Dataset.from_async_iterable(rows)


def slow_file(_: int) -> ad.Dataset[int]:
    async def rows() -> Any:
        for y in range(20):
            await asyncio.sleep(100)
            yield y

    return ad.Dataset.from_async_iterable(rows)


class Flaky:
    """Fails twice for each element, which costs waits of 100 and 200 s."""

    def __init__(self) -> None:
        self.calls: dict[int, int] = {}

    async def __call__(self, x: int) -> int:
        self.calls[x] = self.calls.get(x, 0) + 1
        if self.calls[x] < 3:
            raise ConnectionResetError
        return x


def retried(calls: int) -> ad.Dataset[int]:
    return ad.Dataset.range(240).map(ad.with_retries(Flaky(), backoff=100), num_parallel_calls=calls)


async def bursts() -> Any:
    for x in range(100):
        if x % 10 == 0:
            await asyncio.sleep(40)
        yield x


PLANTED: dict[str, tuple[Callable[[], ad.Dataset[Any]], float, str, str]] = {
    "slow map": (lambda: ad.Dataset.range(60).map(fetched, num_parallel_calls=2), 10, "map(fetched", "workers"),
    "slow map, one at a time": (lambda: ad.Dataset.range(60).map(fetched), 10, "map(fetched", "workers"),
    "slow read": (lambda: ad.Dataset.from_async_iterable(slow_lines), 10, "from_async_iterable(", "waiting"),
    "slow open": (lambda: ad.Dataset.range(12).interleave(slow_to_open, cycle_length=2), 10, "interleave(", "waiting"),
    "slow rate": (lambda: ad.Dataset.range(60).rate_limit(0.01), 10, "rate_limit(", "waiting"),
    "skewed files": (
        lambda: ad.Dataset.range(16).interleave(skewed, cycle_length=4, num_parallel_calls=4),
        1,
        "interleave(skewed",
        "waiting",
    ),
    "retries": (lambda: retried(2), 10, "map(partial(Flaky", "workers"),
    "slow consumer": (lambda: ad.Dataset.range(60).map(fetched, num_parallel_calls=8), 60, "consumer", "consumer"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_the_step_that_was_planted_is_named(planted: str) -> None:
    build, step, name, resource = PLANTED[planted]
    found, _ = consumed(build(), step)
    assert found.step.startswith(name), found
    assert found.resource == resource, found
    assert found.loads[0].load > 0.8


def mapped(calls: int) -> ad.Dataset[int]:
    return ad.Dataset.range(240).map(fetched, num_parallel_calls=calls)


@pytest.mark.parametrize(
    ("build", "calls", "step"), [(mapped, 1, 20), (mapped, 2, 5), (mapped, 3, 25), (retried, 1, 20), (retried, 4, 50)]
)
def test_the_gain_that_is_predicted_comes_true(
    build: Callable[[int], ad.Dataset[int]], calls: int, step: float
) -> None:
    found, seconds = consumed(build(calls), step, 240)
    assert found.resource == "workers"
    more = int(found.change.removeprefix("num_parallel_calls="))
    _, then = consumed(build(more), step, 240)
    assert found.gain == pytest.approx(seconds / then, rel=0.2)


def test_the_gain_of_reading_more_inputs_at_once_comes_true() -> None:
    """Thirty-two inputs of twenty elements, each of which takes 100 s, and a reader who takes 10 s for each."""
    inputs = ad.Dataset.range(32)
    found, seconds = consumed(inputs.interleave(slow_file, cycle_length=2), 10, 640)
    assert found.resource == "waiting"
    wider = inputs.interleave(slow_file, cycle_length=32, num_parallel_calls=32)  # AUTOTUNE measures real time
    _, then = consumed(wider, 10, 640)
    assert found.gain == pytest.approx(seconds / then, rel=0.2)


def test_a_small_buffer_between_bursts_is_named() -> None:
    """Ten elements at once after 40 s, and a reader who takes 4.5 s for each: a buffer of two is full, then empty."""
    found, _ = consumed(ad.Dataset.from_async_iterable(bursts).prefetch(2), 4.5, 100)
    assert (found.step, found.resource) == ("prefetch(2)", "buffer"), found


def test_nothing_read_ahead_is_said() -> None:
    ds = ad.Dataset.range(60).map(fetched).with_options(ad.Options(disabled_rules=("inject_prefetch",)))

    async def consume() -> Bottleneck:
        options = ad.Options(placement="current", disabled_rules=("inject_prefetch",))
        async with ds.with_options(options).iterate() as found:
            async for _ in found:
                await asyncio.sleep(100)
            return found.bottleneck()

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        found = runner.run(consume())
    assert "prefetch(AUTOTUNE)" in found.change
    assert found.gain == pytest.approx(2, rel=0.1)


def test_who_sends_is_the_limit_of_a_channel_that_is_read_as_fast_as_it_is_filled() -> None:
    channel = ad.Channel()

    async def consume() -> Bottleneck:
        async def send() -> None:
            async with channel:
                for x in range(60):
                    await asyncio.sleep(100)
                    await channel.send([x])

        async with asyncio.TaskGroup() as group, ad.Dataset.from_channel(channel).with_options(HERE).iterate() as found:
            group.create_task(send())
            assert [x async for x in found] == [*range(60)]
            return found.bottleneck()

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        found = runner.run(consume())
    assert (found.step, found.resource) == ("from_channel(Channel)", "sender")
    assert found.loads[0] == Load(found.step, "sender", found.load)
    assert str(found).endswith("it does not compute: who sends to it, or the connection, is the limit.")


def test_a_device_that_copies_all_the_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    send = SimulatedDevice.send

    def slow(self: SimulatedDevice, leaves: Any, into: Any) -> Any:
        time.sleep(0.02)  # by far the most, on a busy machine too
        return send(self, leaves, into)

    monkeypatch.setattr(SimulatedDevice, "send", slow)
    with ad.Dataset.range(20).batch(1).prefetch_to_device(Accelerator()).iterate() as batches:
        for _ in batches:
            pass
        found = batches.bottleneck()
        step = batches.stats().steps[-1]
    assert found.step.startswith("prefetch_to_device("), found
    assert found.resource == "device"
    assert (step.items, step.workers, step.inputs) == (20, 1, (2,))
    assert step.worker_seconds >= 20 * 0.02


def test_before_anything_was_read_it_says_so() -> None:
    with ad.Dataset.range(3).iterate() as numbers:
        assert str(numbers.bottleneck()) == "nothing was read yet: read some elements first."


def test_of_nothing_and_of_one_element_it_says_so_too() -> None:
    with ad.Dataset.range(0).iterate() as numbers:
        assert list(numbers) == []
        assert str(numbers.bottleneck()) == "nothing was read: there are no elements."
    with ad.Dataset.range(3).iterate() as numbers:
        next(numbers)
        found = numbers.bottleneck()
    assert str(found).startswith("only one element was read, which came after")
    assert (found.step, found.resource) == ("", "nothing")


def computes(x: int) -> int:
    return sum(range(20_000)) + x


def sleeps(x: int) -> int:
    time.sleep(0.002)
    return x


def dawdles() -> Any:
    for x in range(100):
        time.sleep(0.001)
        yield x


LARGE = np.zeros((300, 300, 3), np.uint8)


async def cheap(x: int) -> int:
    return x


def measured(**step: Any) -> Statistics:
    """What ten seconds tell of a thousand elements on two cores, each computed by one of two threads for 9 ms."""
    with ad.Dataset.range(3).map(computes, num_parallel_calls=2).iterate() as elements:
        _ = list(elements)
        stats = elements.stats()
    source, function, buffer = stats.steps
    function = function._replace(items=1000, worker_seconds=19.0, cpu_seconds=9.0, own_seconds=0.0, workers=2, bytes=0)
    return dataclasses.replace(
        stats,
        steps=(source._replace(items=1000, bytes=0), function._replace(**step), buffer),
        elements=1000,
        seconds=10.0,
        first_seconds=0.0,
        waiting_seconds=10.0,
        engine_seconds=10.0,
        thread_seconds=0.5,
        queued_seconds=0.0,
        process_seconds=9.9,
        idle_cores=1.0,
    )


@pytest.mark.parametrize(
    ("stats", "gain"),
    [
        ({}, 1.99 / 9.9 * 10),
        ({"idle_cores": 0.3}, 1.29 / 9.9 * 10),  # others have the rest
        ({"idle_cores": 0.0}, 1.0),
        ({"process_seconds": 15.0}, 2.0 / 15.0 * 10),  # a training step beside it, in C
        ({"waiting_seconds": 2.0}, 1.25),  # the reader is the next limit
        ({"idle_cores": None}, 2.0 / 9.9 * 10),  # where the system does not tell, the cores are taken to be free
    ],
)
def test_the_gain_of_processes_is_no_more_than_cores_and_the_rest_allow(
    monkeypatch: pytest.MonkeyPatch, stats: dict[str, Any], gain: float
) -> None:
    monkeypatch.setattr("asyncdata.statistics.bottleneck.usable_cores", lambda: 2)
    found = bottleneck_of(dataclasses.replace(measured(), **stats))
    assert (found.resource, found.load) == ("lock", 1.0)
    assert found.gain == pytest.approx(gain, rel=0.03)
    assert ("other programs left 1.0 of 2" in found.change) == (gain == 1.0)


def test_the_gain_of_processes_is_less_for_elements_that_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncdata.statistics.bottleneck.usable_cores", lambda: 2)
    found = bottleneck_of(measured(bytes=1000 * 50_000_000))  # 10 ms to copy each
    assert found.gain == pytest.approx(1.0, rel=0.03)


def test_processes_are_not_proposed_for_what_takes_less_than_to_send_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncdata.statistics.bottleneck.usable_cores", lambda: 2)
    cheap = bottleneck_of(measured(items=10_000_000))  # 0.9 µs each
    assert cheap.change.startswith("map(batch=) a function of many elements")
    assert cheap.gain == 1.0


def test_a_filter_is_not_told_to_run_in_processes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncdata.statistics.bottleneck.usable_cores", lambda: 2)
    found = bottleneck_of(measured(step="filter(computes, num_parallel_calls=2)"))
    assert found.change.startswith("a map(executor='process') before it")


@pytest.mark.parametrize(
    ("step", "change"),
    [
        ("map(cheap)", "map(batch=) a function of many elements"),
        (
            "map(cheap, num_parallel_calls=2)",
            "leave num_parallel_calls out, or map(batch=) a function of many elements",
        ),
        ("from_source(ArrayRows of 9)", "from_tensor_slices(array[:]) if the array fits into memory"),
    ],
)
def test_only_arguments_that_a_step_has_are_left_out(step: str, change: str) -> None:
    stats = measured(step=step, p50=1e-6, worker_seconds=2.0, cpu_seconds=2.0, workers=1)
    found = bottleneck_of(dataclasses.replace(stats, thread_seconds=9.5))
    assert found.evidence.startswith(f"passing elements to 1 thread takes longer than {step} itself")
    assert found.change == change


def merged(**step: Any) -> Statistics:
    """What ten seconds tell of an interleave of datasets whose map computes for 9 ms, in the pipeline's thread."""
    inner = {
        "kind": "merge",
        "inner": "map(decode)",
        "open_datasets": 16,
        "step": "interleave(read)",
        "where": "inline",
    }
    alone = {"worker_seconds": 0.0, "cpu_seconds": 0.0, "workers": 0, "own_seconds": 9.0, "p50": 1e-5}
    found = measured(**{**inner, **alone, **step})
    return dataclasses.replace(found, thread_seconds=9.5, process_seconds=9.9)


@pytest.mark.parametrize(
    ("stats", "change", "gain"),
    [
        (merged(), "executor='process' in map(decode) of its datasets", 1.99 / 9.9 * 10),
        (dataclasses.replace(merged(), thread_seconds=0.5), "num_parallel_calls=2 in map(decode)", 20.0),
        (
            merged(where="process", worker_seconds=19.0, own_seconds=0.1, workers=2),
            "no core is free for more: less work",
            1.0,
        ),
        (
            merged(where="thread", worker_seconds=159.0, own_seconds=0.1, workers=16, p50=5e-6),
            "num_parallel_calls=4 in map(decode) of its datasets",
            4.0,
        ),
        (
            merged(where="thread", worker_seconds=159.0, cpu_seconds=9.0, own_seconds=0.1, workers=16),
            "executor='process' in map(decode) of its datasets",
            1.99 / 9.9 * 10,
        ),
    ],
    ids=["computes", "waits", "processes", "threads that wait", "threads that take turns"],
)
def test_the_cure_of_functions_inside_datasets_names_them(
    monkeypatch: pytest.MonkeyPatch, stats: Statistics, change: str, gain: float
) -> None:
    monkeypatch.setattr("asyncdata.statistics.bottleneck.usable_cores", lambda: 2)
    if stats.steps[1].own_seconds < 1:
        stats = dataclasses.replace(stats, thread_seconds=0.5)
    found = bottleneck_of(stats)
    assert found.step == "interleave(read)"
    assert change in found.change, found
    assert found.gain == pytest.approx(gain, rel=0.03)


@pytest.mark.parametrize(
    ("cpu", "change"),
    [
        (0.2, "num_parallel_calls=46 without executor='process', as threads wait as well"),
        (9.0, "less work per element"),
        (0.0, "less work per element"),  # not known
    ],
)
def test_functions_that_wait_in_processes_belong_into_threads(
    monkeypatch: pytest.MonkeyPatch, cpu: float, change: str
) -> None:
    monkeypatch.setattr("asyncdata.statistics.bottleneck.usable_cores", lambda: 2)
    found = bottleneck_of(measured(where="process", worker_seconds=19.0, cpu_seconds=cpu, workers=2))
    assert change in found.change


def test_it_is_known_whether_functions_compute_or_wait_in_processes() -> None:
    for function, waits in ((sleeps, True), (computes, False)):
        with ad.Dataset.range(100).map(function, num_parallel_calls=2, executor="process").iterate() as elements:
            _ = list(elements)
            (step,) = [step for step in elements.stats().steps if step.kind == "function"]
        assert step.cpu_seconds > 0
        assert not waits or step.cpu_seconds < step.worker_seconds / 2


def idle(seconds: float = 10.0, **step: Any) -> Statistics:
    """What is told of a pipeline in which nothing is busy, though its reader waits."""
    found = measured(**{"worker_seconds": 0.2, "cpu_seconds": 0.2, "where": "process", "p50": 1e-3, **step})
    return dataclasses.replace(found, seconds=seconds, process_seconds=0.5)


@pytest.mark.parametrize(
    ("stats", "told"),
    [
        (dataclasses.replace(idle(), first_seconds=9.0), "the first element came after 9.00 s of 10.0 s: read more"),
        (idle(p50=1e-6), "sending elements to 2 processes takes longer than map(computes"),
        (
            idle(workers=4, worker_seconds=10.0, cpu_seconds=9.0),
            "keeps 4 processes busy 25% of the time: less work per element",
        ),
    ],
)
def test_where_nothing_is_busy_it_says_no_more_than_was_measured(stats: Statistics, told: str) -> None:
    assert told in str(bottleneck_of(stats))


def test_a_buffer_that_tunes_itself_is_not_told_to_do_so() -> None:
    stats = idle()
    source, function, buffer = stats.steps
    full = dataclasses.replace(stats, steps=(source, function, buffer._replace(room_seconds=5.0)))
    assert buffer.tuned
    assert "prefetch(AUTOTUNE) in its place" not in str(bottleneck_of(full))


def test_a_copy_to_a_device_is_a_buffer_too() -> None:
    stats = idle(workers=4, worker_seconds=10.0)
    last = dataclasses.replace(stats, steps=(*stats.steps[:2], stats.steps[2]._replace(kind="step")))
    assert "nothing is read ahead" in str(bottleneck_of(last))
    device = dataclasses.replace(stats, steps=(*stats.steps[:2], stats.steps[2]._replace(kind="device")))
    assert "nothing is read ahead" not in str(bottleneck_of(device))


def test_a_process_of_its_own_is_not_proposed_twice() -> None:
    stats = dataclasses.replace(measured(worker_seconds=0.0, cpu_seconds=0.0), thread_seconds=9.9)
    here = bottleneck_of(stats)
    assert "Options(placement='process')" in here.change
    assert bottleneck_of(dataclasses.replace(stats, placement="process")).change == f"less work in {here.step}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "name", "resource", "change"),
    [
        (lambda: ad.Dataset.counter().map(computes, num_parallel_calls=2), "map(computes", "lock", "process"),
        (lambda: ad.Dataset.counter().map(computes).batch(8), "map(computes", "thread", "process"),
        (lambda: ad.Dataset.counter().map(sleeps, num_parallel_calls=2), "map(sleeps", "workers", "num_parallel"),
        (lambda: ad.Dataset.counter().map(cheap, num_parallel_calls=8), "map(cheap", "thread", "leave"),
        (lambda: ad.Dataset.from_list([LARGE] * 64).repeat().batch(128), "batch(128", "thread", "less work in batch"),
        (
            lambda: ad.Dataset.from_generator(dawdles).shuffle(90, seed=1),
            "shuffle(90",
            "fill",
            "buffer_size",
        ),
    ],
)
def test_what_computes_is_named_too(
    build: Callable[[], ad.Dataset[Any]], name: str, resource: str, change: str
) -> None:
    with build().iterate() as elements:
        read_long(elements)
        found = elements.bottleneck()
    assert found.step.startswith(name), found
    assert found.resource == resource, found
    assert change in found.change, found


def read_long(elements: Iterator[Any]) -> None:
    """Read to the end, or until what is measured is not of the first element, which may take a second here."""
    begin = time.perf_counter()
    next(elements)
    enough = max(1.0, 10 * (time.perf_counter() - begin))
    for _ in elements:
        if time.perf_counter() - begin > enough:
            break


@pytest.mark.parametrize(("filling", "resource"), [(8.0, "fill"), (0.01, "nothing")])
def test_a_shuffle_is_not_blamed_for_what_a_first_run_imports(filling: float, resource: str) -> None:
    with ad.Dataset.range(9).shuffle(4).iterate() as numbers:
        list(numbers)
        stats = numbers.stats()
    source, shuffle, buffer = stats.steps
    steps = (source, shuffle._replace(own_seconds=0.01, input_seconds=filling), buffer)
    late = dataclasses.replace(
        stats,
        steps=steps,
        seconds=10.0,
        engine_seconds=10.0,
        first_seconds=9.0,
        waiting_seconds=9.9,
        thread_seconds=0.1,
    )
    found = bottleneck_of(late)
    assert found.resource == resource
    told = {
        "fill": "shuffle(4) took 80% of the time to fill its buffer before the first element",
        "nothing": "the first element came after 9.00 s of 10.0 s",
    }
    assert found.evidence == told[resource]
