"""placement="process": the whole pipeline in a process of its own, and all that is promised of it."""

from __future__ import annotations

import asyncio
import errno
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import parent_process
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.executors.process.shm_arena import INLINE
from asyncdata.process_engine.client import CLIENTS, MAX_IDLE, client_of
from asyncdata.process_engine.protocol import StatisticsQuery
from asyncdata.process_engine.remote_queue import GoneError
from asyncdata.process_engine.server import MessageSender
from asyncdata.testing import leaves_nothing
from tests.endless import busy, hang
from tests.executors.process.children import alive, children_of, workers
from tests.executors.process.test_faults import press_ctrl_c, read_until_ready, until
from tests.executors.process.test_map import outcomes
from tests.marks import first_by_default
from tests.reference import Boom
from tests.states import edited

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks into /proc")

FAULTS = Path(__file__).parents[2] / "faults"
BESIDE = ad.Options(placement="process")


def beside(ds: ad.Dataset[Any]) -> ad.Dataset[Any]:
    return ds.with_options(BESIDE)


@pytest.fixture(scope="module", autouse=True)
def server() -> None:
    """Have the fork server run, which stays until the interpreter ends."""
    assert list(beside(ad.Dataset.range(2))) == [0, 1]


def windows(_: int, window: ad.Dataset[Any]) -> ad.Dataset[Any]:
    return window.batch(4)


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(FAULTS / f"{program}.py"), *arguments],
        env={**os.environ, "PYTHONPATH": str(FAULTS.parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def where(x: int) -> tuple[int, int]:
    return x, os.getpid()


def nap(x: int) -> int:
    time.sleep(2e-3)
    return x


def fail_at_three(x: int) -> int:
    if x == 3:
        raise Boom("three")
    return x


# the same as anywhere else


def test_all_epochs_run_in_one_other_process() -> None:
    ds = beside(ad.Dataset.range(200).map(where))
    found = [*ds, *ds]
    assert [x for x, _ in found] == [*range(200)] * 2
    (pid,) = {pid for _, pid in found}
    assert pid != os.getpid()


def test_the_smallest_budget_lets_everything_through() -> None:
    ds = beside(ad.Dataset.range(500).map(lambda x: [x] * 100, ad.AUTOTUNE).prefetch())
    assert sum(map(len, ds.with_options(ad.Options(ram_budget=1)))) == 50_000


def test_each_epoch_is_shuffled_as_in_a_thread() -> None:
    ds = ad.Dataset.range(50).shuffle(10, seed=3).map(lambda x, rng: (x, rng.integers(99)), rng=True, seed=4)
    here, there = ds.with_options(ad.Options()), beside(ds)
    assert [list(there) for _ in range(3)] == [list(here) for _ in range(3)]


def test_a_cache_in_memory_stays_warm_over_epochs() -> None:
    ds = beside(ad.Dataset.range(5).map(lambda _: os.urandom(8)).cache())
    assert list(ds) == list(ds)


def test_going_on_from_a_state_keeps_the_process_and_what_it_has_cached() -> None:
    ds = beside(ad.Dataset.range(5).map(lambda _: os.urandom(8)).cache().shuffle(3))
    elements = iter(ds)
    first, state = next(elements), elements.state_dict()
    rest = list(elements)
    assert [first, *ds.iterate(state=state)] == [first, *rest]


def test_a_fork_of_this_process_does_not_disturb_it() -> None:
    ds = beside(ad.Dataset.range(3000).map(where))
    elements = iter(ds)
    found = [next(elements)]
    context = multiprocessing.get_context("fork")
    process = context.Process(target=elements.close)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert [x for x, _ in [*found, *elements]] == list(range(3000))


def test_it_may_be_read_with_async_for() -> None:
    async def read() -> list[int]:
        return [x async for x in beside(ad.Dataset.range(3000).map(abs))]

    assert asyncio.run(read()) == list(range(3000))


def test_two_iterators_at_once_do_not_disturb_each_other() -> None:
    ds = beside(ad.Dataset.range(100).map(where))
    pairs = list(zip(iter(ds), iter(ds), strict=True))
    assert [(one[0], other[0]) for one, other in pairs] == [(x, x) for x in range(100)]
    assert len({pid for pair in pairs for _, pid in pair}) == 1


def test_maps_in_worker_processes_have_a_pool_there() -> None:
    found = list(
        beside(ad.Dataset.range(100).map(where, 2, executor="process").map(lambda x, pid: (x, pid, os.getpid())))
    )
    assert [x for x, _, _ in found] == list(range(100))
    assert all(len({worker, pipeline, os.getpid()}) == 3 for _, worker, pipeline in found)


def test_large_arrays_arrive_whole_and_nothing_is_overwritten_while_it_is_looked_at() -> None:
    found = list(beside(ad.Dataset.range(60).map(lambda x: np.full((300, 500), x))))
    assert [(array.min(), array.max()) for array in found] == [(x, x) for x in range(60)]
    found[3][:] = 77
    assert [array[0, 0] for array in found[2:5]] == [2, 77, 4]


def test_rows_of_arrays_are_what_they_are_elsewhere() -> None:
    ds = ad.Dataset.from_tensor_slices({"a": np.arange(5000), "b": np.ones((5000, 3), np.float32)})
    rows = list(beside(ds))
    assert all(type(row["a"]) is np.int64 for row in rows)
    assert [row["a"] for row in rows] == list(range(5000))
    assert rows[7]["b"].tolist() == [1, 1, 1]


def test_it_reads_no_further_ahead_than_its_prefetch(tmp_path: Path) -> None:
    log = tmp_path / "calls"

    def call(x: int) -> int:
        with open(log, "a") as file:
            file.write(f"{x}\n")
        return x

    with beside(ad.Dataset.range(100).map(call).prefetch(8)).iterate() as elements:
        assert [next(elements) for _ in range(20)] == list(range(20))
    assert 20 <= len(log.read_text().splitlines()) <= 20 + 8 + 2


def test_what_autotune_has_chosen_there_is_told_here() -> None:
    ds = ad.Dataset.range(20_000).map(abs, ad.AUTOTUNE)
    with beside(ds).iterate() as elements:
        assert len(list(elements)) == 20_000
        step, buffer = elements.stats().tuned
    assert buffer["step"] == "prefetch(AUTOTUNE)"
    assert buffer["buffer"] > 2
    assert buffer["why"].startswith("fewer were ")  # too little work, or used up: whichever it found first
    assert step["step"] == "map(abs, num_parallel_calls=AUTOTUNE)"
    with beside(ad.Dataset.range(400).map(nap, ad.AUTOTUNE)).iterate() as elements:
        assert list(elements) == [*range(400)]
        (step, _) = elements.stats().tuned
    assert step["where"] == "thread"  # where naps go on at once, also while the machine is busy
    assert step["workers"] > 1


def test_a_question_about_a_run_that_could_not_begin_is_answered() -> None:
    ds = ad.Dataset.range(2)
    assert list(beside(ds)) == [0, 1]
    with pytest.raises(GoneError):
        client_of(ds.plan).process.ask(-1, StatisticsQuery())


# states


def test_a_state_is_that_of_a_thread_at_every_place() -> None:
    ds = ad.Dataset.range(40).shuffle(5, seed=1).map(fail_at_three).batch(3)
    other = beside(ds)  # made before `ds` is iterated, so both begin at the same epoch
    with ds.iterate() as here, other.iterate() as there:
        assert there.state_dict() == here.state_dict()
        for _ in range(16):
            results = []
            for elements in (here, there):
                try:
                    results.append(next(elements, None))
                except Boom as error:
                    results.append(str(error))
            assert str(results[0]) == str(results[1])
            assert there.state_dict() == here.state_dict()
    assert there.state_dict() == here.state_dict(), "after close too"


def test_a_state_may_be_asked_for_after_close_and_goes_on_anywhere() -> None:
    ds = ad.Dataset.range(100).map(lambda x: x * x, 4, deterministic=False)
    elements = iter(beside(ds))
    first = [next(elements) for _ in range(30)]
    elements.close()
    state = elements.state_dict()
    rest = list(ds.with_options(ad.Options(placement="thread")).iterate(state=state))
    assert sorted(first + rest) == [x * x for x in range(100)]


@pytest.mark.slow
def test_a_plan_and_a_state_that_are_both_large_go_on_from_there() -> None:
    """Both go by shared memory, and neither is taken for the other."""
    kept = bytes(2 * INLINE)
    numbers = ad.Dataset.range(6000).filter(lambda x: len(kept) > 0)
    ds = beside(numbers.group_by_window(lambda x: x % 500, windows, 4).unbatch())
    for _ in range(2):  # in a process that is started for it, and again in one that runs
        with ds.iterate() as elements:
            first = [next(elements) for _ in range(500)]
            state = elements.state_dict()
        assert len(pickle.dumps(state["position"])) > INLINE
        rest = list(ds.iterate(state=state))
        assert [*first, *rest] == list(numbers.group_by_window(lambda x: x % 500, windows, 4).unbatch())
        gone_on = beside(numbers.group_by_window(lambda x: x % 500, windows, 4).unbatch())
        assert list(gone_on.iterate(state=state)) == rest


def test_a_state_is_taken_while_another_thread_of_the_pipeline_computes() -> None:
    elements = iter(beside(ad.Dataset.range(10).map(hang_at_two, num_parallel_calls=1).prefetch(1)))
    assert next(elements) == 0
    assert elements.state_dict()["position"] == 1
    elements.close()


async def hang_at_two(x: int) -> int:
    if x == 2:
        await hang(x)
    return x


def test_peek_skip_and_load_state_dict() -> None:
    elements = beside(ad.Dataset.range(1000)).iterate()
    assert (elements.peek(), next(elements)) == (0, 0)
    state = elements.state_dict()
    elements.skip(500)
    assert next(elements) == 501
    elements.load_state_dict(state)
    assert list(elements) == list(range(1, 1000))


# errors


def test_a_failure_is_the_users_exception_in_its_place_with_its_note() -> None:
    here = outcomes(ad.Dataset.range(6).map(fail_at_three, 2).batch(2))
    there = outcomes(beside(ad.Dataset.range(6).map(fail_at_three, 2).batch(2)))
    assert str(there) == str(here)
    (failure,) = [one for one in there if isinstance(one, tuple)]
    assert failure[:2] == (Boom, "three")
    assert failure[2] == [
        f"in map(fail_at_three) at test_placement.py:{fail_at_three.__code__.co_firstlineno}, element 3"
    ]


def test_the_users_line_is_shown_as_the_cause() -> None:
    with pytest.raises(Boom) as caught:
        list(beside(ad.Dataset.range(6).map(fail_at_three)))
    assert 'raise Boom("three")' in str(caught.value.__cause__)


def test_what_ends_the_pipeline_is_raised_again_and_again() -> None:
    elements = beside(ad.Dataset.range(6).map(lambda x: sys.exit("enough") if x == 2 else x)).iterate()
    assert [next(elements), next(elements)] == [0, 1]
    for _ in range(2):
        with pytest.raises(SystemExit, match="enough"):
            next(elements)
    elements.close()


def test_an_element_that_cannot_be_sent_fails_in_its_place() -> None:
    found = outcomes(beside(ad.Dataset.range(4).map(lambda x: threading.Lock() if x == 2 else x)))
    assert found[:2] + found[3:] == [0, 1, 3]
    assert found[2][0] is TypeError
    assert "is a lock, which cannot be sent from the pipeline's process" in found[2][1]
    assert "element 2" in found[2][2][0]


class Stream:
    async def __aiter__(self) -> AsyncIterator[int]:
        yield 1


def plans_that_stay() -> Iterator[tuple[ad.Dataset[Any], str]]:
    lock, pool = threading.Lock(), ThreadPoolExecutor(1)
    yield (
        ad.Dataset.from_iterable(iter(range(3))).batch(2),
        r"from_iterable\(range_iterator\).*read only in this process.*thread",
    )
    yield ad.Dataset.from_async_iterable(Stream()).batch(2), r"from_async_iterable\(Stream\).*event loop.*thread"
    yield ad.Dataset.range(3).map(lambda x: (x, lock)).batch(2), r"map\(.*lambda.*cannot be sent.*lock.*thread"
    yield ad.Dataset.range(3).map(abs, executor=pool).batch(2), r"map\(abs.*cannot be sent.*thread"


@pytest.mark.parametrize(("ds", "words"), [*plans_that_stay()])
def test_a_plan_that_cannot_be_sent_names_the_step(ds: ad.Dataset[Any], words: str) -> None:
    for _ in range(2):
        with pytest.raises(ad.PlanError, match=words):
            next(iter(beside(ds)))


def test_a_state_of_another_pipeline_is_refused() -> None:
    state = ad.Dataset.range(5).iterate().state_dict()
    with pytest.raises(ad.ResumeError):
        beside(ad.Dataset.range(6)).iterate(state=state)
    with pytest.raises(ad.ResumeError, match="damaged|position"):
        list(beside(ad.Dataset.range(5)).iterate(state=edited(state, position="no")))


# a process that dies


def dies_at_five(x: int) -> int:
    if x == 5 and parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def test_a_process_that_dies_is_a_loud_error_and_a_state_still_tells_where_to_go_on() -> None:
    ds = beside(ad.Dataset.range(20).map(dies_at_five).prefetch(0))
    elements, got = ds.iterate(), list[Any]()
    with pytest.raises(ad.StageError, match="by signal 9 .SIGKILL"):
        got.extend(elements)  # what comes of the elements before depends on how many were worked on together
    state = elements.state_dict()
    assert state["delivered"] == len(got) <= 5
    if len(got) < 5:
        assert next(ad.Dataset.range(20).map(dies_at_five).iterate(state=state)) == len(got)


def test_the_next_iteration_has_a_new_process() -> None:
    ds = beside(ad.Dataset.range(2000).repeat().map(where))
    elements = iter(ds)
    _, pid = next(elements)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ad.StageError, match="SIGKILL"):
        for _ in elements:
            pass
    assert next(iter(ds))[1] != pid


def test_where_nothing_is_in_order_a_dead_process_takes_its_state_along() -> None:
    ds = beside(ad.Dataset.range(2000).repeat().map(where, 3, deterministic=False))
    elements = iter(ds)
    _, pid = next(elements)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ad.StageError, match="SIGKILL"):
        for _ in elements:
            pass
    with pytest.raises(ad.StageError, match="their order is not fixed"):
        elements.state_dict()


