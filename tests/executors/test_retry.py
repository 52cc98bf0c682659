"""Functions that are tried again, and such that are given up."""

from __future__ import annotations

import asyncio
import pickle
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.executors.function_wrappers import unwrapped
from asyncdata.identity.content_hash import contents_of
from asyncdata.testing import check_resumes, leaves_nothing, virtual_time
from tests.executors.process.test_map import outcomes
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import WAYS, results

CURRENT = ad.Options(placement="current")


class Flaky:
    """A function that fails so many times for each element before it succeeds."""

    __name__ = "flaky"

    def __init__(self, failures: int, error: type[Exception] = ConnectionError) -> None:
        self.failures, self.error = failures, error
        self.calls: dict[Any, int] = {}

    def __call__(self, x: Any) -> Any:
        self.calls[x] = self.calls.get(x, 0) + 1
        if self.calls[x] <= self.failures:
            raise self.error(x)
        return x

    async def awaited(self, x: Any) -> Any:
        await asyncio.sleep(0)
        return self(x)


def seconds(body: Callable[[], Coroutine[Any, Any, Any]]) -> tuple[Any, float]:
    """Run a coroutine function in virtual time; return its result and how long it took."""
    with asyncio.Runner(loop_factory=virtual_time) as runner:
        return runner.run(body()), runner.get_loop().time()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("kind", ["plain", "coroutine"])
@pytest.mark.parametrize("calls", [None, 3])
def test_what_fails_for_a_while_succeeds_in_the_end(way: Any, kind: str, calls: int | None) -> None:
    flaky = Flaky(2)
    fn = ad.with_retries(flaky if kind == "plain" else flaky.awaited, backoff=0)
    assert way(ad.Dataset.range(4).map(fn, num_parallel_calls=calls)) == [0, 1, 2, 3]
    assert set(flaky.calls.values()) == {3}


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_after_so_many_tries_the_error_is_the_functions_own(kind: str) -> None:
    flaky = Flaky(9)
    ds = ad.Dataset.range(1).map(ad.with_retries(flaky if kind == "plain" else flaky.awaited, 2, backoff=0))
    with pytest.raises(ConnectionError) as caught:
        list(ds)
    assert caught.value.args == (0,)
    assert caught.value.__notes__[0] == "after 2 retries"
    assert flaky.calls == {0: 3}


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_other_errors_are_not_tried_again(kind: str) -> None:
    flaky = Flaky(1, Boom)
    fn = flaky if kind == "plain" else flaky.awaited
    assert results(ad.Dataset.range(2).map(ad.with_retries(fn, backoff=0))) == [Failed("Boom(0)"), Failed("Boom(1)")]
    flaky.calls.clear()
    assert results(ad.Dataset.range(2).map(ad.with_retries(fn, backoff=0, on=(Boom,)))) == [0, 1]


def test_each_wait_is_twice_as_long_and_nothing_else_waits() -> None:
    """Four elements at once, each after waits of 1, 2 and 4 seconds: seven seconds in all."""
    fn = ad.with_retries(Flaky(3).awaited, 3, backoff=1)

    async def body() -> list[int]:
        return [x async for x in ad.Dataset.range(4).map(fn, num_parallel_calls=4).with_options(CURRENT)]

    assert seconds(body) == ([0, 1, 2, 3], 7)


@pytest.mark.parametrize("wrap", [lambda fn: fn, partial], ids=["itself", "partial"])
@pytest.mark.parametrize("method", ["map", "filter"])
def test_a_plain_function_that_waits_runs_in_a_thread(method: str, wrap: Any) -> None:
    ds = getattr(ad.Dataset.range(3), method)(wrap(ad.with_retries(Flaky(1), backoff=0)))
    assert "num_parallel_calls=1" in repr(ds)
    assert list(ds) == [0, 1, 2] if method == "map" else [1, 2]


@pytest.mark.parametrize("method", ["flat_map", "interleave", "map"])
def test_where_functions_run_on_the_loop_a_plain_one_may_not_wait(method: str) -> None:
    fn = ad.with_retries(lambda x: ad.Dataset.range(x))
    how = {"executor": "inline"} if method == "map" else {}
    with pytest.raises(ad.PlanError, match="async def"):
        getattr(ad.Dataset.range(3), method)(fn, **how)


def itself(fn: Any) -> Any:
    return fn


def within(fn: Callable[[int], int]) -> Callable[[int], int]:
    return lambda x: fn(x)


