"""A loader resumes at the batch: in any epoch, with any sampler; and where it cannot, it says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

import asyncdata as ad
from asyncdata.torch import DataLoader
from asyncdata.torch.held_generators import HeldGenerators
from asyncdata.torch.worker_process import LoaderWorker
from tests.marks import first_by_default
from tests.torch.datasets import (
    Counting,
    CountingSampler,
    EagerSampler,
    HiddenSampler,
    LazySampler,
    Mixing,
    Noisy,
    Numbers,
    PlacedSampler,
    RememberingSampler,
    Restless,
    SeededSampler,
    ShrinkingSampler,
    ShufflingSampler,
    StatefulStream,
    Stream,
    Told,
    Transforming,
    TransformingStream,
    Uneven,
    Unsaved,
    Weights,
    Whole,
    Wholes,
    seed,
    started,
)

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True, scope="module")
def processes() -> list[LoaderWorker]:
    """Start the workers that loaders share, and keep them from one test to the next."""
    return started(2)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


SAMPLERS: dict[str, Callable[[], Any]] = {
    "SequentialSampler": lambda: SequentialSampler(range(11)),
    "RandomSampler": lambda: RandomSampler(range(11)),
    "RandomSampler, generator": lambda: RandomSampler(range(11), generator=generator()),
    "RandomSampler, replacement": lambda: RandomSampler(range(11), True, generator=generator()),
    "RandomSampler, num_samples": lambda: RandomSampler(range(11), num_samples=29, generator=generator()),
    "SubsetRandomSampler": lambda: SubsetRandomSampler(range(3, 11)),
    "SubsetRandomSampler, generator": lambda: SubsetRandomSampler(range(3, 11), generator=generator()),
    "WeightedRandomSampler": lambda: WeightedRandomSampler([1.0, 2.0, 3.0] * 3, 9),
    "WeightedRandomSampler, generator": lambda: WeightedRandomSampler([1.0, 2.0] * 5, 9, generator=generator()),
    "DistributedSampler": lambda: DistributedSampler(range(11), 2, 0),
    "EagerSampler": EagerSampler,
    "CountingSampler": CountingSampler,
    "SeededSampler": SeededSampler,
}


def saved(loader: DataLoader[Any]) -> Any:
    """The state as it comes back from a file."""
    return json.loads(json.dumps(loader.state_dict()))


def nothing(loader: DataLoader[Any], epoch: int) -> None:
    """What a program does before each epoch."""


def check_every_step(
    make: Callable[[], DataLoader[Any]], step: int = 1, epochs: int = 2, before: Callable[[Any, int], object] = nothing
) -> None:
    """Resume from the states before, between and after all batches of the epochs, and where an epoch has begun."""
    seed()
    loader, batches, states = make(), list[str](), list[tuple[Any, int]]()
    states.append((saved(loader), 0))
    for number in range(epochs):
        before(loader, number)
        epoch = iter(loader)
        states.append((saved(loader), len(batches)))
        for batch in epoch:
            batches.append(repr(batch))
            states.append((saved(loader), len(batches)))
        states.append((saved(loader), len(batches)))
    for state, count in states[::step]:
        seed(9)
        loader = make()
        loader.load_state_dict(state)
        rest: list[str] = []
        while loader.epoch < epochs:
            before(loader, loader.epoch)
            rest.extend(map(repr, loader))
        assert rest == batches[count:], count


@pytest.mark.parametrize("name", SAMPLERS)
def test_it_resumes_at_every_step_with_every_sampler(name: str) -> None:
    check_every_step(lambda: DataLoader(Noisy(), 4, sampler=SAMPLERS[name]()))


def test_it_resumes_with_a_batch_sampler_and_without_batches() -> None:
    check_every_step(lambda: DataLoader(Noisy(), batch_sampler=BatchSampler(RandomSampler(range(11)), 3, True)))
    check_every_step(lambda: DataLoader(Noisy(), None, shuffle=True))


@pytest.mark.parametrize("name", first_by_default([*SAMPLERS, "LazySampler"], 2))
def test_it_resumes_with_workers_and_every_sampler(name: str) -> None:
    make = SAMPLERS.get(name, LazySampler)
    check_every_step(lambda: DataLoader(Noisy(), 4, sampler=make(), num_workers=2), step=3)


@pytest.mark.parametrize("stream", [Stream, StatefulStream, Told, Counting])
@pytest.mark.parametrize("workers", [0, 2])
def test_it_resumes_in_an_iterable_dataset(stream: type, workers: int) -> None:
    check_every_step(lambda: DataLoader(stream(), 2, num_workers=workers), step=3 if workers else 1)


@pytest.mark.parametrize("workers", [0, 1])
def test_functions_that_a_class_of_tensors_has_are_not_called(workers: int) -> None:
    check_every_step(lambda: DataLoader(Wholes(), 2, num_workers=workers, collate_fn=list[Any]), step=6)
    assert type(next(iter(DataLoader(Wholes(), 2, num_workers=workers, collate_fn=list[Any])))[0]) is Whole


def test_it_resumes_where_a_worker_has_ended_and_was_asked_again() -> None:
    seed()
    loader = DataLoader[Any](Uneven(), 2, num_workers=2)
    batches = iter(loader)
    for _ in range(4):  # behind the end of the second worker
        next(batches)
    other = DataLoader[Any](Uneven(), 2, num_workers=2)
    other.load_state_dict(saved(loader))
    rest = repr([*other])
    assert rest == repr([*batches])


@pytest.mark.parametrize("dataset", [Transforming, TransformingStream])
@pytest.mark.parametrize("workers", [0, 2])
def test_generators_that_a_dataset_holds_resume(dataset: type, workers: int) -> None:
    check_every_step(lambda: DataLoader(dataset(), 2, num_workers=workers, collate_fn=Mixing()), step=1 + workers)


def test_generators_are_looked_for_in_attributes_and_short_collections() -> None:
    found = HeldGenerators(Transforming(), Mixing())
    assert {json.loads(path)[1] for path in found.by_path} == {"same", "transforms", "named", "random"}
    assert len(found.by_path) == 5
    assert found.changed() is None


def test_a_dataset_without_the_generator_of_a_state_is_an_error() -> None:
    loader = DataLoader[Any](Transforming(), 2, collate_fn=list[Any])
    next(iter(loader))
    other = DataLoader[Any](Transforming(), 2, collate_fn=list[Any])
    other.dataset.transforms = []
    other.load_state_dict(saved(loader))
    with pytest.raises(ad.ResumeError, match=r'at \["dataset", "transforms", 1, "random"\]'):
        iter(other)


@pytest.mark.slow
@pytest.mark.parametrize("dataset", [Noisy, Stream, StatefulStream, Transforming, TransformingStream])
def test_it_resumes_with_workers_that_stay(dataset: type) -> None:
    check_every_step(lambda: DataLoader(dataset(), 2, num_workers=2, persistent_workers=True), step=3)


def test_without_order_each_batch_comes_once() -> None:
    for stop in range(6):
        loader = DataLoader(Numbers(), 2, num_workers=2, in_order=False)
        batches = iter(loader)
        found = [next(batches).tolist() for _ in range(stop)]
        state = saved(loader)
        loader = DataLoader(Numbers(), 2, num_workers=2, in_order=False)
        loader.load_state_dict(state)
        assert sorted(found + [batch.tolist() for batch in loader]) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10]]


def test_it_resumes_with_another_number_of_workers_if_they_drew_no_random_numbers() -> None:
    loader = DataLoader(Numbers(), 2, num_workers=2)
    next(iter(loader))
    state = saved(loader)
    other = DataLoader(Numbers(), 2, num_workers=1)
    other.load_state_dict(state)
    assert next(iter(other)).tolist() == [2, 3]
    other = DataLoader(Numbers(), 2)  # which asks again for what the workers had not given
    other.load_state_dict(state)
    batches = iter(other)
    assert next(batches).tolist() == [2, 3]
    other = DataLoader(Numbers(), 2, num_workers=1)
    other.load_state_dict(json.loads(json.dumps(batches.state_dict())))
    assert [batch.tolist() for batch in other] == [[4, 5], [6, 7], [8, 9], [10]]


def test_loaders_that_are_read_by_turns_resume() -> None:
    """A random sampler draws its seed at its first batch, when the others have begun, too."""

    def make() -> list[DataLoader[Any]]:
        return [DataLoader(Noisy(), 2, shuffle=True), DataLoader(Noisy(), 3, shuffle=True)]

    seed()
    loaders, found = make(), list[str]()
    states = [
        [saved(one) for one in loaders] for batches in zip(*loaders, strict=False) if not found.append(repr(batches))
    ]
    for count, state in enumerate(states, 1):
        seed(9)
        loaders = make()
        for loader, one in zip(loaders, state, strict=True):
            loader.load_state_dict(one)
        assert [*map(repr, zip(*loaders, strict=False))] == found[count:]


class Endless(DataLoader[Any]):
    """Reads all epochs from one iterator, which it makes at once."""

    def __init__(self, workers: int) -> None:
        super().__init__(Numbers(), 2, sampler=RandomSampler(range(11), num_samples=999), num_workers=workers)
        self.batches = super().__iter__()

    def __iter__(self) -> Any:
        return islice(self.batches, 6)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterator_made_before_the_state_is_loaded_continues_from_it(workers: int) -> None:
    seed()
    loader = Endless(workers)
    first = [next(iter(loader)).tolist() for _ in range(3)]
    state = saved(loader)
    rest = [batch.tolist() for batch in loader]
    other = Endless(workers)
    other.load_state_dict(state)
    assert [next(iter(other)).tolist() for _ in range(6)] == rest != first
    assert saved(other)["given"] == saved(other.batches)["given"] == 9
    other.load_state_dict(state)  # of an iterator that was read this one is for the next
    assert next(iter(other)).tolist() not in (rest[0], first[0])


@pytest.mark.parametrize("dataset", [Noisy, Stream, StatefulStream])
@pytest.mark.parametrize("workers", [0, 1])
def test_another_number_of_workers_is_an_error_where_the_position_depends_on_it(dataset: type, workers: int) -> None:
    loader = DataLoader(dataset(), 2, num_workers=2)
    next(iter(loader))
    other = DataLoader(dataset(), 2, num_workers=workers)
    other.load_state_dict(saved(loader))
    with pytest.raises(ad.ResumeError, match="num_workers=2"):
        iter(other)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DataLoader(Numbers(), 2, sampler=HiddenSampler()), "does not give again"),
        (lambda: DataLoader(Noisy(), 2, sampler=LazySampler()), "does not give again"),
        (lambda: DataLoader(Restless(), 2), "gives other elements"),
    ],
    ids=["draws from the system", "others draw in between", "an iterable that differs"],
)
def test_what_cannot_be_read_again_is_an_error(make: Callable[[], DataLoader[Any]], words: str) -> None:
    loader = make()
    batches = iter(loader)
    next(batches), next(batches)
    state = saved(loader)
    loader = make()
    loader.load_state_dict(state)
    with pytest.raises(ad.ResumeError, match=words):
        next(iter(loader))


def test_a_sampler_that_changes_in_ways_that_no_state_holds_is_an_error() -> None:
    loader = DataLoader(Numbers(), 2, sampler=ShrinkingSampler())
    list(loader)
    other = DataLoader(Numbers(), 2, sampler=ShrinkingSampler())
    other.load_state_dict(saved(loader))
    with pytest.raises(ad.ResumeError, match=r"sampler\.order"):
        iter(other)


@pytest.mark.parametrize("count", [11, 3000])
@pytest.mark.parametrize("form", ["list", "array", "tensor", "dict", "object"])
def test_a_sampler_that_changes_what_it_holds_is_an_error(form: str, count: int) -> None:
    """At the end of an epoch no batch of the next one can be compared."""
    loader = DataLoader(Numbers(count), 100, sampler=ShufflingSampler(form, count))
    list(loader)
    other = DataLoader(Numbers(count), 100, sampler=ShufflingSampler(form, count))
    other.load_state_dict(saved(loader))
    with pytest.raises(ad.ResumeError, match=r"sampler\.held"):
        iter(other)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("make", [RememberingSampler, PlacedSampler])
def test_a_sampler_with_a_state_of_its_own_resumes(make: type, workers: int) -> None:
    check_every_step(lambda: DataLoader(Numbers(), 4, sampler=make(), num_workers=workers), step=1 + workers)


def test_a_sampler_that_has_lost_its_state_is_an_error() -> None:
    loader = DataLoader(Numbers(), 4, sampler=RememberingSampler())
    next(iter(loader))
    other = DataLoader(Numbers(), 4)
    other.load_state_dict(saved(loader))
    with pytest.raises(ad.ResumeError, match="has no state_dict and load_state_dict"):
        iter(other)


def test_set_epoch_of_a_distributed_sampler_is_in_the_state() -> None:
    def make() -> DataLoader[Any]:
        return DataLoader(Numbers(), 2, sampler=DistributedSampler(range(11), 2, 0))

    loader = make()
    loader.sampler.set_epoch(7)
    batches = [batch.tolist() for batch in loader]
    next(iter(loader))
    other = make()
    other.load_state_dict(saved(loader))
    assert [batch.tolist() for batch in other] == batches[1:]
    other.load_state_dict(saved(loader))
    other.sampler.set_epoch(8)
    assert [batch.tolist() for batch in other] == batches[1:]


def test_a_changed_dataset_is_an_error() -> None:
    loader = DataLoader(Numbers(), 2, shuffle=True)
    next(iter(loader))
    other = DataLoader(Numbers(12), 2, shuffle=True)
    other.load_state_dict(saved(loader))
    with pytest.raises(ad.ResumeError, match=r"len\(dataset\) was 11, and is 12 now"):
        iter(other)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"batch_size": 3}, "saved: batch_size was 2, and is 3 now"),
        ({"dataset": 9}, r"saved: len\(dataset\) was 11, and is 9 now; len\(sampler\) was 11, and is 9 now"),
        ({"shuffle": False}, "the dataset or an argument has changed"),
    ],
)
def test_the_argument_that_has_changed_is_named(changed: dict[str, Any], words: str) -> None:
    def make(dataset: int = 11, batch_size: int = 2, shuffle: bool = True) -> DataLoader[Any]:
        return DataLoader(Numbers(dataset), batch_size, shuffle=shuffle)

    loader = make()
    next(iter(loader))
    other = make(**changed)
    other.load_state_dict(saved(loader))
    with pytest.raises(ad.ResumeError, match=words):
        iter(other)


@pytest.mark.parametrize("form", [torch.tensor, np.array])
def test_all_numbers_of_a_long_batch_are_compared(form: Callable[[list[int]], Any]) -> None:
    def make(order: list[int]) -> DataLoader[Any]:
        return DataLoader(Numbers(4000), batch_sampler=[form(order)] * 2, collate_fn=len)

    loader = make([*range(4000)])
    next(iter(loader))
    other = make([*range(2000), 2001, 2000, *range(2002, 4000)])
    other.load_state_dict(saved(loader))
    with pytest.raises(ad.ResumeError, match="does not give again"):
        iter(other)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_seed_that_the_program_chose_is_compared(steps: int) -> None:
    loader = DataLoader(Numbers(), 4, sampler=SeededSampler(100))
    batches = iter(loader)
    assert len([*islice(batches, steps)]) == steps
    other = DataLoader(Numbers(), 4, sampler=SeededSampler(101))
    other.load_state_dict(saved(loader))
    with pytest.raises(ad.ResumeError, match=r"sampler.initial_seed was 100 .* and is 101 now: .*build the sampler"):
        iter(other)
    other.sampler.initial_seed = 100
    other.load_state_dict(saved(loader))
    assert [*map(repr, other)] == [*map(repr, batches)]


def test_a_drawn_seed_of_another_rank_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    loader = DataLoader(Numbers(), 4, sampler=SeededSampler())
    next(iter(loader))
    monkeypatch.setenv("RANK", "1")
    other = DataLoader(Numbers(), 4, sampler=SeededSampler())
    other.load_state_dict(saved(loader))
    with pytest.raises(ad.ResumeError, match="saved by rank 0, but this process is rank 1"):
        iter(other)


def test_a_state_of_something_else_is_refused() -> None:
    with pytest.raises(ad.ResumeError, match="state_dict of a DataLoader"):
        DataLoader(Numbers()).load_state_dict({"_num_yielded": 3})


@pytest.mark.parametrize("state", [{}, None])
def test_no_state_changes_nothing_and_says_so(state: Any) -> None:
    loader = DataLoader(Numbers(), 4)
    with pytest.warns(UserWarning, match="nothing is resumed"):
        loader.load_state_dict(state)
    assert len(list(loader)) == 3


@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataset_whose_state_cannot_be_saved_is_an_error_where_it_is_asked_for(workers: int) -> None:
    loader = DataLoader[Any](Unsaved(), 4, num_workers=workers)
    batches = iter(loader)
    assert len(next(batches)) == 2
    with pytest.raises(ad.ResumeError, match=r"the state_dict of a Unsaved cannot be saved: .*lock"):
        loader.state_dict()
    assert len([*batches]) == 3


@pytest.mark.parametrize("workers", [0, 1])
def test_the_data_of_a_module_is_no_position(workers: int) -> None:
    loader = DataLoader[Any](Weights(), 4, num_workers=workers)
    batches = iter(loader)
    assert next(batches).tolist() == [0, 1, 2, 3]
    other = DataLoader[Any](Weights(), 4)
    other.load_state_dict(saved(loader))
    assert [batch.tolist() for batch in other] == [[4, 5]]
