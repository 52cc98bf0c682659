"""All ranks take as many steps as the one that has most batches."""

from __future__ import annotations

from typing import Any

import pytest

import asyncdata as ad
from asyncdata.integrations import even_steps
from asyncdata.integrations.loader import Loader
from tests.integrations.distributed import run_processes


@pytest.mark.torch
def test_ranks_with_unlike_numbers_of_batches_take_as_many_steps_and_resume() -> None:
    pytest.importorskip("torch")
    run_processes(2, "even_steps.py")


@pytest.mark.torch
def test_the_number_that_is_reduced_is_where_the_groups_backend_can_reduce_it() -> None:
    pytest.importorskip("torch")
    run_processes(1, "even_steps_on_gpus.py")


def test_a_rank_without_a_batch_gives_what_it_is_told_until_none_has_any(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[int] = []
    others = iter([0, 1, 0, 0, 0, 1])  # its epoch, that it is valid, and whether the others have ended

    def least(number: int, group: Any) -> int:
        numbers.append(number)
        return min(number, next(others))

    monkeypatch.setattr(even_steps, "least", least)
    loader = Loader(ad.Dataset.range(4).batch(2))
    steps = loader.even_steps(fill=None)
    assert [one if one is None else one.tolist() for one in steps] == [[0, 1], [2, 3], None]
    assert list(steps) == []
    assert numbers == [0, 1, 0, 0, 1, 1]
    assert loader.epoch == 1


def test_a_state_at_the_end_of_an_epoch_stays_so_until_a_batch_is_read_and_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = iter([0, 1, 0, 1, 1, 1, 0, 0, 1, 2, 1])  # they have a batch left of the first epoch

    def least(number: int, _: Any) -> int:
        return min(number, next(others))

    monkeypatch.setattr(even_steps, "least", least)
    ds = ad.Dataset.range(4).batch(2)
    loader = Loader(ds)
    with ds.iterate() as batches:
        assert len([next(batches), next(batches)]) == 2
        loader.load_state_dict(batches.state_dict())
    assert loader.state_dict()["epoch"] == 0
    steps = loader.even_steps()
    assert loader.state_dict()["epoch"] == 0
    assert list(steps) == [None]
    assert len(list(loader.even_steps())) == 2
    loader.even_steps()
    assert loader.state_dict()["epoch"] == 2
