from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_transform
from asyncdata.transforms import flat_map
from tests.reference import Boom, Failed
from tests.running import WAYS, read_plain, results


def test_keeps_its_contract() -> None:
    check_transform(
        lambda ds: ds.flat_map(lambda x: ad.Dataset.range(x % 3)),
        lambda items: [i for x in items for i in range(x % 3)],
        [(), (1,), (0,), range(100)],
    )


def test_infinite_inner_and_outer() -> None:
    ds = ad.Dataset.counter().flat_map(lambda x: ad.Dataset.from_tensors(x).repeat(2))
    assert list(ds.take(5)) == [0, 0, 1, 1, 2]
    assert list(ad.Dataset.range(2).flat_map(lambda x: ad.Dataset.counter(x)).take(3)) == [0, 1, 2]


def test_many_empty_inner_datasets() -> None:
    ds = ad.Dataset.range(3000).flat_map(lambda x: ad.Dataset.range(x // 2999))
    assert list(ds) == [0]


def test_nested_three_deep() -> None:
    def inner(x: int) -> ad.Dataset:
        return ad.Dataset.range(2).flat_map(lambda y: ad.Dataset.range(2).map(lambda z: (x, y, z)))

    expected = [(x, y, z) for x in range(2) for y in range(2) for z in range(2)]
    assert list(ad.Dataset.range(2).flat_map(inner)) == expected


def test_the_same_dataset_for_every_element() -> None:
    shared = ad.Dataset.range(2)
    assert list(ad.Dataset.range(3).flat_map(lambda _: shared)) == [0, 1] * 3


def test_a_tuple_is_unpacked() -> None:
    assert list(ad.Dataset.from_iterable([(1, 3)]).flat_map(lambda a, b: ad.Dataset.range(a, b))) == [1, 2]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_failures_in_place(way: Any) -> None:
    def inner(x: int) -> Any:
        if x == 1:
            raise Boom(x)
        return [x] if x == 2 else ad.Dataset.from_tensors(x)

    assert way(ad.Dataset.range(4).flat_map(inner)) == [0, Failed("Boom(1)"), Failed("TypeError"), 3]


def test_what_is_no_dataset_is_named() -> None:
    def inner(x: int) -> Any:
        return [x]

    with pytest.raises(TypeError, match=r"flat_map\(inner\).* must .*, got list: \[0\]; wrap it: Dataset.from_it"):
        list(ad.Dataset.range(1).flat_map(inner))
    with pytest.raises(TypeError, match=r"must return a Dataset, got int: 0(?!;)"):
        list(ad.Dataset.range(1).flat_map(lambda x: x))


def test_failures_inside_an_inner_dataset_pass_in_place() -> None:
    def fail_at_1(x: int) -> int:
        if x == 1:
            raise Boom(x)
        return x

    ds = ad.Dataset.range(2).flat_map(lambda x: ad.Dataset.range(3).map(fail_at_1))
    assert results(ds) == [0, Failed("Boom(1)"), 2] * 2


def test_inner_pipelines_with_parallel_maps_and_prefetch() -> None:
    def inner(x: int) -> ad.Dataset:
        return ad.Dataset.range(5).map(lambda y: x * 10 + y, num_parallel_calls=2).prefetch(2)

    expected = [x * 10 + y for x in range(20) for y in range(5)]
    assert list(ad.Dataset.range(20).flat_map(inner)) == expected
    assert list(ad.Dataset.range(20).flat_map(inner).take(7)) == expected[:7]


def test_inner_generators_are_closed_when_left() -> None:
    closed: list[int] = []

    def generate(x: int) -> Any:
        try:
            yield from range(10)
        finally:
            closed.append(x)

    ds = ad.Dataset.range(3).flat_map(lambda x: ad.Dataset.from_generator(generate, args=(x,)).take(1))
    assert read_plain(ds) == [0, 0, 0]
    assert sorted(closed) == [0, 1, 2]


def test_cardinality_is_unknown() -> None:
    ds = ad.Dataset.range(3).flat_map(lambda x: ad.Dataset.range(1))
    assert ds.cardinality() == ad.UNKNOWN_CARDINALITY


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises((ad.PlanError, TypeError)):
        ad.Dataset.range(1).flat_map(ad.Dataset.range(1))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, 2])
def test_one_that_never_gives_anything_lets_others_run(size: int) -> None:
    inner = ad.Dataset.range(size)
    ds = ad.Dataset.counter().flat_map(lambda _: inner).filter(lambda _: False)

    async def read() -> None:
        async for _ in ds.with_options(ad.Options(placement="current")):
            pass

    async def read_for_a_while() -> None:
        reading = asyncio.create_task(read())
        for _ in range(50):
            await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading

    asyncio.run(read_for_a_while())


def traced(ds: ad.Dataset) -> list[Any]:
    """Return each element, or the error in its place, with the position after it."""
    found: list[Any] = []
    with ds.iterate() as elements:
        while True:
            try:
                element: Any = next(elements)
            except StopIteration:
                return found
            except Exception as error:
                element = (str(error), error.__notes__)
            found.append((repr(element), elements.state_dict()["position"]))


@pytest.mark.parametrize(
    "inner",
    [
        lambda window: window.batch(4),
        lambda window: window.batch(4, drop_remainder=True),
        lambda window: window.batch(3),
        lambda window: window.padded_batch(4),
        lambda window: window.ragged_batch(9),
        lambda window: window,
        lambda _: ad.Dataset.range(5),
        lambda _: ad.Dataset.range(0),
        lambda _: ad.Dataset.from_tensor_slices(np.arange(6)).batch(6).batch(2),
        lambda _: ad.Dataset.from_iterable([1, "a", None]).batch(3),
        lambda _: ad.Dataset.from_iterable([np.zeros(1), np.zeros(2)]).batch(3),
    ],
)
def test_small_inner_datasets_that_are_at_hand_are_what_they_are_when_run(
    inner: Callable[[Any], ad.Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = ad.Dataset.range(11).map(lambda x: 1 // (x - 6) and np.arange(1 + x % 2))
    for windows in (ad.Dataset.range(11).window(4, shift=3), outer.window(4)):
        ds = windows.flat_map(inner)
        at_once = traced(ds)
        with monkeypatch.context() as patch:
            patch.setattr(flat_map, "AT_ONCE", -1)
            assert traced(ds) == at_once
