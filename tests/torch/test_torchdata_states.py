"""What torchdata's StatefulDataLoader has saved is continued: the rest is the one that it gives itself."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import RandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

import asyncdata as ad
from asyncdata.torch import DataLoader
from tests.marks import first_by_default
from tests.torch.datasets import Counting, CountingSampler, Numbers, StatefulStream, Stream

pytestmark = [
    pytest.mark.torch,
    pytest.mark.integrations,
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
    pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning"),
    pytest.mark.filterwarnings(r"ignore:This process .* is multi-threaded, use of fork:DeprecationWarning"),
]

Arguments = Callable[[], dict[str, Any]]


class Counted(StatefulStream):
    """The same, which draws from its own generator alone."""

    def __next__(self) -> Any:
        number, _, noise = super().__next__()
        return number, noise


def stateful_distributed(**given: Any) -> dict[str, Any]:
    from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

    return {"dataset": Numbers(), "sampler": StatefulDistributedSampler(Numbers(), 1, 0), **given}


def random_of_torchdata() -> Any:
    from torchdata.stateful_dataloader.sampler import RandomSampler

    return RandomSampler(Numbers())


CASES: dict[str, Arguments] = {
    "shuffle": lambda: {"dataset": Numbers(), "batch_size": 2, "shuffle": True},
    "iterable": lambda: {"dataset": Counted(), "batch_size": 2},
    "a sampler with a state": lambda: stateful_distributed(batch_size=2),
    "in order": lambda: {"dataset": Numbers(), "batch_size": 2},
    "shuffle, without batches": lambda: {"dataset": Numbers(), "batch_size": None, "shuffle": True},
    "shuffle, whole batches": lambda: {"dataset": Numbers(), "batch_size": 2, "shuffle": True, "drop_last": True},
    "shuffle, generator": lambda: {
        "dataset": Numbers(),
        "batch_size": 2,
        "shuffle": True,
        "generator": torch.Generator().manual_seed(3),
    },
    "batches of unlike sizes": lambda: {"dataset": Numbers(), "batch_sampler": [[1, 2], [3], [4, 5, 6], [7, 8]]},
    "DistributedSampler": lambda: {
        "dataset": Numbers(),
        "batch_size": 2,
        "sampler": DistributedSampler(Numbers(), 1, 0),
    },
    "a sampler with a state, without batches": lambda: stateful_distributed(batch_size=None),
    "iterable, without batches": lambda: {"dataset": Counted(), "batch_size": None},
}


def stateful(arguments: dict[str, Any], workers: int, every: int = 1) -> Any:
    """The loader of torchdata in the second epoch, if the sampler has a number for it."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    return begun(StatefulDataLoader(**arguments, num_workers=workers, snapshot_every_n_steps=every))


def begun(loader: Any) -> Any:
    if isinstance(loader.sampler, DistributedSampler):
        loader.sampler.set_epoch(1)
    return loader


def check_rest(make: Arguments, workers: int, every: int) -> None:
    """Switch at each step of an epoch, with workers at some, and stop once more at the batch behind it."""
    loader = stateful(make(), workers, every)
    states, batches = [copy.deepcopy(loader.state_dict())], list[str]()
    for batch in loader:
        batches.append(repr(batch))
        states.append(copy.deepcopy(loader.state_dict()))
    for count, state in [*enumerate(states)][workers :: 1 + 2 * workers]:
        loader = begun(DataLoader(**make(), num_workers=workers))
        loader.load_state_dict(state)
        rest, again = list[str](), None
        for batch in loader:
            rest.append(repr(batch))
            again = json.loads(json.dumps(loader.state_dict())) if again is None else again
        assert rest == batches[count:], count
        if again is not None:
            loader = begun(DataLoader(**make(), num_workers=workers))
            loader.load_state_dict(again)
            assert [*map(repr, loader)] == batches[count + 1 :], count


@pytest.mark.parametrize("name", first_by_default([*CASES], 3))
def test_the_rest_is_that_of_torchdata(name: str) -> None:
    check_rest(CASES[name], 0, 1)


@pytest.mark.parametrize(
    ("name", "every"), first_by_default([("iterable", 3), *((name, every) for name in CASES for every in (1, 3))], 1)
)
def test_the_rest_is_that_of_torchdata_with_workers(name: str, every: int) -> None:
    check_rest(CASES[name], 2, every)


