"""map(executor="process"): the same results as anywhere else, in the same places."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import asyncdata as ad
from asyncdata.executors.function_call import Call, ChunkSizer
from asyncdata.executors.group_work import GroupWork
from asyncdata.executors.process import workers
from asyncdata.executors.process.task import IsolatedElement, TaskResult
from asyncdata.executors.process.worker import TaskReply
from asyncdata.executors.process.workers import ExecutorWorkers, ProcessWorkers
from asyncdata.executors.workers import Group
from asyncdata.runtime.block import Block
from asyncdata.runtime.tickets import Ordinals
from tests.reference import Boom
from tests.running import WAYS, impatient, results


@dataclass(frozen=True)
class Sample:
    number: int
    picture: Any


def double(number: int) -> int:
    return 2 * number


def processes(ds: ad.Dataset, fn: Callable[..., Any], **how: Any) -> ad.Dataset:
    return ds.map(fn, 2, executor="process", **how)


def outcomes(ds: ad.Dataset) -> list[Any]:
    """All elements, errors as their type, text and notes."""
    found: list[Any] = []
    with ds.iterate() as elements:
        while len(found) < 1000:
            try:
                found.append(next(elements))
            except StopIteration:
                break
            except Exception as error:
                found.append((type(error), str(error), getattr(error, "__notes__", [])))
    return found


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_results_come_in_order_from_other_processes(way: Callable[..., list[Any]]) -> None:
    base = os.getpid()
    found = way(processes(ad.Dataset.range(500), lambda number: (number, os.getpid() != base)))
    assert found == [(number, True) for number in range(500)]


def test_both_processes_work() -> None:
    def busy(number: int) -> int:
        end = time.perf_counter() + 0.003
        while time.perf_counter() < end:
            pass
        return os.getpid()

    assert len(set(processes(ad.Dataset.range(200), busy))) == 2


def test_without_order_all_are_there() -> None:
    assert sorted(processes(ad.Dataset.range(300), double, deterministic=False)) == list(range(0, 600, 2))


def test_the_number_of_processes_is_that_of_the_cores_unless_told() -> None:
    ds = ad.Dataset.range(3).map(double, executor="process")
    assert list(ds) == [0, 2, 4]
    assert "executor=process" in ds.explain()


def test_lambdas_closures_and_classes_of_the_test_travel() -> None:
    factor = np.arange(3)

    class Local:
        def __init__(self, number: int) -> None:
            self.number = number

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Local) and other.number == self.number

        def __hash__(self) -> int:
            return self.number

    found = list(processes(ad.Dataset.range(4), lambda number: (factor * number, Local(number))))
    assert [local for _, local in found] == [Local(number) for number in range(4)]
    assert [array.tolist() for array, _ in found] == [[0, number, 2 * number] for number in range(4)]


def test_functions_with_a_cache_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    @lru_cache(maxsize=3, typed=True)
    def local(number: int) -> int:
        return 2 * number

    def named(number: int) -> int:
        return 2 * number

    class Local:
        def __init__(self, number: int) -> None:
            self.number = number

        @cached_property
        def twice(self) -> int:
            return 2 * self.number

    named.__module__, named.__qualname__ = "__main__", "named"
    monkeypatch.setattr(sys.modules["__main__"], "named", cache(named), raising=False)
    for fn in (local, cache(named), cache(double), lambda number: local(number), lambda number: Local(number).twice):
        assert list(processes(ad.Dataset.range(4), fn)) == [0, 2, 4, 6]
        assert list(ad.Dataset.range(4).map(fn).with_options(ad.Options(placement="process"))) == [0, 2, 4, 6]


def test_elements_of_classes_of_the_main_script_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    class Local:
        def __init__(self, number: int) -> None:
            self.number = number

    Local.__module__, Local.__qualname__ = "__main__", "Local"
    monkeypatch.setattr(sys.modules["__main__"], "Local", Local, raising=False)
    elements = [(np.full(1000, number), Local(number)) for number in range(100)]
    ds = processes(ad.Dataset.from_list(elements), lambda array, local: (array, local, local.number))
    found = list(ds)
    assert [(array.tolist(), number) for array, _, number in found] == [([n] * 1000, n) for n in range(100)]
    assert {type(local) for _, local, _ in found} == {Local}
    submit = ProcessPoolExecutor.submit

    def submitted_and_done(executor: ProcessPoolExecutor, *args: Any) -> Future[Any]:
        """Return a call that a worker has done by the time that it is handed over."""
        wait([future := submit(executor, *args)])
        return future

    monkeypatch.setattr(ProcessPoolExecutor, "submit", submitted_and_done)
    assert [number for _, _, number in ds.take(3)] == [0, 1, 2]


def with_function(number: int) -> tuple[Any, Callable[[], int]]:
    """An array, and what can be sent by value only."""
    return np.full(1000, number), lambda: number


@pytest.mark.parametrize("way", ["result", "element", "beside"])
def test_arrays_stay_what_they_are_beside_what_is_sent_by_value(way: str) -> None:
    count = 100
    if way == "result":
        ds = processes(ad.Dataset.range(count), with_function)
    elif way == "element":
        elements = [with_function(number) for number in range(count)]
        ds = processes(ad.Dataset.from_list(elements), lambda array, fn: (array, fn))
    else:
        ds = ad.Dataset.range(count).map(with_function).with_options(ad.Options(placement="process"))
    assert [(array.tolist(), fn()) for array, fn in ds] == [([number] * 1000, number) for number in range(count)]


def test_tuples_are_unpacked_and_structures_come_back() -> None:
    pairs = ad.Dataset.zip((ad.Dataset.range(5), ad.Dataset.range(5, 10)))
    found = list(processes(pairs, lambda one, other: Sample(one, {"sum": np.int64(one + other)})))
    assert found == [Sample(number, {"sum": np.int64(2 * number + 5)}) for number in range(5)]


def test_large_arrays_arrive_whole_and_may_be_written_to() -> None:
    found = list(processes(ad.Dataset.range(12), lambda number: np.full((300, 1000), number)))
    assert [array.min() for array in found] == [array.max() for array in found] == list(range(12))
    found[3][:] = 77
    assert [array.max() for array in found] == [0, 1, 2, 77, *range(4, 12)]


def test_nothing_is_overwritten_while_it_is_looked_at() -> None:
    """Far more is held than there are slots: then results are copied out."""
    ds = processes(ad.Dataset.range(400), lambda number: np.full(40_000, number))
    held = [array[::7] for array in ds]
    assert [(array.min(), array.max()) for array in held] == [(number, number) for number in range(400)]


def test_large_inputs_arrive_whole() -> None:
    pictures = ad.Dataset.range(40).map(lambda number: np.full((200, 200), number))
    assert list(processes(pictures, lambda picture: (int(picture.min()), int(picture.max())))) == [
        (number, number) for number in range(40)
    ]


def test_inputs_that_a_function_keeps_are_not_overwritten() -> None:
    kept: list[Any] = []

    def keep(picture: Any) -> bool:
        kept.append(picture)
        return all((one == one[0, 0]).all() for one in kept)

    assert all(processes(ad.Dataset.range(60).map(lambda number: np.full((150, 150), number)), keep))


def test_odd_arrays_come_back_as_they_were() -> None:
    def odd(number: int) -> dict[str, Any]:
        return {
            "turned": np.arange(20_000).reshape(100, 200).T[::2],
            "none": np.zeros((0, 5)),
            "scalar": np.array(number),
            "text": np.array(["a", "bc"]),
            "objects": np.array([{"x": number}, None], dtype=object),
            "record": np.zeros(3, dtype=[("a", "i4"), ("b", "f8")]),
            "bytes": b"x" * 100_000,
            "mutable": bytearray(b"y" * 100_000),
        }

    for number, found in enumerate(processes(ad.Dataset.range(3), odd)):
        for name, value in odd(number).items():
            assert type(found[name]) is type(value), name
            np.testing.assert_array_equal(np.asarray(found[name]), np.asarray(value))
            assert getattr(found[name], "dtype", None) == getattr(value, "dtype", None)


def fail_sometimes(number: int) -> int:
    if number % 7 == 3:
        raise Boom(number)
    return number


def test_errors_are_the_functions_own_in_their_places_and_say_where() -> None:
    found = outcomes(processes(ad.Dataset.range(20), fail_sometimes))
    expected = outcomes(ad.Dataset.range(20).map(fail_sometimes))
    assert found == expected
    with processes(ad.Dataset.range(20), fail_sometimes).skip(3).iterate() as elements, pytest.raises(Boom) as caught:
        next(elements)
    assert "fail_sometimes" in str(caught.value.__cause__), "the traceback of the worker is the cause"


def test_what_failed_before_stays_and_is_not_sent() -> None:
    twice = processes(ad.Dataset.range(20).map(fail_sometimes), double)
    assert outcomes(twice) == outcomes(ad.Dataset.range(20).map(fail_sometimes).map(double))


def test_an_error_of_which_a_part_cannot_travel_keeps_its_class() -> None:
    class Odd(Exception):
        def __init__(self, number: int) -> None:
            super().__init__("odd one")
            self.lock = __import__("threading").Lock()

    def raise_odd(number: int) -> int:
        raise Odd(number)

    ((kind, text, notes),) = outcomes(processes(ad.Dataset.range(1), raise_odd))
    assert kind is Odd
    assert text == "odd one"
    assert "element 0" in notes[0]
    assert "lock" in notes[1]


class Silent(Exception):
    def __init__(self, code: int) -> None:
        super().__init__()

    def __str__(self) -> str:
        raise LookupError("no words")


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Number(Exception):
    def __reduce__(self) -> Any:
        return int, ("5",)


def raises_odd(number: int) -> int:
    raise [Silent(1), Frozen(2), Number()][number]


@pytest.mark.parametrize("how", ["thread", "process", "beside"])
def test_odd_errors_stay_in_their_places(how: str) -> None:
    ds = ad.Dataset.range(3)
    if how == "beside":
        ds = ds.map(raises_odd).with_options(ad.Options(placement="process"))
    else:
        ds = ds.map(raises_odd, 2, executor=how)
    found: list[Any] = []
    with ds.iterate() as elements:
        for kind in (Silent, Frozen, Number):
            with pytest.raises(kind) as caught:
                next(elements)
            found.append(caught.value)
        with pytest.raises(StopIteration):
            next(elements)
    where = f"in map(raises_odd) at test_map.py:{raises_odd.__code__.co_firstlineno}"
    assert [error.__notes__ for error in found] == [[f"{where}, element {number}"] for number in range(3)]
    assert found[1].code == 2


def test_a_result_that_cannot_travel_fails_in_its_place() -> None:
    found = outcomes(processes(ad.Dataset.range(4), lambda n: __import__("threading").Lock() if n == 2 else n))
    assert found[:2] == [0, 1]
    assert found[3] == 3
    kind, text, notes = found[2]
    assert kind is TypeError
    assert "lock" in text
    assert "cannot be sent from a worker process" in text
    assert "element 2" in notes[0]


def test_an_element_that_cannot_travel_fails_in_its_place() -> None:
    lock = __import__("threading").Lock()
    found = outcomes(processes(ad.Dataset.from_iterable([1, lock, 3]), lambda x: x))
    assert found[::2] == [1, 3]
    assert found[1][0] is TypeError
    assert "cannot be sent to a worker process" in found[1][1]
    assert "element 1" in found[1][2][0]


def test_a_function_that_cannot_travel_is_refused_at_once() -> None:
    lock = __import__("threading").Lock()
    with pytest.raises(ad.PlanError, match="cannot be sent to a worker process.*executor='thread'"):
        ad.Dataset.range(3).map(lambda x: (lock, x), executor="process")


def test_a_function_that_cannot_be_loaded_ends_the_pipeline() -> None:
    class Bad:
        def __call__(self, number: int) -> int:
            return number

        def __reduce__(self) -> Any:
            return missing, ()

    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        list(processes(ad.Dataset.range(3), Bad()))


def missing() -> Any:
    return __import__("no_such_module")


def test_a_coroutine_function_is_refused() -> None:
    async def later(number: int) -> int:
        return number

    with pytest.raises(ad.PlanError, match="coroutine"):
        ad.Dataset.range(3).map(later, executor="process")


def test_system_exit_ends_the_pipeline() -> None:
    def leave(number: int) -> int:
        raise SystemExit(number)

    with pytest.raises(SystemExit):
        list(processes(ad.Dataset.range(3), leave))


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_random_numbers_are_the_elements_own(calls: int) -> None:
    def draw(number: int, rng: np.random.Generator) -> int:
        return int(rng.integers(1 << 30))

    here = ad.Dataset.range(50).repeat(2).map(draw, rng=True, seed=3)
    there = ad.Dataset.range(50).repeat(2).map(draw, calls, executor="process", rng=True, seed=3)
    assert list(here) == list(there)
    epochs = there.iterate(), there.iterate()
    with epochs[0], epochs[1]:
        assert list(epochs[0]) != list(epochs[1])


def test_batches_go_through_and_fail_alone() -> None:
    def halves(batch: Any) -> Any:
        if (batch == 5).any():
            raise Boom(5)
        return batch / 2

    ds = ad.Dataset.range(20).map(fail_sometimes)
    assert outcomes(processes(ds, halves, batch=4)) == outcomes(ds.map(halves, batch=4))


def test_a_state_goes_on_elsewhere() -> None:
    """Where functions are called is no part of a state."""
    anywhere = {"process": processes(ad.Dataset.range(200), double), "thread": ad.Dataset.range(200).map(double, 3)}
    for begun, ended in (("process", "thread"), ("thread", "process"), ("process", "process")):
        with anywhere[begun].batch(3).iterate() as elements:
            first = [next(elements).tolist() for _ in range(17)]
            state = elements.state_dict()
        with anywhere[ended].batch(3).iterate(state=state) as elements:
            rest = [batch.tolist() for batch in elements]
        assert [number for batch in first + rest for number in batch] == list(range(0, 400, 2))


def test_shuffled_and_cached_results_are_copied_out() -> None:
    made = processes(ad.Dataset.range(100), lambda number: np.full(30_000, number))
    for ds in (made.filter(lambda _: True).shuffle(80, seed=1), made.cache().repeat(2)):
        assert "True" not in ds.explain()
        found = list(ds)
        assert sorted({int(array[0]) for array in found}) == list(range(100))
        bases = {type(base_of(array)).__name__ for array in found}
        assert not any("c_ubyte" in name for name in bases), bases


def base_of(array: Any) -> Any:
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


def test_two_stages_share_the_processes() -> None:
    ds = ad.Dataset.range(100).map(lambda _: os.getpid(), 2, executor="process", deterministic=False)
    both = ds.map(lambda pid: (pid, os.getpid()), 2, executor="process")
    assert len({pid for pair in both for pid in pair}) <= 2


def test_processes_stay_for_the_next_epoch() -> None:
    ds = processes(ad.Dataset.range(50), lambda _: os.getpid())
    assert len({pid for _ in range(6) for pid in ds}) <= 2


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_an_executor_of_the_users_own(kind: str) -> None:
    with ThreadPoolExecutor(2) if kind == "threads" else ProcessPoolExecutor(2, get_context("forkserver")) as executor:
        ds = ad.Dataset.range(60).map(fail_sometimes, executor=executor)
        assert outcomes(ds) == outcomes(ad.Dataset.range(60).map(fail_sometimes))
        assert list(ad.Dataset.range(9).map(lambda x: x + 1, executor=executor)) == list(range(1, 10))
        assert executor.submit(double, 4).result() == 8, "it is the user's to end"


class Later(Executor):
    """Keeps what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.asked.append((Future(), partial(fn, *args)))
        return self.asked[-1][0]