# leaving


@pytest.mark.parametrize("count", [0, 1, 7])
def test_leaving_early_leaves_nothing(count: int) -> None:
    before = set(workers())
    with leaves_nothing():
        ds = busy("process")
        for place, _ in enumerate(ds):
            mine = set(workers()) - before
            assert mine
            if place == count:
                break
        del ds
    assert until(lambda: not any(map(alive, mine)))


def test_leaving_an_async_loop_early_leaves_nothing() -> None:
    async def body() -> None:
        async with busy("process").iterate() as elements:
            async for _ in elements:
                break

    before = set(workers())
    with leaves_nothing():
        asyncio.run(body())
    assert until(lambda: set(workers()) <= before)


def test_an_iterator_outlives_its_dataset() -> None:
    elements = iter(beside(ad.Dataset.range(50)))
    gc.collect()
    assert list(elements) == list(range(50))


def test_descriptors_stay_few_over_epochs() -> None:
    before = len(os.listdir("/proc/self/fd"))
    ds = beside(ad.Dataset.range(40).map(lambda x: np.full(30_000, x)))
    for _ in range(50):
        assert [int(array[0]) for array in ds] == list(range(40))
    assert len(os.listdir("/proc/self/fd")) < before + 50
    del ds
    assert until(lambda: len(os.listdir("/proc/self/fd")) <= before), "all of them go with the process"


