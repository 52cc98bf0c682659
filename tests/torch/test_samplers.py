"""Samplers as other libraries have them: of several samplers, of objects, and those that are their own iterators."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset, RandomSampler, Sampler
from torch.utils.data.distributed import DistributedSampler

import asyncdata as ad
from asyncdata.torch import DataLoader
from tests.torch.datasets import EagerSampler, LazySampler, Numbers, seed
from tests.torch.test_resume import check_every_step

pytestmark = pytest.mark.torch


class ByTurns(Sampler[list[int]]):
    """Takes a batch of each of several samplers, by turns, as samplers for several datasets do."""

    def __init__(self, form: Callable[[list[Any]], Any]) -> None:
        generators = [torch.Generator().manual_seed(number) for number in range(3)]
        self.samplers = form([RandomSampler(range(4), generator=generator) for generator in generators])

    def __iter__(self) -> Iterator[list[int]]:
        parts = self.samplers.values() if isinstance(self.samplers, dict) else self.samplers
        return iter([[*batch] for batch in zip(*parts, strict=True)])


@pytest.mark.parametrize("form", [list, tuple, lambda parts: dict(zip("abc", parts, strict=True))])
def test_samplers_that_a_sampler_has_in_a_list_resume(form: Callable[[list[Any]], Any]) -> None:
    check_every_step(lambda: DataLoader(Numbers(), batch_sampler=ByTurns(form)))


class OfSampler(Dataset[int]):
    """The numbers that a sampler gives, as a dataset."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self.numbers: list[int] | None = None

    def __len__(self) -> int:
        return len(self.sampler)

    def __getitem__(self, index: int) -> int:
        self.numbers = [*self.sampler] if self.numbers is None else self.numbers
        return self.numbers[index]


class Distributed(DistributedSampler[int]):
    """The share of a rank in what another sampler gives, as in catalyst and programs that have it from there."""

    def __init__(self, sampler: Any) -> None:
        super().__init__(OfSampler(sampler), 2, 0)
        self.sampler = sampler

    def __iter__(self) -> Iterator[int]:
        self.dataset = OfSampler(self.sampler)
        return iter([self.dataset[place] for place in super().__iter__()])


def test_the_share_of_a_rank_in_another_sampler_resumes() -> None:
    check_every_step(lambda: DataLoader(Numbers(), 2, sampler=Distributed(RandomSampler(range(11)))))


class Reordering(Sampler[int]):
    """Changes in place what it holds under a name that samplers have, too."""

    def __init__(self) -> None:
        self.sampler_order = [*range(11)]

    def __iter__(self) -> Iterator[int]:
        random.shuffle(self.sampler_order)
        return iter([*self.sampler_order])


def test_what_is_no_sampler_is_compared_whatever_its_name() -> None:
    loader = DataLoader(Numbers(), 4, sampler=Reordering())
    list(loader)
    other = DataLoader(Numbers(), 4, sampler=Reordering())
    other.load_state_dict(loader.state_dict())
    with pytest.raises(ad.ResumeError, match=r"sampler\.sampler_order"):
        iter(other)


class OwnIterator(Sampler[int]):
    """Is its own iterator, which begins anew with each epoch, as samplers of lhotse are."""

    def __iter__(self) -> Iterator[int]:
        self.left = [*range(7)]
        random.shuffle(self.left)
        return self

    def __next__(self) -> int:
        if not self.left:
            raise StopIteration
        return self.left.pop()


class Once(OwnIterator):
    """The same, which does not begin anew."""

    def __init__(self) -> None:
        super().__iter__()

    def __iter__(self) -> Iterator[int]:
        return self


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_may_be_its_own_iterator_if_it_begins_anew(workers: int) -> None:
    found = []
    for kind in (TorchLoader, DataLoader):
        seed()
        loader = kind(Numbers(), None, sampler=OwnIterator(), num_workers=workers)
        found.append([*loader, *loader])
    assert found[0] == found[1]
    assert len(found[0]) == 14
    loader = DataLoader(Numbers(), None, sampler=Once(), num_workers=workers)
    assert len(list(loader)) == 7
    with pytest.raises(ad.PlanError, match="epoch 1 has no batch: the sampler, a Once, is an iterator"):
        list(loader)


class Regrouping(Sampler[list[int]]):
    """Keeps its batches, and makes others of them behind each epoch, as samplers that group by length do."""

    def __init__(self, form: Callable[[Any], Any]) -> None:
        self.form = form
        self.batches = form([[0, 1], [2, 3], [4, 5], [6, 7]])

    def __iter__(self) -> Iterator[list[int]]:
        yield from self.batches
        changed = [[*batch][::-1] for batch in self.batches]
        random.shuffle(changed)
        self.batches = self.form(changed)


@pytest.mark.parametrize("form", [list, np.array, lambda batches: torch.tensor(np.array(batches))])
def test_a_sampler_that_makes_its_batches_anew_resumes(form: Callable[[Any], Any]) -> None:
    check_every_step(lambda: DataLoader(Numbers(), batch_sampler=Regrouping(form)))


class Twice(Regrouping):
    """Has two names for its batches."""

    def __iter__(self) -> Iterator[list[int]]:
        yield from super().__iter__()
        self.latest = self.batches


class Chosen(list[Any]):
    """A list of a class of its own, which would come back as another one."""