@pytest.mark.parametrize("calls", [1, 2])
def test_an_executor_is_asked_for_so_many_groups_at_once_and_no_more(calls: int) -> None:
    executor, done = Later(), list[Group]()
    own = ExecutorWorkers(executor, calls, GroupWork((Call("map", double),)), ())
    groups = [Group(Block([number], Ordinals(number, number + 1))) for number in range(5)]
    for group in groups:
        own.submit(group, done.append)
    for number in range(5):
        assert len(executor.asked) == min(5, number + calls)
        future, call = executor.asked[number]
        future.set_result(call())
    assert done == groups
    assert [group.result.items for group in done] == [[0], [2], [4], [6], [8]]


@pytest.mark.parametrize("ends", [Future[Any].cancel, lambda future: future.set_exception(BrokenProcessPool("dead"))])
def test_an_executor_that_ends_calls_is_not_asked_for_more(ends: Callable[[Future[Any]], object]) -> None:
    """It may hold a lock meanwhile, as the standard ones do: to ask would hang whoever shuts it down."""
    executor, done = Later(), list[Group]()
    own = ExecutorWorkers(executor, 2, GroupWork((Call("map", double),)), ())
    for number in range(5):
        own.submit(Group(Block([number], Ordinals(number, number + 1))), done.append)
    executor.asked[0][0].set_result(executor.asked[0][1]())
    ends(executor.asked[1][0])
    assert len(executor.asked) == 3
    assert [type(group.error) for group in done] == [type(None), *[ad.errors.StageError] * 3]