def test_few_processes_stay_for_datasets_that_nobody_iterates() -> None:
    """Those used last, those that remember something, and those that are iterated."""
    gc.collect()
    before = set(workers())
    running, cached = iter(beside(ad.Dataset.range(5000).map(where))), beside(ad.Dataset.range(3).map(where).cache())
    _, first = next(running)
    ((_, warm), *_) = cached
    datasets = [beside(ad.Dataset.range(3).map(where)) for _ in range(MAX_IDLE + 2)]
    used = [next(iter(ds))[1] for ds in datasets]
    assert until(lambda: set(workers()) - before <= {first, warm, *used[-MAX_IDLE - 1 :]})
    assert next(iter(datasets[-1]))[1] == used[-1]
    assert next(iter(cached))[1] == warm
    assert next(iter(datasets[0]))[1] not in used
    assert next(running)[1] == first


@pytest.mark.parametrize("world", first_by_default(["plain", "async"]))
@pytest.mark.parametrize("pipeline", first_by_default(["blocked", "busy"]))
@pytest.mark.parametrize("leave", first_by_default(["return", "raise", "global"]))
def test_the_end_of_the_interpreter_is_not_held_up(world: str, pipeline: str, leave: str) -> None:
    process = start("leaving", world, "process", pipeline, leave)
    out, errors = process.communicate(timeout=60)
    assert out == "read 0\n"
    if leave == "raise":
        assert errors.rstrip().endswith("RuntimeError: consumer")
        assert errors.count("Traceback") == 1
    else:
        assert (process.returncode, errors) == (0, "")


