"""map(num_parallel_calls=...).batch(n): the workers of the map make the batches, and nothing else changes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.executors import group_work, inflight_window
from asyncdata.executors.inflight_window import InFlightWindow
from asyncdata.testing import check_resumes

AS_WRITTEN = ad.Options(disabled_rules=("map_and_batch_fusion",))
SIZE = 8
ROW = 1 << 15
"""Bytes of an element: it is large, and so is a batch of them."""

EXECUTORS = ["thread", "process", ad.AUTOTUNE]


def picture(number: int) -> np.ndarray:
    return np.full(ROW, number % 251, np.uint8)


def labelled(number: int) -> dict[str, Any]:
    if number % 19 == 7:
        raise ValueError(f"no {number}")
    return {"image": picture(number), "label": number, "name": f"n{number}", "parts": (number / 2, None)}


def odd_shape(number: int) -> np.ndarray:
    return picture(number)[: ROW - (number == 13)]


def odd_dtype(number: int) -> np.ndarray:
    return picture(number).astype(np.int16 if number == 13 else np.uint8)


def odd_structure(number: int) -> Any:
    return (picture(number),) if number == 13 else picture(number)


def odd_order(number: int) -> Any:
    both = {"a": picture(number), "b": number}
    return dict(reversed(both.items())) if number == 13 else both


def large_number(number: int) -> tuple[np.ndarray, int]:
    return picture(number), 2**62 if number != 13 else 2**64


def now_and_then_a_float(number: int) -> Any:
    return number / 2 if number % 20 == 13 else number


def nothing(number: int) -> None:
    return None


def masked(number: int) -> Any:
    return np.ma.masked_array(picture(number), picture(number) == 3)


ODD = [labelled, odd_shape, odd_dtype, odd_structure, odd_order, large_number, now_and_then_a_float, nothing, masked]


@pytest.fixture(autouse=True)
def whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have workers make whole batches at once, however slow this machine is just now."""
    monkeypatch.setattr(inflight_window, "LONGEST", 1e9)


def mapped(fn: Any, executor: Any = "thread", count: int = 100, workers: int = 2) -> ad.Dataset[Any]:
    calls = ad.AUTOTUNE if executor == ad.AUTOTUNE else workers
    return ad.Dataset.range(count).map(fn, num_parallel_calls=calls, executor=executor)


def outcomes(ds: ad.Dataset[Any]) -> list[Any]:
    """Return batches as text, and errors as their types, words and notes."""
    found: list[Any] = []
    elements = iter(ds)
    while True:
        try:
            found.append(described(next(elements)))
        except StopIteration:
            return found
        except Exception as error:
            found.append((type(error), str(error), error.__notes__))


def described(value: Any) -> Any:
    if isinstance(value, (tuple, dict)):
        return type(value), [
            (key, described(part)) for key, part in (value.items() if isinstance(value, dict) else enumerate(value))
        ]
    return (
        type(value),
        value.dtype,
        value.shape,
        value.tobytes() if value.dtype != object else [(type(one), one) for one in value],
    )


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("fn", [picture, *ODD], ids=lambda fn: fn.__name__)
def test_batches_and_failures_are_those_of_the_plan_as_written(fn: Any, executor: Any) -> None:
    ds = mapped(fn, executor).batch(SIZE)
    assert outcomes(ds) == outcomes(mapped(fn).batch(SIZE).with_options(AS_WRITTEN))


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("count", [0, 1, SIZE - 1, SIZE, SIZE + 1, 5 * SIZE])
def test_remainders(count: int, drop: bool) -> None:
    ds = mapped(picture, count=count).batch(SIZE, drop)
    assert [len(batch) for batch in ds] == [len(batch) for batch in ad.Dataset.range(count).batch(SIZE, drop)]


def test_without_order_every_element_is_there_once() -> None:
    ds = ad.Dataset.range(200).map(labelled, num_parallel_calls=4, deterministic=False).ignore_errors().batch(SIZE)
    batches = list(ad.Dataset.range(200).map(picture, num_parallel_calls=4, deterministic=False).batch(SIZE))
    assert sorted(int(row[0]) for batch in batches for row in batch) == list(range(200))
    labels = sorted(int(label) for batch in ds for label in batch["label"])
    assert labels == [number for number in range(200) if number % 19 != 7]


