"""Samplers as other libraries have them: of several samplers, of objects, and those that are their own iterators."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import RandomSampler, Sampler

import asyncdata as ad
from asyncdata.torch import DataLoader
from tests.torch.datasets import Numbers, seed
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
