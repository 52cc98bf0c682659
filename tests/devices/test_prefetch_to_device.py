"""What a user sees of prefetch_to_device: elements, order, errors, states and endings, in each placement."""

from __future__ import annotations

import asyncio
import gc
import pickle
import subprocess
import sys
from collections import namedtuple
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.devices.simulated import Accelerator, SimulatedArray
from asyncdata.elements.structure import map_leaves
from asyncdata.testing import leaves_nothing
from tests.marks import first_by_default
from tests.reference import Boom

Pair = namedtuple("Pair", "left right")  # noqa: PYI024  the test is about these
PLACEMENTS = ("thread", "current", "process")
MODES = ("fresh", "ring")
WAYS = ("for", "async for")
ENDINGS = ("drop", "close")


@dataclass
class Sample:
    image: Any
    name: str


def row(x: int) -> dict[str, Any]:
    return {"x": np.full(3, x, np.float32), "name": f"number {x}", "pair": (np.int64(x), None)}


def odd_ones_fail(x: int) -> int:
    if x % 2:
        raise Boom(x)
    return x


NUMBERS = ad.Dataset.range(40)
ROWS = NUMBERS.map(row).batch(4)
SOURCES = {"batches": ROWS, "many in a block": NUMBERS.map(row).take(12)}
HALF_OF_THEM = NUMBERS.map(odd_ones_fail).take(10)


def on_host(element: Any) -> Any:
    """Return an element with its arrays as lists."""

    def listed(leaf: Any, _: str) -> Any:
        if isinstance(leaf, SimulatedArray):
            return leaf.numpy().tolist()
        return leaf.tolist() if isinstance(leaf, (np.ndarray, np.generic)) else leaf

    return map_leaves(listed, element)


def on_device(ds: ad.Dataset, placement: str = "thread", **how: Any) -> ad.Dataset:
    return ds.prefetch_to_device(Accelerator(), **how).with_options(ad.Options(placement=placement))


def read(ds: ad.Dataset, way: str, state: Any = None) -> tuple[list[Any], list[Any]]:
    """Return the elements of a dataset, and the state after each."""
    found: list[Any] = []
    states: list[Any] = []
    iterator = ds.iterate(state=state)

    def take(element: Any) -> None:
        found.append(on_host(element))
        states.append(iterator.state_dict())

    async def loop() -> None:
        async with iterator:
            async for element in iterator:
                take(element)

    if way == "async for":
        asyncio.run(loop())
    else:
        with iterator:
            for element in iterator:
                take(element)
    return found, states


@pytest.mark.parametrize(
    ("placement", "way", "mode", "ds"),
    [
        *product(("thread", "current"), WAYS, MODES, SOURCES),
        *first_by_default([*product(["process"], WAYS, MODES, SOURCES)]),
    ],
)
def test_elements_are_the_same_and_a_state_goes_on_at_each_stop(placement: str, way: str, mode: Any, ds: str) -> None:
    ds = SOURCES[ds].with_options(ad.Options(placement=placement))
    want = [on_host(element) for element in ds]
    there = on_device(ds, placement, mode=mode)
    found, states = read(there, way)
    assert found == want
    for stop, state in [*enumerate(states, 1)][:: 1 if placement == "current" else 4]:
        assert read(there, way, state)[0] == want[stop:]
        assert [on_host(element) for element in ds.iterate(state=state)] == want[stop:], "without the device"
    with ds.iterate() as elements:
        next(elements)
        assert read(there, way, elements.state_dict())[0] == want[1:], "a state of a run without the device"


def test_a_state_can_be_had_at_every_stop_while_batches_are_on_their_way_from_another_process() -> None:
    ds = NUMBERS.batch(1).prefetch(1).prefetch_to_device(Accelerator(), buffer_size=8)
    ds = ds.with_options(ad.Options(placement="process"))
    with ds.iterate() as batches:
        states = [batches.state_dict() for _ in batches]
    assert len(states) == 40
    for stop in (1, 17, 39):
        with ds.iterate(state=states[stop - 1]) as batches:
            assert next(batches).numpy().tolist() == [stop]


@pytest.mark.parametrize("placement", first_by_default(PLACEMENTS, 2))
def test_errors_are_in_their_places(placement: str) -> None:
    found: list[Any] = []
    with on_device(HALF_OF_THEM, placement).iterate() as elements:
        while True:
            try:
                found.append(next(elements))
            except StopIteration:
                break
            except Boom as error:
                found.append(error.args)
    assert found == [0, (1,), 2, (3,), 4, (5,), 6, (7,), 8, (9,)]


