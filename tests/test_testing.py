"""The tools for tests find what they are there to find."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import SourceDriver, check_resumes, check_source, check_transform, leaves_nothing, virtual_time
from asyncdata.testing.checks import same
from asyncdata.testing.clock import JumpingLoop


def test_check_transform_accepts_what_keeps_its_meaning() -> None:
    check_transform(lambda ds: ds.batch(3), lambda items: [np.array(items[i : i + 3]) for i in (0, 3)], [range(5)])


@pytest.mark.parametrize(
    "meaning",
    [
        lambda items: items[:-1],
        lambda items: [*items, 0],
        lambda items: items[::-1],
        lambda items: [float(x) for x in items],
        lambda items: [np.int64(x) for x in items],
        lambda items: [(x,) for x in items],
    ],
)
def test_check_transform_refuses_another_meaning(meaning: object) -> None:
    with pytest.raises(AssertionError, match="its meaning is"):
        check_transform(lambda ds: ds.map(lambda x: x), meaning, [range(3)])  # type: ignore[arg-type]


def test_check_transform_tells_arrays_apart() -> None:
    with pytest.raises(AssertionError, match="its meaning is"):
        check_transform(lambda ds: ds.batch(2), lambda items: [np.array(items, np.int32)], [range(2)])


def test_check_transform_names_the_case() -> None:
    with pytest.raises(AssertionError, match=r"\[1, 2\].*placement='thread'.*read_plain"):
        check_transform(lambda ds: ds.skip(1), lambda items: items, [(), (1, 2)])


def test_check_transform_sees_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncdata.testing.leaks.LEAK_TIMEOUT", 0.1)
    gate = threading.Event()

    def leak(ds: ad.Dataset) -> ad.Dataset:
        threading.Thread(target=gate.wait, name="left-alone", daemon=True).start()
        return ds

    def leaking(x: int) -> int:
        leak(ad.Dataset.range(0))
        return x

    with pytest.raises(AssertionError, match="left-alone"):
        check_transform(lambda ds: ds.map(leaking), lambda items: items, [(1,)])
    gate.set()


def unlucky(x: int) -> int:
    if x % 4 == 1:
        raise ValueError(f"{x} is unlucky")
    return x


def counts_its_runs(x: Any) -> Any:
    """Stand for a function that is not pure: a generator that gives something else each time it runs."""
    runs = count()

    def generate() -> Iterator[int]:
        first = next(runs)
        yield from range(first * x, first * x + 5)

    return ad.Dataset.from_generator(generate)


@pytest.mark.parametrize(
    "build",
    [
        lambda: ad.Dataset.range(0),
        lambda: ad.Dataset.range(12).map(unlucky).batch(3),
        lambda: ad.Dataset.range(30).shuffle(8).repeat(2),
        lambda: ad.Dataset.from_tensor_slices({"x": np.eye(9), "name": list("asyncdata")}).prefetch(2),
        lambda: ad.Dataset.range(4).map(lambda x: float("nan")),
        lambda: ad.Dataset.range(500).map(unlucky, num_parallel_calls=3),
    ],
)
def test_check_resumes_accepts_what_goes_on(build: Any) -> None:
    check_resumes(build)


@pytest.mark.parametrize("last", [lambda ds: ds, lambda ds: ds.batch(4).unbatch()], ids=["elements", "batches"])
def test_check_resumes_accepts_what_has_no_order(last: Any) -> None:
    def build() -> ad.Dataset:
        rows = ad.Dataset.from_tensor_slices(np.arange(240).reshape(120, 2))
        return rows.map(lambda row: row + 1, num_parallel_calls=4, deterministic=False).shuffle(5).apply(last)

    check_resumes(build, ordered=False, places=10)


def test_check_resumes_goes_on_from_all_places_or_evenly_spread_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    iterate, places = ad.Dataset.iterate, []

    def noted(ds: ad.Dataset, *, state: Any = None) -> Any:
        if state is not None:
            places.append(state["delivered"])
        return iterate(ds, state=state)

    monkeypatch.setattr(ad.Dataset, "iterate", noted)
    check_resumes(lambda: ad.Dataset.range(6))
    assert places == [0, 1, 2, 3, 4, 5, 6, 6]
    places.clear()
    check_resumes(lambda: ad.Dataset.range(1001), places=5)
    assert places == [0, 128, 256, 384, 512, 640, 768, 896, 1001]


@pytest.mark.parametrize("ordered", [True, False])
def test_check_resumes_refuses_a_source_that_gives_something_else_each_time(ordered: bool) -> None:
    source = counts_its_runs(10)
    with pytest.raises(AssertionError, match="stopped after 0 elements, .*10"):
        check_resumes(lambda: source.skip(0), ordered=ordered)


@pytest.mark.parametrize(
    ("sizes", "ordered", "difference"),
    [
        ((3, 2), True, "it ended 2 elements later, but 2 should follow"),
        ((2, 3), True, "it should end 2 elements later, but 2 follows"),
        ((3, 2), False, "2 is missing, one of 1 missing elements"),
        ((2, 3), False, "2 was delivered before"),
    ],
)
def test_check_resumes_tells_the_first_difference(sizes: tuple[int, int], ordered: bool, difference: str) -> None:
    lengths = iter(sizes)
    with pytest.raises(AssertionError, match=difference):
        check_resumes(lambda: ad.Dataset.from_generator(lambda: iter(range(next(lengths)))), ordered=ordered)


def test_check_resumes_sees_an_error_that_is_another_one() -> None:
    runs = count()

    def build() -> ad.Dataset:
        run = next(runs)
        return ad.Dataset.range(3).map(lambda x: unlucky(x + 4 * run))

    with pytest.raises(AssertionError, match=r"element 0 after that is 4, but should be 0"):
        check_resumes(build)


def test_check_resumes_names_the_place_at_which_it_cannot_go_on() -> None:
    sizes = iter([5, 5, 6])
    with pytest.raises(AssertionError, match=r"does not continue after 1 elements: ResumeError\(.*range\(6\)"):
        check_resumes(lambda: ad.Dataset.range(next(sizes)))


def test_check_resumes_passes_on_what_ends_the_pipeline(tmp_path: Path) -> None:
    path = tmp_path / "growing.tfrecord"
    records = [b"one more"]

    def build() -> ad.Dataset:
        records.append(b"one more")
        with ad.TFRecordWriter(path) as writer:
            for record in records:
                writer.write(record)
        return ad.TFRecordDataset(path).take(2)

    with pytest.raises(AssertionError, match=r"after 1 elements: ResumeError\(.*the file had 48 bytes"):
        check_resumes(build)


def test_check_resumes_wants_a_function() -> None:
    with pytest.raises(TypeError, match="put a lambda around"):
        check_resumes(ad.Dataset.range(3))  # type: ignore[arg-type]


class Log:
    """A stream of its own, in memory: items with numbers, of which some are removed."""

    def __init__(self, sent: list[int], removed: set[int], fault: str) -> None:
        self.sent = sent
        self.removed = removed
        self.fault = fault
        self.place = 2 if fault == "begins late" else 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        lost = 0
        while self.place < len(self.sent) and self.sent[self.place] in self.removed:
            self.place += 1
            lost += 1
        if lost and self.fault != "silent":
            what = f"{lost + (self.fault == 'miscounts')} items were removed"
            raise OSError(what) if self.fault == "another error" else ad.DataLossError(what)
        if self.place >= len(self.sent):
            raise StopIteration
        self.place += 1
        return self.sent[self.place - 1]

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place - (self.fault == "repeats" and self.place > 0)}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]


class LogDriver(SourceDriver):
    can = frozenset({"again", "state", "remove", "count"})
    at_once = 4

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.sent: list[int] = []
        self.removed: set[int] = set()

    def send(self, numbers: Iterable[int]) -> None:
        self.sent += numbers

    def remove(self, numbers: Iterable[int]) -> None:
        self.removed.update(numbers)

    def dataset(self) -> ad.Dataset[int]:
        return ad.Dataset.from_generator(lambda: Log(self.sent, self.removed, self.fault))


def test_check_source_accepts_what_fulfils_the_contract() -> None:
    check_source(LogDriver)


@pytest.mark.parametrize(
    ("fault", "clause"),
    [
        ("begins late", r"every item comes once and in order: element 0 after that is 2, but should be 0"),
        ("repeats", r"it resumes at each item: stopped after 2 elements, element 0 after that is 1, but should be 2"),
        ("silent", r"items that are removed before they are read are an error: .* and there was no error"),
        ("miscounts", r"items that are removed .*\[5, 6, 7\] were removed .*, and the errors say 4"),
        ("another error", r"items that are removed .* is no DataLossError"),
    ],
)
def test_check_source_names_the_clause_that_failed(fault: str, clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        check_source(lambda: LogDriver(fault))


def test_check_source_refuses_a_driver_that_can_do_what_is_not_known() -> None:
    class Typo(LogDriver):
        can = frozenset({"agian"})  # type: ignore[assignment]

    with pytest.raises(ValueError, match="agian"):
        check_source(Typo)


def test_leaves_nothing_sees_a_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncdata.testing.leaks.LEAK_TIMEOUT", 0.1)
    with pytest.raises(AssertionError, match="descriptors left behind"), leaves_nothing():
        descriptor = os.open(tmp_path, os.O_RDONLY)
    os.close(descriptor)


def test_leaves_nothing_lets_what_was_there_be() -> None:
    gate = threading.Event()
    thread = threading.Thread(target=gate.wait)
    thread.start()
    with leaves_nothing():
        assert thread.is_alive()
    gate.set()
    thread.join()


def test_virtual_time_keeps_the_order_of_timers() -> None:
    """A day of timers, and what is due at the same time comes in the order in which it was asked for."""
    seen: list[tuple[float, int]] = []

    async def wait(hours: int, name: int) -> None:
        await asyncio.sleep(hours * 3600)
        seen.append((asyncio.get_running_loop().time() / 3600, name))

    async def body() -> None:
        await asyncio.gather(*[wait(hours, name) for name, hours in enumerate([30, 1, 24, 1, 0])])

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        runner.run(body())
    assert seen == [(0, 4), (1, 1), (1, 3), (24, 2), (30, 0)]


def test_virtual_time_waits_for_threads() -> None:
    """A loop without timers waits for real: for a thread that has something for it."""

    async def body() -> int:
        return await asyncio.to_thread(lambda: 7)

    with asyncio.Runner(loop_factory=virtual_time) as runner:
        assert runner.run(body()) == 7


def test_in_virtual_time_the_threads_of_an_executor_are_waited_for_without_a_deadline() -> None:
    """From Python 3.12 on `asyncio.Runner` gives them 300 seconds, to which the clock would jump."""
    loop = virtual_time()
    try:
        loop.run_until_complete(asyncio.to_thread(len, ""))
        loop.run_until_complete(cast("JumpingLoop", loop).shutdown_default_executor(300))
        assert loop.time() == 0
    finally:
        loop.close()


@pytest.mark.parametrize("kind", [float, complex, np.float16, np.float32, np.float64, np.complex64])
def test_what_is_not_a_number_is_the_same_as_such_of_its_type(kind: Any) -> None:
    assert same({"x": kind("nan")}, {"x": kind("nan")})
    assert not same(kind("nan"), kind(1))


def test_the_first_process_of_a_program_is_no_leak() -> None:
    """Python starts a fork server and a resource tracker with it, and keeps a pipe to each."""
    program = """
import operator
import asyncdata as ad
from asyncdata.testing import leaves_nothing

if __name__ == "__main__":
    with leaves_nothing():
        assert list(ad.Dataset.range(3).map(operator.neg, num_parallel_calls=1, executor="process")) == [0, -1, -2]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
