"""DataLoader of asyncdata.torch: the batches of PyTorch's own, for every argument, alone and in pairs."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, WeightedRandomSampler
from torch.utils.data import DataLoader as TorchLoader

from asyncdata.torch import DataLoader
from asyncdata.torch.pinned_workers import PinnedExecutor
from tests.torch.datasets import Batched, EagerSampler, LazySampler, Noisy, Numbers, Stream, fail_on_seven, seed

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:This DataLoader will create")]

DATASETS = (Noisy, Batched, Stream)


@pytest.fixture(autouse=True, scope="module")
def processes() -> PinnedExecutor:
    """Keep the workers that loaders share from one test to the next."""
    return PinnedExecutor(3, 0, own=False)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


CHOICES: dict[str, list[Callable[[], dict[str, Any]]]] = {
    "batching": [
        lambda: {"batch_size": 4},
        lambda: {"batch_size": None},
        lambda: {"batch_size": 4, "drop_last": True},
        lambda: {"batch_sampler": BatchSampler(RandomSampler(range(11)), 3, False)},
    ],
    "order": [
        dict,
        lambda: {"shuffle": True},
        lambda: {"sampler": WeightedRandomSampler([1.0, 2.0, 3.0] * 3, 9)},
        lambda: {"sampler": LazySampler()},
        lambda: {"sampler": EagerSampler()},
        lambda: {"sampler": SequentialSampler(range(7))},
    ],
    "collate": [dict, lambda: {"collate_fn": list}],
    "generator": [dict, lambda: {"generator": generator()}],
    "pin": [dict, lambda: {"pin_memory": False, "in_order": True}],
}
"""For each argument what it may be: each pair of two of these is tried."""

WITH_WORKERS: dict[str, list[Callable[[], dict[str, Any]]]] = {
    "prefetch": [dict, lambda: {"prefetch_factor": 1}, lambda: {"prefetch_factor": 5}],
    "persistent": [dict, lambda: {"persistent_workers": True}],
    "init": [dict, lambda: {"worker_init_fn": draw_once}],
    "timeout": [dict, lambda: {"timeout": 60}],
}


def draw_once(worker: int) -> None:
    random.random()


def allowed(dataset: type, given: dict[str, Any]) -> bool:
    """Whether PyTorch takes these arguments together."""
    if issubclass(dataset, Stream) and given.keys() & {"shuffle", "sampler", "batch_sampler"}:
        return False
    return "batch_sampler" not in given or not given.keys() & {"shuffle", "sampler"}


def pairs(choices: dict[str, list[Any]]) -> list[tuple[Any, Any]]:
    return [(x, y) for first, second in combinations(choices.values(), 2) for x in first for y in second]


def epochs(loader_class: Any, dataset: Any, make: list[Callable[[], dict[str, Any]]], **others: Any) -> str:
    """Two epochs, an early end, and another epoch, as text; then what comes next out of the global generators."""
    seed()
    given = {name: value for one in make for name, value in one().items()}
    loader = loader_class(dataset, **given, **others)
    found: list[Any] = [list(loader), list(loader), next(iter(loader)), list(loader)]
    if hasattr(dataset, "__len__"):
        found.append(len(loader))
    return repr([*found, torch.rand(1), random.random()])


@pytest.mark.parametrize("dataset", DATASETS)
def test_batches_are_those_of_pytorch_for_every_pair_of_arguments(dataset: type) -> None:
    tried = 0
    for make in pairs(CHOICES):
        given = {name: value for one in make for name, value in one().items()}
        if allowed(dataset, given):
            assert epochs(DataLoader, dataset(), [*make]) == epochs(TorchLoader, dataset(), [*make]), given
            tried += 1
    assert tried >= 10


@pytest.mark.parametrize("workers", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dataset", DATASETS)
def test_workers_make_the_batches_of_pytorchs_workers(dataset: type, workers: int) -> None:
    make = CHOICES["batching"][:1] + ([] if dataset is Stream else CHOICES["order"][1:2])
    others = {"num_workers": workers}
    assert epochs(DataLoader, dataset(), make, **others) == epochs(TorchLoader, dataset(), make, **others)


@pytest.mark.slow
@pytest.mark.parametrize("dataset", DATASETS)
def test_workers_make_the_batches_of_pytorch_for_pairs_of_arguments(dataset: type) -> None:
    for make in pairs({**CHOICES, **WITH_WORKERS})[:: 1 if dataset is Noisy else 7]:
        given = {name: value for one in make for name, value in one().items()}
        if allowed(dataset, given):
            ours = epochs(DataLoader, dataset(), [*make], num_workers=2)
            assert ours == epochs(TorchLoader, dataset(), [*make], num_workers=2), given


def test_wrong_arguments_are_refused_as_by_pytorch() -> None:
    for given in (
        {"batch_size": 0},
        {"num_workers": -1},
        {"prefetch_factor": 2},
        {"persistent_workers": True},
        {"shuffle": True, "sampler": range(3)},
        {"batch_sampler": [[1]], "batch_size": 2},
        {"batch_size": None, "drop_last": True},
    ):
        with pytest.raises(ValueError) as theirs:
            TorchLoader(Numbers(), **given)
        with pytest.raises(ValueError) as ours:
            DataLoader(Numbers(), **given)
        assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_comes_in_the_place_of_its_batch(workers: int) -> None:
    batches = iter(DataLoader(Numbers(), 2, num_workers=workers, collate_fn=fail_on_seven))
    found = []
    for _ in range(6):
        try:
            found.append(next(batches))
        except KeyError as error:
            found.append(error.args)
    assert found == [[0, 1], [2, 3], [4, 5], (7,), [8, 9], [10]]


def test_loops_may_be_nested_and_left() -> None:
    for workers in (0, 2):
        loader = DataLoader(Numbers(4), 2, num_workers=workers)
        found = [(x.tolist(), y.tolist()) for x in loader for y in loader]
        assert found == [(x, y) for x in ([0, 1], [2, 3]) for y in ([0, 1], [2, 3])]
        assert next(iter(loader)).tolist() == [0, 1]
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]