def test_more_failures_than_there_is_room_for_come_one_by_one() -> None:
    def boom(x: int) -> int:
        raise Boom(x)

    with on_device(ad.Dataset.counter().map(boom), "current").iterate() as elements:
        for number in range(10):
            with pytest.raises(Boom) as raised:
                next(elements)
            assert raised.value.args == (number,)


@pytest.mark.parametrize("placement", ["thread", "current"])
def test_what_ends_the_pipeline_comes_after_what_was_ready(placement: str) -> None:
    ds = ad.Dataset.range(2).map(lambda x: np.full(2, x)).filter(lambda _: True).assert_cardinality(3)
    with on_device(ds, placement).iterate() as elements:
        assert [next(elements).numpy()[0] for _ in range(2)] == [0, 1]
        for _ in range(2):
            with pytest.raises(ad.StageError, match="ended after 2"):
                next(elements)


def test_structures_of_any_kind_and_leaves_that_are_no_arrays() -> None:
    objects = np.array(["a", None], dtype=object)
    words = np.array([b"one", b"three"])
    masked = np.ma.masked_array([1, 2], [True, False])
    element = {
        "nested": ({"x": np.arange(6).reshape(2, 3)}, [1, 2]),
        "pair": Pair(np.zeros(0, np.float16), "text"),
        "sample": Sample(np.arange(4, dtype=">u2"), "name"),
        "others": (None, 3, 2.5, b"bytes", objects, words, masked),
        "strided": np.arange(10)[::-2],
        "scalar": np.float32(0.5),
    }
    (found,) = on_device(ad.Dataset.from_iterable([element]).map(lambda one: one))
    assert type(found["pair"]) is Pair
    assert type(found["sample"]) is Sample
    assert found["nested"][1] == [1, 2]
    assert found["others"][:4] == (None, 3, 2.5, b"bytes")
    assert found["others"][4].tolist() == ["a", None]
    assert found["others"][5].tolist() == [b"one", b"three"]
    assert isinstance(found["others"][6], np.ma.MaskedArray)
    arrays = [found["nested"][0]["x"], found["pair"].left, found["sample"].image, found["strided"], found["scalar"]]
    assert [array.numpy().tolist() for array in arrays] == [
        [[0, 1, 2], [3, 4, 5]],
        [],
        [0, 1, 2, 3],
        [9, 7, 5, 3, 1],
        0.5,
    ]


def test_arrays_that_others_have_too_are_copied() -> None:
    rows = np.arange(6).reshape(3, 2)
    ds = on_device(ad.Dataset.from_tensor_slices(rows).cache())
    for _ in range(2):
        assert [row.numpy().tolist() for row in ds] == rows.tolist()


@pytest.mark.parametrize(
    ("placement", "way"),
    [*product(("thread", "current"), ENDINGS), *first_by_default([*product(["process"], ENDINGS)])],
)
def test_nothing_is_left_behind(placement: str, way: str) -> None:
    ds = on_device(ROWS.repeat(), placement)
    next(iter(ds))  # its process may stay
    with leaves_nothing():
        iterator = ds.iterate()
        for _ in range(3):
            element = next(iterator)
        if way == "close":
            iterator.close()
            with pytest.raises(ad.ClosedError):
                next(iterator)
            assert len(iterator.state_dict()) > 0
        del iterator, element
        gc.collect()


def test_closing_on_a_loop_leaves_nothing_behind() -> None:
    async def main(placement: str) -> None:
        async with on_device(ROWS.repeat(), placement).iterate() as batches:
            for _ in range(3):
                await anext(batches)
        with pytest.raises(ad.ClosedError):
            await anext(batches)

    for placement in ("thread", "current"):
        with leaves_nothing():
            asyncio.run(main(placement))


@pytest.mark.parametrize("placement", ["thread", "current"])
def test_the_device_is_asked_for_no_more_than_there_is_room_for(placement: str) -> None:
    """A consumer that keeps nothing has `buffer_size` batches and the two that it changes between."""
    accelerator = Accelerator(policy="lazy")
    ds = ad.Dataset.range(200).map(lambda x: np.full(256, x, np.uint8))
    for element in ds.prefetch_to_device(accelerator, 3).with_options(ad.Options(placement=placement)):
        accelerator.kernel(element)
    assert accelerator.bytes <= 6 * 256


def test_a_plain_loop_without_threads_reads_ahead() -> None:
    made: list[int] = []

    def note(x: int) -> Any:
        made.append(x)
        return np.full(1, x)

    ds = on_device(ad.Dataset.range(9).map(note), "current", buffer_size=2)
    with ds.with_options(ad.Options(disabled_rules=("inject_prefetch",))).iterate() as elements:
        next(elements)
        assert made == [0, 1, 2]
        next(elements)
        assert made == [0, 1, 2, 3]