@pytest.mark.parametrize("workers", first_by_default([0, 2], 1))
def test_at_the_end_of_an_epoch_the_next_begins_in_the_order_that_it_would_have_had(workers: int) -> None:
    loader = stateful(CASES["shuffle"](), workers)
    list(loader)
    state = copy.deepcopy(loader.state_dict())
    other = DataLoader(**CASES["shuffle"](), num_workers=workers)
    other.load_state_dict(state)
    assert other.epoch == 1
    assert [*map(repr, other)] == [*map(repr, loader)]


def test_at_the_end_of_an_epoch_a_sampler_with_a_state_begins_anew() -> None:
    loader = stateful(stateful_distributed(batch_size=2), 0)
    batches = [*map(repr, loader)]
    other = begun(DataLoader(**stateful_distributed(batch_size=2)))
    other.load_state_dict(loader.state_dict())
    assert [*map(repr, other)] == batches


def test_workers_may_be_other_ones_of_a_map_style_dataset() -> None:
    loader = stateful(CASES["shuffle"](), 0)
    batches = iter(loader)
    next(batches)
    other = DataLoader(**CASES["shuffle"](), num_workers=2)
    other.load_state_dict(loader.state_dict())
    assert [*map(repr, other)] == [*map(repr, batches)]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: {"dataset": Stream(), "batch_size": 2}, r"skip\(2\) of a new loader"),
        (lambda: {"dataset": Numbers(), "sampler": WeightedRandomSampler([1.0] * 11, 9)}, "does not hold torch,"),
        (
            lambda: {"dataset": Numbers(), "sampler": RandomSampler(Numbers(), generator=torch.Generator())},
            "does not hold sampler.sampler.generator,",
        ),
        (lambda: {"dataset": Numbers(), "sampler": CountingSampler()}, "does not hold sampler.sampler.epoch,"),
    ],
    ids=["a stream without a state", "global generator", "generator of a sampler", "sampler that counts"],
)
def test_what_the_state_does_not_hold_is_an_error(make: Arguments, words: str) -> None:
    loader = stateful(make(), 0)
    batches = iter(loader)
    next(batches), next(batches)
    with pytest.raises(ad.ResumeError, match=words):
        DataLoader(**make()).load_state_dict(loader.state_dict())


def test_a_state_of_other_arguments_is_an_error() -> None:
    loader = stateful(CASES["shuffle"](), 0)
    next(iter(loader))
    with pytest.raises(ad.ResumeError, match="2 samples in 1 batches, and this loader's have 3"):
        DataLoader(Numbers(), 3, shuffle=True).load_state_dict(loader.state_dict())
    with pytest.raises(ad.ResumeError, match=r"shuffle=True .* but the sampler is a .*\.SequentialSampler"):
        DataLoader(Numbers(), 2).load_state_dict(loader.state_dict())
    sampler = random_of_torchdata()
    with pytest.raises(ad.ResumeError, match=r"but the sampler is a torchdata\..*\.RandomSampler: give shuffle=True"):
        DataLoader(Numbers(), 2, sampler=sampler).load_state_dict(loader.state_dict())
    loader = stateful(CASES["a sampler with a state"](), 0)
    next(iter(loader))
    other = DataLoader(Numbers(), 2)
    other.load_state_dict(loader.state_dict())
    with pytest.raises(ad.ResumeError, match="has no state_dict and load_state_dict"):
        iter(other)
    loader = stateful(CASES["iterable"](), 0)
    next(iter(loader))
    other = DataLoader(Counted(), 2, num_workers=2)
    other.load_state_dict(loader.state_dict())
    with pytest.raises(ad.ResumeError, match="num_workers=0"):
        iter(other)


def test_an_epoch_of_which_nothing_was_given_begins_anew() -> None:
    """The state of a dataset that a generator reads is that behind the epoch before, until it is read."""
    loader = stateful({"dataset": Counting(), "batch_size": 2}, 0)
    list(loader)
    batches = iter(loader)
    other = DataLoader[Any](Counting(), 2)
    other.load_state_dict(copy.deepcopy(loader.state_dict()))
    assert [numbers.tolist() for numbers, _ in other] == [numbers.tolist() for numbers, _ in batches]
