"""Several threads at one iterator: each element and each failure comes once, or the call is refused."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.integrations.loader import Loader
from asyncdata.iterator import ExclusiveUse, Reader

COUNT = 200


class Boom(Exception):
    pass


def some_fail(x: int) -> int:
    if x % 3 == 1:
        raise Boom(x)
    return x


@pytest.fixture(autouse=True)
def switch_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def read_all(read: Callable[[], int], found: list[object]) -> None:
    """Read until the end, and try again where another thread reads."""
    while True:
        try:
            found.append(read())
        except Boom as error:
            found.append(error.args[0])
        except ad.ConcurrentUseError:
            pass
        except (StopIteration, StopAsyncIteration):
            return
        except Exception as error:
            found.append(error)
            return


def in_threads(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


async def read_all_async(elements: Any, found: list[object]) -> None:
    while True:
        try:
            found.append(await anext(elements))
        except Boom as error:
            found.append(error.args[0])
        except ad.ConcurrentUseError:
            await asyncio.sleep(0)
        except StopAsyncIteration:
            return


DS = ad.Dataset.range(COUNT).map(some_fail)
MADE: dict[str, Callable[[], Any]] = {
    "thread": lambda: iter(DS),
    "current": lambda: iter(DS.with_options(ad.Options(placement="current"))),
    "loop": lambda: iter(ad.Dataset.range(COUNT).map(some_fail, num_parallel_calls=2)),
    "loader": lambda: iter(Loader(DS)),
    "tee": lambda: DS.tee(2, buffer_size=2 * COUNT)[0],
}


@pytest.mark.parametrize("name", MADE)
def test_each_element_and_each_failure_comes_once(name: str) -> None:
    for _ in range(8):
        found: list[object] = []
        elements = MADE[name]()
        in_threads([partial(read_all, elements.__next__, found)] * 3)
        assert Counter(found) == Counter(range(COUNT))


def test_tasks_and_threads_together() -> None:
    for _ in range(10):
        found: list[object] = []
        elements = ad.Dataset.range(COUNT).map(some_fail, num_parallel_calls=2).iterate()

        def run(elements: Any = elements, found: list[object] = found) -> None:
            asyncio.run(read_all_async(elements, found))

        in_threads([run, partial(read_all, elements.__next__, found)])
        assert Counter(found) == Counter(range(COUNT))


def test_states_that_another_thread_takes_are_of_one_moment() -> None:
    """How many elements were delivered and where to continue belong together."""
    for _ in range(10):
        elements, states, found = DS.iterate(), list[dict[str, Any]](), list[object]()

        def take(elements: Any = elements, states: list[dict[str, Any]] = states, found: list[object] = found) -> None:
            while len(found) < COUNT:
                states.append(elements.state_dict())

        in_threads([partial(read_all, elements.__next__, found), take])
        assert all(state["position"] in (state["delivered"], None, "end") for state in states)


def test_nothing_is_skipped_while_another_thread_reads() -> None:
    gate, started = threading.Event(), threading.Event()

    def generate() -> Iterator[int]:
        started.set()
        gate.wait(60)
        yield from range(3)

    elements = ad.Dataset.from_generator(generate).iterate()
    found: list[object] = []
    thread = threading.Thread(target=read_all, args=(elements.__next__, found))
    thread.start()
    assert started.wait(60)
    with pytest.raises(ad.ConcurrentUseError, match="two tasks or threads"):
        elements.skip(1)
    gate.set()
    thread.join(60)
    assert found == [0, 1, 2]


def test_elements_read_before_another_thread_loaded_a_state_do_not_follow_it() -> None:
    for _ in range(20):
        elements, found = DS.iterate(), list[object]()
        state = elements.state_dict()

        def read(elements: Any = elements, found: list[object] = found) -> None:
            while COUNT - 1 not in found:
                try:
                    found.append(next(elements))
                except Boom as error:
                    found.append(error.args[0])
                except ad.ClosedError:
                    pass

        def move(elements: Any = elements, state: dict[str, Any] = state) -> None:
            for _ in range(20):
                elements.load_state_dict(state)

        in_threads([read, move])
        begins = [place for place, x in enumerate(found) if x == 0]
        runs = [found[begin:end] for begin, end in zip(begins, [*begins[1:], None], strict=True)]
        assert all(run == [*range(len(run))] for run in runs)


@pytest.mark.parametrize("begin", [0, 1], ids=["element", "failure"])
def test_what_is_read_when_another_thread_closes_the_iterator_is_not_given(
    begin: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state does not count it."""
    read, ds = Reader.read, DS.skip(begin)

    def closed_behind(self: Reader) -> Any:
        found: Any = read(self)
        in_threads([self.leave])
        return found

    elements, found = ds.iterate(), list[object]()
    with monkeypatch.context() as patch, pytest.raises(ad.ClosedError):
        patch.setattr(Reader, "read", closed_behind)
        next(elements)
    read_all(ds.iterate(state=elements.state_dict()).__next__, found)
    assert found == [*range(begin, COUNT)]


def test_what_another_thread_got_for_a_consumer_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = ad.Dataset.range(COUNT).tee(2, buffer_size=2 * COUNT)
    found, enter, main = list[object](), ExclusiveUse.enter, threading.current_thread()
    alone = one._consumer.alone  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    def late(self: ExclusiveUse, reader: object) -> None:
        if self is alone and threading.current_thread() is main and len(found) < COUNT:
            in_threads([lambda: found.append(next(one))])
        enter(self, reader)

    with monkeypatch.context() as patch:
        patch.setattr(ExclusiveUse, "enter", late)
        read_all(one.__next__, found)
    assert found == [*other] == [*range(COUNT)]