@pytest.mark.parametrize("wrap", [itself, within], ids=["in a thread", "on the engine's thread"])
@pytest.mark.parametrize("steps", [lambda ds: ds, lambda ds: ds.map(abs, 2)], ids=["by hand", "on a loop"])
@pytest.mark.parametrize("placement", ["thread", "current"])
def test_who_leaves_ends_the_wait_and_nothing_is_called_again(placement: ad.Placement, steps: Any, wrap: Any) -> None:
    tries: list[int] = []
    tried = threading.Event()

    def fail(x: int) -> int:
        tries.append(x)
        tried.set()
        raise ConnectionError

    fn = wrap(ad.with_retries(fail, backoff=20))
    ds = steps(ad.Dataset.range(9 if wrap is itself else 1)).map(fn).with_options(ad.Options(placement=placement))
    with leaves_nothing():
        elements = ds.iterate()
        leaver = threading.Thread(target=lambda: tried.wait() and elements.close())
        leaver.start()
        with pytest.raises((ad.ClosedError, ConnectionError)):  # the error may be there first
            next(elements)
        leaver.join()
    assert tries == [0]


def test_a_coroutine_function_that_waits_may_make_datasets() -> None:
    flaky = Flaky(1)

    async def make(x: int) -> Any:
        await flaky.awaited(x)
        return ad.Dataset.range(x)

    assert list(ad.Dataset.range(4).flat_map(ad.with_retries(make, backoff=0))) == [0, 0, 1, 0, 1, 2]


@pytest.mark.parametrize(
    "wrapped", [partial(ad.with_timeout(Flaky(0).awaited, 60)), partial(partial(ad.with_retries(Flaky(0).awaited)))]
)
def test_a_partial_of_a_coroutine_function_is_awaited(wrapped: Any) -> None:
    assert list(ad.Dataset.range(3).map(wrapped)) == [0, 1, 2]
    assert list(ad.Dataset.range(3).map(ad.with_timeout(wrapped, 60), num_parallel_calls=2)) == [0, 1, 2]
    assert list(ad.Dataset.range(3).filter(ad.with_retries(wrapped))) == [1, 2]


def decode(x: int) -> int:
    return x


def test_names_in_plans_and_errors_are_those_of_the_function() -> None:
    assert (
        ad.Dataset.range(1).map(ad.with_retries(decode)).fingerprint() == ad.Dataset.range(1).map(decode).fingerprint()
    )
    assert "partial(decode)" in repr(ad.Dataset.range(1).map(ad.with_retries(partial(decode))))


class Named:
    """A function whose attributes have the names of those of a wrapper."""

    def __init__(self) -> None:
        self.note = self.waits = self.func = self.retries = self.backoff = self.on = self.seconds = "its own"
        self.calls = 0

    def __call__(self, x: int) -> int:
        self.calls += 1
        if self.calls % 3:
            raise ConnectionError
        return x


class Awaited(Named):
    async def __call__(self, x: int) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Named.__call__(self, x)


@pytest.mark.parametrize("kind", [Named, Awaited])
def test_attributes_of_a_callable_object_are_its_own(kind: type[Any]) -> None:
    assert list(ad.Dataset.range(2).map(ad.with_retries(kind(), 2, backoff=0))) == [0, 1]
    with pytest.raises(ConnectionError) as caught:
        list(ad.Dataset.range(1).map(ad.with_retries(kind(), 1, backoff=0)))
    assert caught.value.__notes__[0] == "after 1 retries"


again = partial(ad.with_retries, backoff=0)
soon = partial(ad.with_timeout, seconds=60)


class Methods:
    """Methods of every kind that fail the first two times for each element."""

    def __init__(self, factor: int) -> None:
        self.factor = factor
        self.calls: dict[int, int] = {}

    def _go(self, x: int) -> int:
        self.calls[x] = self.calls.get(x, 0) + 1
        if self.calls[x] < 3:
            raise ConnectionError(x)
        return self.factor * x

    renamed = again(_go)

    @again
    def plain(self, x: int) -> int:
        return self._go(x)

    @again
    async def awaited(self, x: int) -> int:
        return self._go(x)

    @again
    @soon
    async def timed_each(self, x: int) -> int:
        return self._go(x)

    @soon
    @again
    async def timed_in_all(self, x: int) -> int:
        return self._go(x)

    @classmethod
    @again
    def of_class(cls, x: int) -> int:
        return PRESENT._go(x)

    @again
    @staticmethod
    def of_nothing(x: int) -> int:
        return PRESENT._go(x)

    bound = again(Flaky(2).awaited)
    called = again(Flaky(2))


PRESENT = Methods(1)
METHODS = ["plain", "renamed", "awaited", "timed_each", "timed_in_all"]


