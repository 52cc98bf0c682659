"""Errors that newcomers meet say what to do."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad


def notes(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


@pytest.mark.parametrize(
    "words",
    ["Timeout context manager should be used inside a task", "got Future <Future> attached to a different loop"],
)
@pytest.mark.parametrize("parallel", [None, 2])
def test_a_client_of_another_loop_says_placement(words: str, parallel: int | None) -> None:
    async def fetch(number: int) -> int:
        raise RuntimeError(words)

    with pytest.raises(RuntimeError) as caught:
        list(ad.Dataset.range(2).map(fetch, parallel))
    assert 'Options(placement="current")' in notes(caught.value)


async def test_a_lock_of_another_loop_says_placement() -> None:
    lock = asyncio.Lock()
    await lock.acquire()

    async def locked(number: int) -> int:
        async with asyncio.timeout(60), lock:
            return number

    waiting = asyncio.create_task(lock.acquire())  # binds the lock to this loop
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError) as caught:
        await asyncio.to_thread(list, ad.Dataset.range(1).map(locked))
    assert 'Options(placement="current")' in notes(caught.value)
    waiting.cancel()


def test_an_async_generator_function_is_run_in_each_epoch() -> None:
    async def numbers() -> Any:
        yield 1
        yield 2

    async def others() -> Any:
        yield 3

    ds = ad.Dataset.from_async_iterable(numbers)
    assert list(ds) == list(ds) == [1, 2]
    assert str(ds.plan) == "from_async_iterable(numbers)"
    assert ds.fingerprint() != ad.Dataset.from_async_iterable(others).fingerprint()
    it = iter(ds)
    next(it)
    assert list(ad.Dataset.from_async_iterable(numbers).iterate(state=it.state_dict())) == [2]
    with pytest.raises(ad.PlanError, match="give it to from_async_iterable"):
        ad.Dataset.from_generator(numbers)


async def nothing() -> None: ...


async def none() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("make", "cure"),
    [
        (lambda: ad.Dataset.from_generator(nothing), "from_async_iterable"),
        (lambda: ad.Dataset.from_iterable(none), "from_async_iterable"),
        (lambda: ad.Dataset.from_iterable(none()), "from_async_iterable"),
        (lambda: ad.Dataset.from_iterable(lambda: iter([1])), "from_generator"),
    ],
)
def test_the_other_way_to_give_elements_is_named(make: Any, cure: str) -> None:
    with pytest.raises(ad.PlanError, match=f"to {cure}$"):
        make()


class Labelled:
    """What pandas' Series and DataFrame have in common."""

    iloc = columns = ()

    def __len__(self) -> int:
        return 2

    def __getitem__(self, label: int) -> int:
        return label


def test_a_table_of_pandas_names_the_method_that_takes_it() -> None:
    with pytest.raises(ad.PlanError, match=r"this Labelled has labels; give dict\(frame\) to from_tensor_slices"):
        ad.Dataset.from_source(Labelled())


def test_data_for_a_plan_names_the_methods_that_take_data() -> None:
    make: Any = ad.Dataset
    with pytest.raises(ad.PlanError, match="from_list, from_iterable"):
        make([1, 2])


@pytest.mark.parametrize("method", ["shuffle", "batch", "take", "repeat"])
def test_a_flag_is_no_number(method: str) -> None:
    with pytest.raises(ad.PlanError, match="must be an integer, got True"):
        getattr(ad.Dataset.range(3), method)(True)


@pytest.mark.parametrize("method", ["zip", "sample_from_datasets", "choose_from_datasets"])
def test_methods_of_the_class_leave_out_no_dataset(method: str) -> None:
    with pytest.raises(AttributeError, match=rf"Dataset\.{method}\(\.\.\.\) of all datasets"):
        getattr(ad.Dataset.range(2), method)
    assert getattr(ad.Dataset, method).__doc__


def test_rows_of_other_lengths_name_the_steps_for_them() -> None:
    rows = ad.Dataset.from_iterable([1, 2]).map(np.zeros)
    for ds in (rows.batch(2), rows.map(lambda row: {"x": row}).batch(2), rows.map(np.zeros_like, 2).batch(2)):
        with pytest.raises(
            ad.StructureError, match=r"padded_batch, ragged_batch, list_batch or bucket_by_sequence_length"
        ):
            list(ds)


def test_a_list_where_a_tuple_is_meant_is_told() -> None:
    with pytest.raises(ad.StructureError, match="return a tuple"):
        list(ad.Dataset.range(2).map(lambda x: [x, [x, x]]).batch(2))
    with pytest.raises(TypeError) as caught:
        list(ad.Dataset.range(2).map(lambda x: [x, x]).map(lambda x, y: x))
    assert "must return a tuple" in notes(caught.value)


def test_what_is_shuffled_already_says_shuffle_false(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    files = ad.Dataset.list_files(f"{tmp_path}/*")
    with pytest.raises(ad.PlanError, match="shuffle=False"):
        files.shuffle(seed=1)
    with pytest.raises(ad.PlanError, match="shuffle=False"):
        files.map(str)[0]
    assert list(ad.Dataset.list_files(f"{tmp_path}/*", shuffle=False).shuffle(seed=1)) == [str(tmp_path / "a")]


@pytest.mark.parametrize(
    ("method", "argument", "cure"),
    [
        ("batch", "num_workers", "num_parallel_calls"),
        ("batch", "collate_fn", "padded_batch"),
        ("batch", "drop_last", "drop_remainder=True"),
        ("map", "pin_memory", r"\.prefetch_to_device\("),
        ("map", "batch_size", r"\.batch\(n\)"),
        ("prefetch", "prefetch_factor", r"\.prefetch\(n\)"),
        ("shuffle", "sampler", "rejection_resample"),
    ],
)
def test_arguments_of_pytorch_are_told_what_they_are_here(method: str, argument: str, cure: str) -> None:
    with pytest.raises(TypeError, match=cure):
        getattr(ad.Dataset.range(2), method)(2, **{argument: 2})


def test_methods_look_as_they_were_written() -> None:
    assert list(inspect.signature(ad.Dataset.batch).parameters)[:3] == ["self", "batch_size", "drop_remainder"]
    with pytest.raises(TypeError, match="unexpected keyword argument 'odd'"):
        getattr(ad.Dataset.range(2), "map")(str, odd=1)  # noqa: B009


def forgetful(x: int) -> None:
    if x:
        x + 1


async def forgetful_too(x: int) -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize("parallel", [None, 2])
@pytest.mark.parametrize("fn", [forgetful, forgetful_too, ad.with_retries(forgetful_too, 1, 0.0), partial(forgetful)])
def test_a_forgotten_return_is_told(fn: Callable[[int], Any], parallel: int | None) -> None:
    ds = ad.Dataset.range(4).map(fn, parallel)
    for joined in (ds.batch(2), ds.padded_batch(2), ds.ragged_batch(2)):
        with pytest.raises(ad.StructureError, match="lack a `return`"):
            list(joined)


def test_a_function_that_may_return_something_may_return_none() -> None:
    def odd(x: int) -> int | None:
        return x if x % 2 else None

    assert [batch.tolist() for batch in ad.Dataset.range(3).map(odd).batch(1)] == [[None], [1], [None]]
    assert next(iter(ad.Dataset.range(2).map({}.get).batch(2))).tolist() == [None, None]
    assert next(iter(ad.Dataset.range(2).map(lambda x: (x, None)).batch(2)))[1].tolist() == [None, None]
