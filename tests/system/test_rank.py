"""Which process this is: asked of the environment, and of frameworks that are set up."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.system.rank import VARIABLES, this_rank

NUMBERS = ad.Dataset.range(10)


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for pair in VARIABLES:
        for name in pair:
            monkeypatch.delenv(name, raising=False)
    for name in ("torch.distributed", "jax"):
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.parametrize(("world", "index"), VARIABLES)
def test_the_variables_of_launchers_say_it(world: str, index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(world, "4")
    monkeypatch.setenv(index, "1")
    assert list(NUMBERS.shard()) == [1, 5, 9]
    assert this_rank() == (4, 1)


def test_nothing_knows_it() -> None:
    with pytest.raises(ad.PlanError, match=r"WORLD_SIZE and RANK.*give num_shards and index"):
        NUMBERS.shard()


@pytest.mark.parametrize(("world", "index", "message"), [("4", "4", "rank 4 of 4"), ("four", "1", "WORLD_SIZE='four'")])
def test_what_cannot_be(world: str, index: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", world)
    monkeypatch.setenv("RANK", index)
    with pytest.raises(ad.PlanError, match=message):
        NUMBERS.shard()


def test_shares_of_other_orders_are_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    shuffled = NUMBERS.shuffle()
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    assert len(shuffled.shard()) == 10  # alone in the world
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ad.PlanError, match=r"give shuffle\(\) a seed, the same in all processes"):
        shuffled.shard()
    assert len(shuffled.shard(2, 0)) == 5  # perhaps of two shares in one process
    assert len(NUMBERS.shuffle(seed=1).map(lambda x, rng: x, rng=True).shard()) == 5
    assert len(list(ad.Dataset.range(1).flat_map(lambda x: NUMBERS.shuffle().shard()))) == 5  # its seed is derived


@pytest.mark.parametrize("arguments", [{"num_shards": 3}, {"index": 1}])
def test_one_argument_alone_is_a_mistake(arguments: Any) -> None:
    with pytest.raises(ad.PlanError, match="must be an integer, got None"):
        NUMBERS.shard(**arguments)


def test_torch_comes_first_where_it_is_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "1")
    torch = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_world_size=lambda: 2, get_rank=lambda: 0
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", torch)
    assert this_rank() == (2, 0)
    torch.is_initialized = lambda: False
    assert this_rank() == (4, 1)


def test_jax_where_it_runs_on_several_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    jax = SimpleNamespace(
        distributed=SimpleNamespace(is_initialized=lambda: True), process_count=lambda: 8, process_index=lambda: 7
    )
    monkeypatch.setitem(sys.modules, "jax", jax)
    assert this_rank() == (8, 7)