@pytest.mark.parametrize("name", [*METHODS, "of_class", "of_nothing", "bound", "called"])
def test_a_method_is_bound_to_what_it_would_be_bound_to_without(name: str) -> None:
    PRESENT.calls.clear()
    factor = 3 if name in METHODS else 1
    fn = getattr(Methods(3), name)
    assert list(ad.Dataset.range(4).map(fn)) == [0, factor, 2 * factor, 3 * factor]


@pytest.mark.parametrize("wrap", [lambda fn: fn, partial], ids=["itself", "partial"])
@pytest.mark.parametrize("name", METHODS)
def test_a_method_waits_where_its_function_does(name: str, wrap: Any) -> None:
    fn = wrap(getattr(Methods(3), name))
    if name in ("plain", "renamed"):
        assert "num_parallel_calls=1" in repr(ad.Dataset.range(3).map(fn))
        with pytest.raises(ad.PlanError, match="async def"):
            ad.Dataset.range(3).flat_map(fn)
    else:
        assert list(ad.Dataset.range(4).map(ad.with_timeout(fn, 60), 2)) == [0, 3, 6, 9]


@pytest.mark.parametrize("name", METHODS)
def test_an_error_of_a_method_tells_where_that_is(name: str) -> None:
    with pytest.raises(TypeError) as caught:
        list(ad.Dataset.from_list([[]]).map(getattr(Methods(3), name)))
    inner = unwrapped(getattr(Methods, name))
    assert caught.value.__notes__[-1].endswith(f" at test_retry.py:{inner.__code__.co_firstlineno}, element 0")


class Inherited(Methods):
    """The same methods, of another class."""


def test_a_method_is_told_by_its_function_and_what_it_is_bound_to() -> None:
    def told(fn: Any) -> str:
        return contents_of((fn,))

    first, same, other = Methods(3), Methods(3), Methods(4)
    assert told(first.plain) == told(same.plain) == told(ad.with_retries(same.plain))
    assert told(first.plain) != told(other.plain) == told(ad.with_retries(other.plain))
    assert len({told(fn) for fn in (first.plain, first.renamed, Inherited(3).plain, Methods.plain)}) == 4


@again
def decorated(x: int) -> int:
    return x


@pytest.mark.parametrize("name", METHODS)
def test_what_can_be_imported_is_pickled_by_name(name: str) -> None:
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    method = pickle.loads(pickle.dumps(getattr(Methods(3), name)))
    assert (type(method.__self__), method.__func__) == (Methods, getattr(Methods, name))


@pytest.mark.parametrize("name", ["plain", "renamed"])
def test_a_method_is_tried_again_in_a_worker_process(name: str) -> None:
    ds = ad.Dataset.range(4).map(getattr(Methods(3), name), 1, executor="process")
    assert list(ds) == [0, 3, 6, 9]


def test_what_cannot_be_imported_is_pickled_whole() -> None:
    @again
    def local(x: int) -> int:
        return -x

    assert list(ad.Dataset.range(3).map(local, 1, executor="process")) == [0, -1, -2]


def test_a_batch_is_tried_again_too() -> None:
    calls: list[Any] = []

    def flaky(x: Any) -> Any:
        calls.append(len(x))
        if len(calls) < 3:
            raise ConnectionError
        return x

    assert list(ad.Dataset.range(4).map(ad.with_retries(flaky, backoff=0), batch=4)) == [0, 1, 2, 3]
    assert calls == [4, 4, 4]


def test_what_takes_too_long_is_given_up_in_its_place() -> None:
    async def work(x: int) -> int:
        await asyncio.sleep(x)
        return x

    async def body() -> list[Any]:
        found: list[Any] = []
        ds = ad.Dataset.range(5).map(ad.with_timeout(work, 2.5)).with_options(CURRENT)
        async with ds.iterate() as elements:
            while len(found) < 5:
                try:
                    found.append(await anext(elements))
                except TimeoutError as error:
                    found.append(str(error))
        return found

    late = "it took longer than 2.5 s"
    assert seconds(body) == ([0, 1, 2, late, late], 0 + 1 + 2 + 2.5 + 2.5)


def test_a_timeout_of_the_functions_own_stays_what_it_is() -> None:
    async def work(x: int) -> int:
        raise TimeoutError("own")

    with pytest.raises(TimeoutError, match="own"):
        list(ad.Dataset.range(1).map(ad.with_timeout(work, 5)))


def test_what_was_given_up_is_tried_again() -> None:
    tries: list[int] = []

    async def hang_once(x: int) -> int:
        tries.append(x)
        if len(tries) == 1:
            await asyncio.sleep(3600)
        return x

    async def body() -> list[int]:
        fn = ad.with_retries(ad.with_timeout(hang_once, 10), backoff=1)
        return [x async for x in ad.Dataset.range(2).map(fn).with_options(CURRENT)]

    assert seconds(body) == ([0, 1], 11)