@pytest.mark.parametrize("make", [lambda: Regrouping(Chosen), lambda: Twice(list)])
def test_batches_that_would_come_back_as_others_are_an_error(make: Callable[[], Any]) -> None:
    loader = DataLoader(Numbers(), batch_sampler=make())
    list(loader)
    other = DataLoader(Numbers(), batch_sampler=make())
    other.load_state_dict(loader.state_dict())
    with pytest.raises(ad.ResumeError, match=r"sampler\.batches"):
        iter(other)


class Reseeded(Sampler[int]):
    """Seeds its generator in `set_epoch`."""

    def __init__(self) -> None:
        self.generator = torch.Generator()

    def set_epoch(self, epoch: int) -> None:
        self.generator.manual_seed(epoch)

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(11, generator=self.generator).tolist())


class Restored(Reseeded):
    """The same with a state of its own, which has the epoch."""

    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        super().set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.set_epoch(state["epoch"])


def set_epoch(loader: Any, epoch: int) -> None:
    loader.sampler.set_epoch(epoch)


@pytest.mark.parametrize("make", [lambda: DistributedSampler(range(11), 2, 0), Reseeded, Restored])
def test_the_epoch_that_a_program_sets_when_it_has_resumed_holds(make: Callable[[], Any]) -> None:
    """Also where the one before has ended in the state: programs set it before each epoch."""
    check_every_step(lambda: DataLoader(Numbers(), 4, sampler=make()), epochs=3, before=set_epoch)


@pytest.mark.parametrize(
    ("make", "before"),
    [
        (lambda: DataLoader(Numbers(), 4, shuffle=True), lambda _, epoch: torch.manual_seed(epoch)),
        (lambda: DataLoader(Numbers(), 4, sampler=LazySampler()), lambda _, epoch: random.seed(epoch)),
        (lambda: DataLoader(Numbers(), 4, sampler=EagerSampler()), lambda _, epoch: np.random.seed(epoch)),
        (
            lambda: DataLoader(Numbers(), 4, shuffle=True, generator=torch.Generator()),
            lambda loader, epoch: loader.generator.manual_seed(epoch),
        ),
    ],
    ids=["torch", "random", "numpy", "generator"],
)
def test_seeds_that_a_program_sets_before_each_epoch_hold(
    make: Callable[[], Any], before: Callable[[Any, int], object]
) -> None:
    check_every_step(make, epochs=3, before=before)


class Cut:
    """What a sampler gives in place of an index: its text is another one in each process."""

    def __init__(self, number: int) -> None:
        self.number = number


class OfCuts(Numbers):
    """A dataset that is read by objects."""

    def __getitem__(self, index: Any) -> int:
        return int(index[0].number)


class Cuts(OwnIterator):
    """Gives objects. Makes its generator in `__iter__`, and goes on behind the place that it has from a state."""

    def __init__(self) -> None:
        self.epoch, self.place, self.goes_on = 0, 0, False
        self.random: random.Random | None = None

    def __iter__(self) -> Any:
        if not self.goes_on:
            self.begin()
        return self

    def begin(self) -> None:
        """Begin the epoch."""
        self.place = 0
        self.random = random.Random(self.epoch)

    def __next__(self) -> Any:
        self.goes_on = False
        if self.place == 11:
            raise StopIteration
        self.place += 1
        assert self.random is not None
        return [Cut(self.random.randrange(1000))]

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, place = state.pop("epoch"), state.pop("place")
        self.begin()
        for _ in range(place):
            next(self)
        self.goes_on = True


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_of_objects_that_goes_on_from_its_state_resumes(workers: int) -> None:
    check_every_step(lambda: DataLoader(OfCuts(), None, sampler=Cuts(), num_workers=workers), step=1 + 2 * workers)


def test_a_sampler_that_is_its_own_iterator_resumes() -> None:
    check_every_step(lambda: DataLoader(Numbers(), None, sampler=OwnIterator()))


def test_other_objects_than_before_are_an_error() -> None:
    def make(*numbers: int) -> DataLoader[Any]:
        return DataLoader(OfCuts(), None, sampler=[[Cut(number)] for number in numbers])

    loader = make(1, 2, 3)
    assert next(iter(loader)) == 1
    state = loader.state_dict()
    other = make(1, 5, 6)
    other.load_state_dict(state)
    assert [*other] == [5, 6]
    other = make(2, 1, 3)
    other.load_state_dict(state)
    with pytest.raises(ad.ResumeError, match="does not give again"):
        iter(other)


class Making(Sampler[int]):
    """Makes its generator when it is iterated: once, or each time."""

    def __init__(self, make: Callable[[], Any], once: bool) -> None:
        self.make, self.once, self.epoch = make, once, 0
        self.random: Any = None

    def __iter__(self) -> Iterator[int]:
        if self.random is None or not self.once:
            self.random = self.make()
        permuted = getattr(self.random, "permutation", lambda numbers: self.random.sample(numbers, len(numbers)))
        if isinstance(self.random, torch.Generator):
            return iter(torch.randperm(11, generator=self.random).tolist())
        return iter([int(number) for number in permuted(range(11))])


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.Generator().manual_seed(3),
        lambda: random.Random(3),
        lambda: np.random.RandomState(3),
        lambda: np.random.default_rng(3),
        lambda: np.random.Generator(np.random.MT19937(3)),
    ],
    ids=["torch", "random", "RandomState", "PCG64", "MT19937"],
)
def test_a_sampler_may_make_its_generator_when_it_is_iterated(make: Callable[[], Any], once: bool) -> None:
    check_every_step(lambda: DataLoader(Numbers(), 4, sampler=Making(make, once)))