def test_an_executor_may_end_a_call_while_it_is_asked_for_another() -> None:
    """In another thread, which would wait for one that waits for it if they had locks of both."""

    class Ending(Later):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            if len(self.asked) == 1:
                future, call = self.asked[0]
                ends = threading.Thread(target=lambda: future.set_result(call()), daemon=True)
                ends.start()
                ends.join(60)
                assert not ends.is_alive()
            return super().submit(fn, *args, **kwargs)

    own = ExecutorWorkers(executor := Ending(), 2, GroupWork((Call("map", double),)), ())
    groups = [Group(Block([number], Ordinals(number, number + 1))) for number in range(2)]
    for group in groups:
        own.submit(group, lambda _: None)
    assert [group.error for group in groups] == [None, None]
    assert len(executor.asked) == 2


def test_an_executor_that_was_shut_down_is_an_error() -> None:
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(ad.errors.StageError, match=r"map\(double\).*executor= accepts no more calls: .*shutdown"):
        list(ad.Dataset.range(3).map(double, executor=executor))


class Counting(ThreadPoolExecutor):
    """One thread, which waits until so many calls are there, and those that wait are cancelled."""

    def __init__(self, calls: int) -> None:
        super().__init__(1)
        self.calls = calls
        self.cancelled = threading.Event()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls -= 1
        future = super().submit(self.held, fn, *args)
        if not self.calls:
            self.shutdown(wait=False, cancel_futures=True)
            self.cancelled.set()
        return future

    def held(self, fn: Callable[..., Any], *args: Any) -> Any:
        self.cancelled.wait()
        return fn(*args)