@pytest.mark.slow
def test_a_parent_that_is_killed_leaves_no_process() -> None:
    process = start("process_placement", "run")
    read_until_ready(process)
    below = children_of(process.pid)
    assert len(below) >= 5, "the server, the pipeline, its own server, and two workers"
    process.kill()
    process.communicate()
    assert until(lambda: not any(map(alive, below))), "processes left"


@pytest.mark.slow
def test_ctrl_c_is_for_the_parent_alone() -> None:
    process = start("process_placement", "interrupted")
    read_until_ready(process)
    below = children_of(process.pid)
    out, errors = press_ctrl_c(process, below)
    assert "interrupted" in out, errors
    assert "went on" in out, errors
    assert process.returncode == 0, errors
    assert errors == "" or errors.startswith("Exception ignored in")
    assert until(lambda: not any(map(alive, below)))


def test_an_error_arrives_where_no_shared_memory_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    sender = MessageSender(cast("Any", None), 1 << 20)
    monkeypatch.setattr(sender.slots, "take", refuse)
    payload = sender.failure(ValueError("ü" * 9000))
    assert isinstance(payload, bytes)
    assert len(payload) < INLINE
    told = pickle.loads(payload).error
    assert isinstance(told, ad.StageError)
    assert "ValueError: üüü" in str(told)
    assert "Too many open files" in str(told)


def test_a_plan_that_cannot_be_sent_is_not_kept() -> None:
    """Neither by the error, whose frames hold it, nor by the queue of its run."""
    lock = threading.Lock()
    ds = ad.Dataset.range(3).map(lambda x: (lock, x)).with_options(BESIDE)
    with pytest.raises(ad.PlanError, match="cannot be sent to another process"):
        list(ds)
    for client in CLIENTS.values():
        cast("threading.Thread", client.process.thread).join(10)
    plan = weakref.ref(ds.plan)
    del ds, client
    gc.collect()
    assert plan() is None
