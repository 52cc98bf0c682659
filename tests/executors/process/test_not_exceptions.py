"""Functions that raise what is no `Exception`, or what ends loops and tasks, wherever they are called."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import pytest

import asyncdata as ad
from tests.marks import first_by_default

RANGE = ad.Dataset.range(6)
ENDS = (SystemExit, KeyboardInterrupt, GeneratorExit)
FAILS = {StopIteration: RuntimeError, StopAsyncIteration: RuntimeError, CancelledError: CancelledError}


class Raises:
    """A function that raises on 3."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __call__(self, x: int) -> int:
        if x == 3:
            raise self.kind("own")
        return x


class RaisesAwaited(Raises):
    """The same as a coroutine function."""

    async def __call__(self, x: int) -> int:  # type: ignore[override]
        return super().__call__(x)


def calling(kind: type[BaseException], placement: str, pool: Executor) -> dict[str, ad.Dataset[Any]]:
    """Return datasets that call a function which raises: in every place, but a few where each takes a process."""
    fn = Raises(kind)
    few = {
        "map": RANGE.map(fn),
        "map in processes": RANGE.map(fn, num_parallel_calls=2, executor="process"),
        "coroutines": RANGE.map(RaisesAwaited(kind)),
    }
    if placement == "process":
        return few
    return {
        **few,
        "an executor of the user's": RANGE.map(fn, executor=pool),
        "map in threads": RANGE.map(fn, num_parallel_calls=2),
        "map, pure": RANGE.map(fn, pure=True),
        "map of batches": RANGE.map(lambda batch: [fn(x) for x in batch.tolist()], batch=2),
        "filter": RANGE.filter(lambda x: [fn(x)]),
        "flat_map": RANGE.flat_map(lambda x: ad.Dataset.from_iterable([fn(x)])),
        "interleave": RANGE.interleave(lambda x: ad.Dataset.from_iterable([fn(x)])),
        "take_while": RANGE.take_while(lambda x: [fn(x)]),
        "scan": RANGE.scan(0, lambda state, x: (state, fn(x))),
        "distinct": RANGE.distinct(fn),
    }


PLACEMENTS = first_by_default(["thread", "current", "process"])


@pytest.mark.parametrize("kind", FAILS)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_what_would_end_a_loop_or_a_task_is_an_elements_failure(placement: Any, kind: type[BaseException]) -> None:
    with ThreadPoolExecutor(1) as pool:
        for name, ds in calling(kind, placement, pool).items():
            elements = ds.with_options(ad.Options(placement=placement)).iterate()
            assert [next(elements) for _ in range(3)] == [0, 1, 2], name
            with pytest.raises(FAILS[kind]) as caught:
                next(elements)
            assert any("element" in note for note in caught.value.__notes__), name
            assert [*elements] == [4, 5], name


@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_what_is_to_end_a_program_ends_the_pipeline(placement: Any, kind: type[BaseException]) -> None:
    with ThreadPoolExecutor(1) as pool:
        for name, ds in calling(kind, placement, pool).items():
            elements = ds.ignore_errors().with_options(ad.Options(placement=placement)).iterate()
            found: list[Any] = []
            with pytest.raises(kind, match="own"):
                found.extend(iter(lambda elements=elements: next(elements), None))
            assert found == [0, 1, 2][: len(found)], name
            with pytest.raises(kind, match="own"):
                next(elements)
            elements.close()


@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_coroutines_that_are_awaited_at_once_raise_it_in_its_place(placement: Any, kind: type[BaseException]) -> None:
    ds = RANGE.map(RaisesAwaited(kind), num_parallel_calls=4).with_options(ad.Options(placement=placement))
    with ds.iterate() as elements:
        assert [next(elements) for _ in range(3)] == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(kind, match="own"):
                next(elements)


def nested(x: int) -> ad.Dataset[int]:
    return ad.Dataset.from_iterable([Raises(KeyboardInterrupt)(x)])


READ_AHEAD = {
    "prefetch": RANGE.map(Raises(KeyboardInterrupt)).prefetch(2).map(abs),
    "map": RANGE.map(Raises(KeyboardInterrupt)).map(abs, num_parallel_calls=2),
    "coroutines": RANGE.map(RaisesAwaited(KeyboardInterrupt), num_parallel_calls=4),
    "interleave": RANGE.interleave(nested, num_parallel_calls=2),
}


@pytest.mark.parametrize("step", READ_AHEAD)
def test_in_a_task_it_does_not_end_the_event_loop(step: str) -> None:
    ds = READ_AHEAD[step].with_options(ad.Options(placement="current"))

    async def read() -> list[int]:
        found: list[int] = []
        elements = ds.iterate()
        with pytest.raises(KeyboardInterrupt, match="own"):
            while True:
                found.append(await anext(elements))
        await elements.aclose()
        return found

    found = asyncio.run(read())
    with ds.iterate() as elements:
        for _ in found:
            next(elements)
        for _ in range(2):  # not once out of the loop, and then again
            with pytest.raises(KeyboardInterrupt, match="own"):
                next(elements)
    assert found == [0, 1, 2][: len(found)]