def test_it_must_be_the_last_transformation() -> None:
    ds = on_device(ROWS)
    for use in (
        lambda: ds.map(len),
        lambda: ds.prefetch(2),
        lambda: ad.Dataset.zip(ds, NUMBERS),
        lambda: NUMBERS.concatenate(ds),
        lambda: ds.prefetch_to_device(Accelerator()),
        lambda: on_device(NUMBERS)[3],
        lambda: list(ds.as_numpy_iterator()),
        lambda: list(NUMBERS.flat_map(lambda _: ds)),
    ):
        with pytest.raises(ad.PlanError, match=r"prefetch_to_device\('simulated', buffer_size=2\) must be the last"):
            use()
    assert ds.with_options(ad.Options(deterministic=True)).apply(lambda same: same).cardinality() == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "gpu"}, "must be 'cuda'"),
        ({"device": "cuda:one"}, "must be 'cuda'"),
        ({"device": 0}, "must be 'cuda'"),
        ({"device": "mps"}, "must be 'cuda'"),
        ({"device": "cpu", "buffer_size": 0}, "must be at least 1"),
        ({"device": "cpu", "mode": "circle"}, "must be one of 'fresh', 'ring'"),
    ],
)
def test_wrong_arguments_are_told_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ad.PlanError, match=message):
        ROWS.prefetch_to_device(**arguments)


def test_it_is_drawn_and_explained() -> None:
    ds = NUMBERS.batch(4).prefetch_to_device("cuda:1", mode="ring")
    assert str(ds.plan) == "range(40) → batch(4) → prefetch_to_device('cuda:1', buffer_size=2, mode='ring')"
    assert "batch(4) → prefetch(AUTOTUNE) → prefetch_to_device('cuda:1'" in ds.explain()
    assert ds.element_spec == NUMBERS.batch(4).element_spec
    assert len(ds) == 10
    assert ds.fingerprint() == NUMBERS.batch(4).fingerprint()
    assert str(pickle.loads(pickle.dumps(ds)).plan) == str(ds.plan)
    with on_device(NUMBERS.batch(4)).iterate() as batches:
        next(batches)
        assert [step["step"] for step in batches.stats().tuned] == ["prefetch(AUTOTUNE)"]


def test_skip_and_peek() -> None:
    with on_device(NUMBERS.batch(4)).iterate() as batches:
        assert batches.peek().numpy().tolist() == next(batches).numpy().tolist() == [0, 1, 2, 3]
        batches.skip(3)
        assert next(batches).numpy().tolist() == [16, 17, 18, 19]


def test_several_iterators_and_devices_at_once() -> None:
    first, second = Accelerator(1), Accelerator(2)
    ds = ad.Dataset.range(50).map(lambda x: np.full(8, x))
    iterators = [iter(ds.prefetch_to_device(device)) for device in (first, first, second)]
    for number, rows in enumerate(zip(*iterators, strict=True)):
        assert [row.numpy()[0] for row in rows] == [number] * 3
    assert first.races == second.races == []


FORKED = """
import os
import asyncdata as ad
from asyncdata.devices.simulated import Accelerator

accelerator = Accelerator()
rows = iter(ad.Dataset.range(40).batch(2).prefetch_to_device(accelerator))
next(rows)
accelerator.synchronize()
freed = len(accelerator.freed)
if (child := os.fork()) == 0:
    try:
        next(rows)
    except ad.ClosedError:
        os._exit(len(accelerator.freed) - freed)
    finally:
        os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), next(rows).numpy())
"""


def test_a_forked_child_leaves_the_device_to_its_parent_which_may_exit_in_the_midst_of_copies() -> None:
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", FORKED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "0 [2 3]", "")


@pytest.mark.parametrize("how", [{}, {"mode": "ring"}, {"static": {}}], ids=str)
def test_looking_at_the_first_elements_gives_what_is_on_the_device(how: Any) -> None:
    accelerator = Accelerator()
    ds = ad.Dataset.range(5).shuffle(seed=1).map(lambda x: np.full(3, x)).batch(2)
    first = [batch.tolist() for batch in ds.head(3)]
    copied = ds.prefetch_to_device(accelerator, **how)
    assert copied.peek().numpy().tolist() == first[0]
    assert [batch.numpy().tolist() for batch in copied.head(3)] == first
    (only,) = [ad.Dataset.from_list([np.ones(2)]).prefetch_to_device(accelerator).get_single_element()]
    assert only.numpy().tolist() == [1, 1]
    assert accelerator.races == []
    with pytest.raises(ad.PlanError, match=r"as_numpy_iterator\(\) and the like on the dataset without it"):
        next(copied.as_numpy_iterator())
