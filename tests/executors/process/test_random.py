"""Each worker process has random numbers of its own, from all global generators."""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.executors.process.pool import PoolHandle

PACKAGE = """
import random
generator = random.Random(0)  # as torch's: it begins with the same numbers in each process
seed, draw = generator.seed, generator.random
"""


@pytest.fixture
def package(tmp_path: Path) -> None:
    """A package with a global generator, under the name of one that is known."""
    (tmp_path / "paddle.py").write_text(PACKAGE)


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    """Where two callers meet: each connection lasts until both are there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)

        def meet() -> None:
            both = [server.accept()[0] for _ in range(2)]
            for one in both:
                one.close()

        thread = Thread(target=meet)
        thread.start()
        yield server.getsockname()
        thread.join()


def drawing(address: tuple[str, int], path: str, packages: bool) -> Callable[[int], Any]:
    """Return a function that draws from global generators when two processes call it."""

    def draw(_: int) -> tuple[float, ...]:
        with socket.create_connection(address) as connection:
            connection.recv(1)
        found = [random.random(), float(np.random.rand())]
        if packages:
            sys.path.insert(0, path)
            found.append(import_module("paddle").draw())
        return tuple(found)

    return draw


def test_global_generators_differ_between_workers(
    address: tuple[str, int], package: None, tmp_path: Path, warm: PoolHandle
) -> None:
    draw = drawing(address, str(tmp_path), True)
    first, second = ad.Dataset.range(2).map(draw, num_parallel_calls=2, executor="process")
    assert all(one != another for one, another in zip(first, second, strict=True))


def drawn(number: int) -> tuple[int, float, float]:
    return number, random.random(), float(np.random.rand())


def test_a_seed_makes_global_generators_repeat_whatever_the_workers(warm: PoolHandle) -> None:
    def numbers(seed: int, skipped: int = 0, **how: Any) -> list[Any]:
        ds = ad.Dataset.range(30).map(drawn, num_parallel_calls=2, executor="process")
        ds = ds.map(lambda *found: (*found, random.random()), num_parallel_calls=2, executor="process")
        ds = ds.repeat(2).with_options(ad.Options(seed=seed, **how))
        elements, resumed = iter(ds), iter(ds)
        for _ in range(skipped):
            next(elements)
        resumed.load_state_dict(elements.state_dict())
        return list(resumed)

    once = numbers(7)
    assert len({number for _, *floats in once for number in floats}) == 3 * 60
    assert numbers(7, disabled_rules=("map_fusion",)) == once
    assert numbers(7, 40) == once[40:]
    assert numbers(7, placement="process") == once
    assert numbers(8) != once


def test_a_seed_must_be_an_integer() -> None:
    with pytest.raises(ad.PlanError, match=r"seed=\) must be an integer or None, got 0.5"):
        ad.Options(seed=0.5)  # pyright: ignore[reportArgumentType]


@pytest.mark.torch
def test_an_element_has_a_generator_of_torch_of_its_own(warm: PoolHandle) -> None:
    def draw(number: int, rng: Any) -> tuple[int, float]:
        import torch

        return number, torch.rand((), generator=rng).item()

    numbers = ad.Dataset.range(12).repeat(2)
    once = list(numbers.map(draw, rng="torch", seed=3))
    assert len({number for _, number in once}) == 24
    assert list(numbers.map(draw, num_parallel_calls=2, executor="process", rng="torch", seed=3)) == once
    assert list(numbers.map(draw, num_parallel_calls=2, rng="torch", seed=4)) != once
    elements = iter(numbers.map(draw, rng="torch", seed=3))
    for _ in range(5):
        next(elements)
    resumed = iter(numbers.map(draw, rng="torch", seed=3))
    resumed.load_state_dict(elements.state_dict())
    assert list(resumed) == once[5:]


@pytest.mark.torch
def test_numbers_of_torch_differ_between_workers(address: tuple[str, int], warm: PoolHandle) -> None:
    draw = drawing(address, "", False)

    def torch_too(number: int) -> tuple[float, ...]:
        import torch

        return *draw(number), torch.rand(1).item()

    first, second = ad.Dataset.range(2).map(torch_too, num_parallel_calls=2, executor="process")
    assert all(one != another for one, another in zip(first, second, strict=True))
