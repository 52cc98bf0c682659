"""Mixtures of many datasets: few threads and open files, whatever the datasets are made of, and every element once."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.executors.scope import OwnedTask
from asyncdata.executors.thread_sharing import LimitedThreads
from asyncdata.runtime import open_files
from asyncdata.runtime.memory_budget import MemoryBudget
from asyncdata.system.host_resources import usable_cores
from tests.marks import first_by_default
from tests.reference import Boom

pytestmark = pytest.mark.usefixtures("nothing_left")

COUNT, EACH = 80, 4

Made = Callable[[int], "ad.Dataset[Any]"]


def identity(x: Any) -> Any:
    return x


def numbers(source: int) -> Iterator[int]:
    yield from range(source * EACH, source * EACH + EACH)


KINDS: dict[str, Made] = {
    "calls": lambda source: ad.Dataset.from_list([*numbers(source)]).map(identity, num_parallel_calls=2),
    "AUTOTUNE": lambda source: ad.Dataset.from_list([*numbers(source)]).map(identity, num_parallel_calls=ad.AUTOTUNE),
    "generators": lambda source: ad.Dataset.from_generator(numbers, args=(source,)).map(identity, num_parallel_calls=2),
    "interleaves": lambda source: ad.Dataset.from_list([source]).interleave(
        lambda one: ad.Dataset.from_generator(numbers, args=(int(one),)).map(identity, num_parallel_calls=ad.AUTOTUNE),
        num_parallel_calls=2,
    ),
}


@pytest.mark.parametrize("kind", first_by_default([*KINDS], 3))
def test_they_have_few_threads_and_each_element_comes_once(kind: str) -> None:
    before, most, found = threading.active_count(), 0, list[int]()
    ds = ad.Dataset.sample_from_datasets([KINDS[kind](source) for source in range(COUNT)], seed=1)
    with ds.iterate() as elements:
        for number, element in enumerate(elements):
            found.append(int(element))
            most = max(most, threading.active_count()) if number % 10 == 0 else most
            if number == COUNT:
                state = elements.state_dict()
    assert sorted(found) == [*range(COUNT * EACH)]
    assert most - before <= 4 * usable_cores() + 64
    assert list(map(int, ds.iterate(state=state))) == found[COUNT + 1 :]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ranges", "calls"])
def test_ten_thousand_datasets_can_be_mixed(kind: str) -> None:
    made: Made = KINDS.get(kind, lambda source: ad.Dataset.range(source * EACH, source * EACH + EACH))
    ds = ad.Dataset.sample_from_datasets([made(source) for source in range(10_000)], seed=1)
    found = [int(element) for element in ds.take(15_000)]
    assert len(set(found)) == len(found) == 15_000


def test_a_generator_stays_in_one_thread_and_is_closed_there_and_others_do_not_wait_for_one_that_fails() -> None:
    threads = {source: set[int]() for source in range(COUNT)}
    closed = list[int]()

    def make(source: int) -> Iterator[int]:
        if source % 10 == 9:
            raise Boom(source)
        try:
            while True:
                threads[source].add(threading.get_ident())
                yield source
        finally:
            threads[source].add(threading.get_ident())
            closed.append(source)

    def call(source: int) -> Iterator[int]:
        return make(source)

    sources = [ad.Dataset.from_generator(call, args=(source,)) for source in range(COUNT)]
    failed, seen = set[int](), set[int]()
    with ad.Dataset.sample_from_datasets(sources, seed=1).iterate() as elements:
        while len(failed) + len(seen) < COUNT:
            try:
                seen.add(next(elements))
            except Boom as error:
                failed.add(error.args[0])
    assert failed == {*range(9, COUNT, 10)}
    assert sorted(closed) == sorted(seen)
    assert {len(used) for source, used in threads.items() if source in seen} == {1}
    assert len(set.union(*threads.values())) <= 4 * usable_cores() + 32


def test_a_stage_never_has_more_calls_at_once_than_it_asked_for() -> None:
    here, most, lock = Counter[int](), Counter[int](), threading.Lock()

    def call(source: int, x: int) -> int:
        with lock:
            here[source] += 1
            most[source] = max(most[source], here[source])
        threading.Event().wait(0.0002)
        with lock:
            here[source] -= 1
        return x

    sources = [ad.Dataset.range(6).map(partial(call, source), num_parallel_calls=2) for source in range(COUNT // 2)]
    assert len(list(ad.Dataset.sample_from_datasets(sources, seed=1))) == COUNT // 2 * 6
    assert max(most.values()) == 2


def test_threads_of_a_pool_are_taken_and_given_back_without_losing_a_job() -> None:
    owned = OwnedTask(MemoryBudget())
    stages = [LimitedThreads(owned.sharing.pool, 1 + number % 3) for number in range(20)]
    done, all_done = Counter[int](), threading.Semaphore(0)

    def job(number: int) -> None:
        done[number] += 1
        all_done.release()

    for turn in range(100):
        for number, stage in enumerate(stages):
            stage.submit(partial(job, number * 1000 + turn))
            stage.resize(1 + (turn + number) % 4)
    for _ in range(2000):
        assert all_done.acquire(timeout=60)
    assert {*done.values()} == {1}
    assert len(done) == 2000
    owned.stop()
    owned.join()


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
def test_files_are_closed_between_two_blocks_if_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "most_descriptors", lambda: 32)
    for source in range(60):
        tmp_path.joinpath(f"{source:02}.txt").write_text("".join(f"{source} {line}\n" for line in range(8)))
    files = [ad.TextLineDataset(str(tmp_path / f"{source:02}.txt")) for source in range(60)]
    before, most, found = len(os.listdir("/proc/self/fd")), 0, list[bytes]()
    for element in ad.Dataset.sample_from_datasets(files, seed=1):
        found.append(element)
        most = max(most, len(os.listdir("/proc/self/fd")))
    assert sorted(found) == sorted(b"%d %d" % (source, line) for source in range(60) for line in range(8))
    assert most - before <= 16 + 6  # with the event loop's own