def test_calls_that_an_executor_has_cancelled_are_an_error() -> None:
    with Counting(3) as executor, ad.Dataset.range(3).map(double, 3, executor=executor).iterate() as elements:
        assert next(elements) == 0
        with pytest.raises(ad.errors.StageError, match=r"map\(double\).*executor= has cancelled"):
            next(elements)


def test_groups_grow_to_as_long_as_they_should_take() -> None:
    pace = ChunkSizer(4e-3)
    for _ in range(20):
        pace.measured(pace.group, pace.group * 1e-4)
    assert pace.group == 40


def test_time_without_a_core_makes_no_group_smaller() -> None:
    """A worker whose core others have takes longer, and has no more to do."""
    outcome = TaskResult([0, 2], None, 2, seconds=1.0, queued=0.9)
    block, future = Block([0, 1], Ordinals(0, 2)), Future[TaskResult | IsolatedElement]()
    future.set_result(outcome)
    own = ExecutorWorkers(cast("Any", None), 1, GroupWork(()), ())
    own.done(Group(block), lambda _: None, future)
    pool = ProcessWorkers.__new__(ProcessWorkers)
    pool.pool = cast("Any", SimpleNamespace(attached=SimpleNamespace(open=lambda *_: outcome)))
    pool.pace, pool.copied, pool.work = ChunkSizer(1.0), False, GroupWork(())
    pool.result(Group(block), TaskReply(b"", False))
    assert own.pace.each == pool.pace.each == pytest.approx(0.05)