def test_a_batch_is_made_by_one_worker_and_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[np.ndarray] = []
    empty = np.empty

    def noted(shape: Any, dtype: Any = float) -> np.ndarray:
        made.append(empty(shape, dtype))
        return made[-1]

    threads: dict[int, set[int]] = {}

    def seen(number: int) -> np.ndarray:
        threads.setdefault(number // SIZE, set()).add(threading.get_ident())
        return picture(number)

    monkeypatch.setattr(group_work.GroupWork.attempt, "__defaults__", (noted,))
    batches = list(mapped(seen, count=100 * SIZE).batch(SIZE))
    assert len(made) > 3  # the first ones find out what an element costs and weighs
    assert sum(any(batch is one for one in made) for batch in batches) > 3
    assert sum(len(who) == 1 for who in threads.values()) > 3


def test_after_a_failure_batches_are_whole_again() -> None:
    def refuse_one(number: int) -> np.ndarray:
        if number == 10 * SIZE + 3:
            raise ValueError(number)
        return picture(number)

    ds = mapped(refuse_one, count=40 * SIZE).batch(SIZE).ignore_errors()
    owned = [batch.base is None for batch in ds]
    assert len(owned) == 40
    assert any(owned[20:])


def test_a_batch_belongs_to_the_consumer_alone() -> None:
    kept = np.zeros(ROW, np.uint8)
    batches = list(ad.Dataset.range(6 * SIZE).map(lambda _: kept, num_parallel_calls=2).batch(SIZE))
    for number, batch in enumerate(batches):
        assert batch.flags.writeable
        batch[:] = number + 1
    assert [batch.min() for batch in batches] == [batch.max() for batch in batches] == [1, 2, 3, 4, 5, 6]
    assert not kept.any()


def test_batches_of_processes_may_all_be_kept() -> None:
    batches = list(mapped(picture, "process", count=50 * SIZE).batch(SIZE))
    for number, batch in enumerate(batches):
        assert batch[:, 0].tolist() == [place % 251 for place in range(number * SIZE, number * SIZE + SIZE)]
        batch[:] = 1  # it is the consumer's


def test_batches_of_processes_may_wait_in_a_shuffle() -> None:
    ds = mapped(picture, "process", count=100 * SIZE).batch(SIZE).shuffle(60, seed=1)
    rows = sorted(int(batch[0, 0]) for batch in ds)
    assert rows == sorted(SIZE * batch % 251 for batch in range(100))


def test_a_users_executor_makes_batches_too() -> None:
    with ThreadPoolExecutor(2) as executor:
        ds = ad.Dataset.range(100).map(labelled, executor=executor, num_parallel_calls=2).batch(SIZE)
        assert outcomes(ds) == outcomes(mapped(labelled).batch(SIZE).with_options(AS_WRITTEN))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_it_resumes_anywhere(executor: Any) -> None:
    check_resumes(lambda: mapped(labelled, executor, count=60).batch(SIZE))


def test_a_state_goes_on_with_the_rule_and_without() -> None:
    ds = mapped(picture, count=80).batch(SIZE)
    whole = outcomes(ds)
    for one, other in ((ds, ds.with_options(AS_WRITTEN)), (ds.with_options(AS_WRITTEN), ds)):
        with one.iterate() as elements:
            found = [described(next(elements)) for _ in range(3)]
            state = elements.state_dict()
        with other.iterate(state=state) as elements:
            assert found + [described(batch) for batch in elements] == whole


def test_a_slow_source_is_not_waited_for() -> None:
    more = threading.Event()
    called: list[int] = []

    def source() -> Iterator[int]:
        yield from range(4 * SIZE + 3)
        assert more.wait(60)
        yield from range(4 * SIZE + 3, 8 * SIZE)

    def noted(number: int) -> np.ndarray:
        called.append(number)
        if len(called) == 4 * SIZE + 3:
            more.set()  # the elements of the batch that is not full are worked on too
        return picture(number)

    ds = ad.Dataset.from_generator(source).map(noted, num_parallel_calls=2).batch(SIZE)
    assert [batch[0, 0] for batch in ds] == list(range(0, 8 * SIZE, SIZE))


def test_it_is_told_and_can_be_switched_off() -> None:
    ds = mapped(picture).batch(SIZE)
    assert "map_and_batch_fusion" in ds.explain()
    assert f"batch={SIZE})" in ds.explain()
    assert "map_and_batch_fusion" not in ds.with_options(AS_WRITTEN).explain()
    assert "map_and_batch_fusion" not in ad.Dataset.range(3).map(picture).batch(2).explain()


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("size", [3000, 300])
def test_numbers_of_two_types_are_what_they_are_behind_a_failure(executor: Any, size: int) -> None:
    """The batches after it are put together of parts of two groups, one of which has a float among its integers."""

    def mixed(number: int) -> tuple[Any, np.ndarray]:
        if number == SIZE:
            raise ValueError(number)
        return number / 2 if number % (2 * SIZE) == 2 * SIZE - 1 else number, np.full(size, number)

    ds = mapped(mixed, executor).batch(SIZE)
    assert outcomes(ds) == outcomes(mapped(mixed).batch(SIZE).with_options(AS_WRITTEN))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the test needs named pipes")
@pytest.mark.parametrize("executor", ["thread", "process"])
def test_a_batch_that_nobody_waits_for_any_more_is_given_up(executor: Any, tmp_path: Path) -> None:
    """Else a worker would be busy with it until it is complete, however long that takes."""
    begun, gate, log = tmp_path / "begun", tmp_path / "gate", tmp_path / "log"
    os.mkfifo(begun)
    os.mkfifo(gate)

    def noted(number: int) -> np.ndarray:
        with log.open("a") as calls:
            calls.write(f"{number}\n")
        if number == SIZE:
            begun.write_bytes(b"")  # until the consumer knows
            gate.read_bytes()  # until the consumer has left
        return picture(number)

    ds = mapped(noted, executor, workers=1, count=10 * SIZE).batch(SIZE)
    elements = ds.iterate()
    assert next(elements)[0, 0] == 0
    begun.read_bytes()
    opening = threading.Thread(target=lambda: (stopped.wait(60), gate.write_bytes(b"")))
    stopped = threading.Event()
    opening.start()
    with mock.patch.object(InFlightWindow, "stop", lambda window: (STOP(window), stopped.set())):
        elements.close()
    opening.join()
    assert next(iter(mapped(picture, executor, workers=1, count=1)))[0] == 0  # the same worker is free again
    assert log.read_text().split() == [str(number) for number in range(SIZE + 1)]


STOP = InFlightWindow.stop


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [0, 16, 64, 4096])
def test_sixteen_workers_with_any_budget_give_the_same_batches(megabytes: int) -> None:
    """Batches of 8 MB, of which two for each worker are 256 MB: a smaller budget means smaller pieces."""
    rows, count = 256, 24
    numbers = ad.Dataset.range(rows * count).map(picture, 16, executor="process").batch(rows)
    place = 0
    for batch in numbers.with_options(ad.Options(ram_budget=max(1, megabytes << 20))):
        assert batch[:, 0].tolist() == [number % 251 for number in range(place, place + rows)]
        place += rows
    assert place == rows * count
