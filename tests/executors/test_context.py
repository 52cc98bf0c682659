"""What a function sees of the context of the code that iterates: the table in docs/data-flow.md."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

import asyncdata as ad

NUMBER: ContextVar[int] = ContextVar("NUMBER", default=0)


def seen(_: int) -> tuple[int, str, int]:
    return NUMBER.get(), np.geterr()["divide"], decimal.getcontext().prec


async def awaited(number: int) -> tuple[int, str, int]:
    return seen(number)


def generated() -> Iterator[tuple[int, str, int]]:
    yield seen(0)


def of_torch(_: int) -> tuple[bool, bool, str]:
    import torch

    return torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.empty(0).device.type


Read = Callable[[Callable[[int], Any]], Any]

ONE = ad.Dataset.range(1)

IN_THREADS: dict[str, Read] = {
    "the engine's thread": lambda fn: ONE.map(fn),
    "threads": lambda fn: ONE.map(fn, num_parallel_calls=2),
    "threads of a pipeline on the caller's": lambda fn: ONE.map(fn, num_parallel_calls=2).with_options(CURRENT),
}

CURRENT, PROCESS = ad.Options(placement="current"), ad.Options(placement="process")

IN_PROCESSES: dict[str, Read] = {
    "worker processes": lambda fn: ONE.map(fn, executor="process"),
    "a process of the pipeline": lambda fn: ONE.map(fn).with_options(PROCESS),
}

CALLER: dict[str, Read] = {"the caller's thread": lambda fn: ONE.map(fn).with_options(CURRENT)}


def element_of(ds: Any) -> Any:
    """Return the first element, read within a context."""
    token = NUMBER.set(5)
    with np.errstate(divide="raise"), decimal.localcontext(decimal.Context(prec=7)):
        (element,) = ds
    NUMBER.reset(token)
    return element


numpy_2 = pytest.mark.skipif(np.__version__ < "2", reason="np.errstate is kept in the thread before NumPy 2")


@numpy_2
@pytest.mark.parametrize("way", [*IN_THREADS, *CALLER])
def test_threads_see_context_variables_and_what_is_kept_in_them(way: str) -> None:
    assert element_of({**IN_THREADS, **CALLER}[way](seen)) == (5, "raise", 7)


@numpy_2
@pytest.mark.parametrize("ds", [ONE.map(awaited), ad.Dataset.from_generator(generated)])
def test_coroutines_and_generators_do_too(ds: Any) -> None:
    assert element_of(ds) == (5, "raise", 7)


@pytest.mark.parametrize("way", IN_PROCESSES)
def test_processes_do_not(way: str) -> None:
    assert element_of(IN_PROCESSES[way](seen)) == (0, np.geterr()["divide"], decimal.DefaultContext.prec)


@pytest.mark.torch
@pytest.mark.parametrize("way", [*IN_THREADS, *CALLER, *IN_PROCESSES])
def test_modes_of_torch_are_those_of_the_thread_that_calls(way: str) -> None:
    torch = pytest.importorskip("torch")
    ds = {**IN_THREADS, **CALLER, **IN_PROCESSES}[way](of_torch)
    with ExitStack() as modes:
        for mode in (torch.no_grad(), torch.autocast("cpu"), torch.device("meta")):
            modes.enter_context(mode)
        (element,) = ds
    assert element == ((False, True, "meta") if way in CALLER else (True, False, "cpu"))