def test_a_worker_gives_back_what_it_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function has become slow; other workers take part in what is left, or another executor."""
    given: list[int] = []
    reached = workers.reached

    def noted(block: Block, outcome: TaskResult) -> int:
        count = reached(block, outcome)
        if count < len(block):
            given.append(count)
        return count

    def slow(number: int) -> int:
        if number >= 2000 and number % 300 == 0:
            time.sleep(0.15)
        return number + 1

    monkeypatch.setattr(workers, "reached", noted)
    assert list(processes(ad.Dataset.range(5000), slow)) == [*range(1, 5001)]
    assert given


@pytest.mark.parametrize("calls", [1, 3])
def test_an_executor_gives_back_what_it_has_not_begun(calls: int) -> None:
    called: list[int] = []

    def noted(number: int) -> int:
        called.append(number)
        return 1 // (number % 7)

    with impatient(), ThreadPoolExecutor(3) as executor:
        ds = ad.Dataset.range(2000).map(noted, calls, executor=executor)
        assert results(ds) == results(ad.Dataset.range(2000).map(lambda number: 1 // (number % 7)))
    assert sorted(called) == [*range(2000)]
    assert called == sorted(called) or calls > 1


def test_leaving_early_leaves_nothing_running() -> None:
    with processes(ad.Dataset.counter(), double).iterate() as elements:
        assert [next(elements) for _ in range(5)] == [0, 2, 4, 6, 8]
    gc.collect()
    assert list(processes(ad.Dataset.range(3), double)) == [0, 2, 4]


def compute_threads(_: int) -> tuple[list[str | None], list[int]]:
    """Return what this process tells libraries that compute, and in how many threads those that are here do."""
    np.ones((2, 2)) @ np.ones((2, 2))
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
    return [os.environ.get(name) for name in names], [pool["num_threads"] for pool in threadpool_info()]


def test_a_worker_computes_in_one_thread() -> None:
    for told, threads in processes(ad.Dataset.range(8), compute_threads):
        assert told == ["1"] * 4
        assert threads
        assert set(threads) == {1}


def odd_one_fails(x: Any) -> Any:
    if x == 1:
        raise ValueError(x)
    return x


def words_of(batch: Any) -> list[str]:
    return [repr(batch)] * len(batch)


def test_a_function_of_batches_is_given_no_elements_that_have_failed() -> None:
    ds = ad.Dataset.range(4).map(odd_one_fails).map(words_of, batch=2, num_parallel_calls=2, executor="process")
    found = outcomes(ds)
    assert [found[0], *found[2:]] == ["array([0])", "array([2, 3])", "array([2, 3])"]
    assert found[1][0] is ValueError


def test_datasets_inside_an_interleave_share_the_processes() -> None:
    ds = ad.Dataset.range(6).interleave(
        lambda x: processes(ad.Dataset.range(x, x + 3), lambda n: (n, os.getpid())),
        cycle_length=6,
        num_parallel_calls=6,
    )
    with ds.iterate() as elements:
        found = list(elements)
        step = elements.stats().steps[1]
    assert [number for number, _ in found] == [x + y for y in range(3) for x in range(6)]
    assert 1 <= len({process for _, process in found} - {os.getpid()}) <= 2
    assert (step.where, step.workers) == ("process", 2)