@pytest.mark.parametrize(
    "build",
    [
        lambda ds, fn: ds.map(fn),
        lambda ds, fn: ds.map(fn, 2),
        lambda ds, fn: ds.map(fn, executor="thread"),
        lambda ds, fn: ds.map(fn, executor=ad.AUTOTUNE),
        lambda ds, fn: ds.map(fn, batch=4),
        lambda ds, fn: ds.map(ad.with_retries(fn)),
        lambda ds, fn: ds.map(partial(fn)),
        lambda ds, fn: ds.filter(fn),
        lambda ds, fn: ds.scan(0, fn),
        lambda ds, fn: ds.distinct(fn),
    ],
)
def test_nothing_can_stop_a_thread_and_it_is_said_at_once(build: Callable[..., Any]) -> None:
    with pytest.raises(ad.PlanError, match="a thread cannot be stopped"):
        build(ad.Dataset.range(3), ad.with_timeout(decode, 1))


def test_one_timeout_is_enough() -> None:
    with pytest.raises(ad.PlanError, match="has a timeout already"):
        ad.with_timeout(ad.with_retries(ad.with_timeout(decode, 1)), 1)


def slow_at_three(x: int) -> int:
    if x == 3:
        time.sleep(3600)
    return x


def hang_in_c_at_three(x: int) -> int:
    return sum(range(10**15)) if x == 3 else x


@pytest.mark.parametrize("placement", first_by_default(["thread", "process", "current"]))
def test_a_worker_gives_a_call_up_in_its_place(placement: Any) -> None:
    fn = ad.with_retries(ad.with_timeout(slow_at_three, 0.2), retries=1)
    ds = ad.Dataset.range(8).map(fn, 2, executor="process").with_options(ad.Options(placement=placement))
    found = outcomes(ds)
    assert found[3][:2] == (TimeoutError, "it took longer than 0.2 s")
    assert found[3][2][0] == "after 1 retries"
    assert [x for x in found if x != found[3]] == [0, 1, 2, 4, 5, 6, 7]


@pytest.mark.slow
def test_a_call_that_no_signal_interrupts_is_ended_with_its_worker() -> None:
    """It takes three times five seconds."""
    found = outcomes(ad.Dataset.range(8).map(ad.with_timeout(hang_in_c_at_three, 0.2), 2, executor="process"))
    assert found[3][0] is ad.WorkerCrashed
    assert [x for x in found if x != found[3]] == [0, 1, 2, 4, 5, 6, 7]


def test_a_worker_has_no_alarm_left() -> None:
    ds = ad.Dataset.range(50).map(ad.with_timeout(alarms, 5), 2, executor="process")
    assert all(0 < seconds <= 5 for seconds in ds)
    assert set(ad.Dataset.range(50).map(alarms, 2, executor="process")) == {0.0}


def alarms(_: int) -> float:
    return signal.getitimer(signal.ITIMER_REAL)[0]


def test_it_is_called_in_the_main_thread_alone() -> None:
    fn = ad.with_timeout(decode, 5)
    assert fn(3) == decode(3)
    with ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match="cannot be stopped"):
        pool.submit(fn, 3).result()


def failing(x: Any) -> Any:
    raise Boom(x)


async def failing_late(x: Any) -> Any:
    raise Boom(x)


@pytest.mark.parametrize(
    ("wrapped", "fn"),
    [
        (ad.with_timeout(ad.with_retries(failing_late), 1), failing_late),
        (ad.with_retries(ad.with_timeout(failing_late, 1)), failing_late),
        (ad.with_retries(partial(failing)), failing),
        (partial(ad.with_retries(failing)), failing),
    ],
    ids=["timeout", "retries", "partial", "in partial"],
)
def test_an_error_tells_where_the_users_function_is(wrapped: Any, fn: Any) -> None:
    with pytest.raises(Boom) as caught:
        list(ad.Dataset.range(1).map(wrapped))
    assert caught.value.__notes__[-1].endswith(f" at test_retry.py:{fn.__code__.co_firstlineno}, element 0")


@pytest.mark.parametrize("wrong", [{"retries": -1}, {"retries": 1.5}, {"backoff": -1}, {"backoff": "1"}])
def test_arguments_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ad.PlanError, match=next(iter(wrong))):
        ad.with_retries(decode, **wrong)
    with pytest.raises(ad.PlanError, match="function"):
        ad.with_retries(3)  # type: ignore[arg-type]


def test_a_pipeline_with_retries_goes_on() -> None:
    check_resumes(lambda: ad.Dataset.range(10).map(ad.with_retries(Flaky(1), backoff=0)).shuffle(3, seed=1))
