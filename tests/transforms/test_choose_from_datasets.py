from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes, check_transform
from tests import reference
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import WAYS, read_plain, results
from tests.states import edited

Choose = ad.Dataset.choose_from_datasets


def chosen(choices: Any, stop: bool = True, counts: tuple[int, ...] = (2, 3)) -> list[Any]:
    """What comes of choices among datasets that begin at 0, 10 and so on."""
    inputs = [ad.Dataset.range(10 * place, 10 * place + count) for place, count in enumerate(counts)]
    return results(Choose(inputs, ad.Dataset.from_iterable(choices), stop))


def test_keeps_its_contract() -> None:
    choices = [0, 1, 1, 0, 1] * 40
    check_transform(
        lambda ds: Choose([ds, ad.Dataset.range(100, 120)], ad.Dataset.from_iterable(choices), False),
        lambda items: reference.choose_from_datasets([items, range(100, 120)], choices, False),
    )


def test_the_example_of_tensorflows_documentation() -> None:
    datasets = [ad.Dataset.from_tensors(name).repeat() for name in ("foo", "bar", "baz")]
    choices = ad.Dataset.range(3).repeat(3)
    assert list(Choose(datasets, choices)) == ["foo", "bar", "baz"] * 3


def test_ends_with_the_choices() -> None:
    assert chosen([0, 1]) == [0, 10]
    assert chosen([]) == []


def test_a_choice_of_a_dataset_that_has_ended_ends_all() -> None:
    assert chosen([0, 0, 0, 1, 1]) == [0, 1]


def test_or_is_passed_over() -> None:
    assert chosen([0, 0, 0, 1, 0, 1], stop=False) == [0, 1, 10, 11]


def test_ends_when_all_are_known_to_have_ended() -> None:
    assert chosen([0, 0, 0, 1, 1, 1, 1, 5, 1], stop=False) == [0, 1, 10, 11, 12]
    assert chosen([0, 0, 1, 1, 1, 5], stop=False) == [0, 1, 10, 11, 12, Failed("IndexError")]
    endless = ad.Dataset.range(2).repeat()
    assert len(list(Choose([ad.Dataset.range(2), ad.Dataset.range(3)], endless, False))) == 5


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_choice_that_cannot_be_is_an_error_in_its_place(way: Callable[..., list[Any]], stop: bool) -> None:
    choices = ad.Dataset.from_iterable([0, 2, 1, -1, "x", 1.0, None, 0])
    found = way(Choose([ad.Dataset.range(2), ad.Dataset.range(10, 13)], choices, stop))
    refused = [Failed("TypeError")] * 3
    assert found == [0, Failed("IndexError"), 10, Failed("IndexError"), *refused, 1]


def test_the_error_names_the_choice() -> None:
    with pytest.raises(IndexError, match="there is no dataset 7 among 1") as raised:
        list(Choose([ad.Dataset.range(2)], ad.Dataset.from_iterable([0, 7])))
    assert raised.value.__notes__ == ["in choose_from_datasets, element 1"]


def fails(x: int) -> int:
    if x % 3 == 2:
        raise Boom(x)
    return x


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_failed_choices_and_failed_elements_have_their_places(way: Callable[..., list[Any]]) -> None:
    choices = ad.Dataset.range(6).map(fails).map(lambda x: x % 3)
    found = way(Choose([ad.Dataset.range(9).map(fails), ad.Dataset.range(2, 9).map(fails)], choices))
    assert found == [0, Failed("Boom(2)"), Failed("Boom(2)"), 1, 3, Failed("Boom(5)")]


def test_choices_may_be_numbers_of_any_kind() -> None:
    assert chosen([np.int32(0), np.uint8(1), True, np.array(0)]) == [0, 10, 11, 1]
    choices = ad.Dataset.from_tensor_slices(np.array([1, 0, 1], np.int8))
    assert list(Choose([ad.Dataset.range(2), ad.Dataset.range(10, 13)], choices)) == [10, 0, 11]


def test_left_early_all_that_was_started_is_closed() -> None:
    closed: list[str] = []

    def generate(name: str) -> Iterator[int]:
        try:
            while True:
                yield 0
        finally:
            closed.append(name)

    datasets = [ad.Dataset.from_generator(generate, args=(name,)) for name in ("one", "never chosen")]
    choices = ad.Dataset.from_generator(generate, args=("choices",))
    assert read_plain(Choose(datasets, choices).take(20)) == [0] * 20
    assert sorted(closed) == ["choices", "one"]


@pytest.mark.parametrize("wrong", [[], None, ad.Dataset.range(2), [3]])
def test_what_are_no_datasets_is_refused_where_it_is_given(wrong: Any) -> None:
    with pytest.raises(ad.PlanError):
        Choose(wrong, ad.Dataset.range(1))


@pytest.mark.parametrize("wrong", [[0], 3, ad.Dataset.range(4).batch(2), ad.Dataset.from_tensors(0.5)])
def test_choices_that_can_be_none_are_refused_where_they_are_given(wrong: Any) -> None:
    with pytest.raises(ad.PlanError):
        Choose([ad.Dataset.range(1)], wrong)


def test_cardinality() -> None:
    ten, endless = ad.Dataset.range(10), ad.Dataset.counter()
    assert len(Choose([endless, endless], ten)) == 10
    assert len(Choose([ten], ad.Dataset.range(0))) == 0
    assert Choose([endless], endless).cardinality() == ad.INFINITE_CARDINALITY
    assert Choose([ten, endless], ten).cardinality() == ad.UNKNOWN_CARDINALITY
    assert Choose([ten, ten], endless, False).cardinality() == ad.UNKNOWN_CARDINALITY


def test_it_is_drawn_with_its_inputs() -> None:
    ds = Choose([ad.Dataset.range(2), ad.Dataset.range(3)], ad.Dataset.range(4))
    assert repr(ds) == "<Dataset choose_from_datasets(range(4), range(2), range(3))>"


# ---------------------------------------------------------------------------------------------------------------------
# Going on


def choosing(stop: bool) -> ad.Dataset[Any]:
    choices = ad.Dataset.from_iterable([0, 1, 5, 1, 2, 0, 2, 0, 1, "x", 2, 0, 0, 1] * 5).shuffle(4, seed=1)
    inputs = [ad.Dataset.range(40).shuffle(5, seed=1), ad.Dataset.range(100, 110).map(fails), ad.Dataset.range(3)]
    return Choose(inputs, choices, stop)


@pytest.mark.parametrize(
    "transform",
    [
        lambda ds: ds,
        lambda ds: ds.map(lambda x: x, num_parallel_calls=3),
        lambda ds: ds.shuffle(7, seed=2),
        lambda ds: ds.repeat(2),
        lambda ds: Choose([ds, ad.Dataset.range(1000, 1010)], ad.Dataset.range(2).repeat(), False),
    ],
    ids=["alone", "parallel map", "shuffle", "repeat", "chosen again"],
)
@pytest.mark.parametrize("stop", first_by_default([True, False]))
def test_goes_on_from_every_place(transform: Callable[[ad.Dataset[Any]], ad.Dataset[Any]], stop: bool) -> None:
    check_resumes(lambda: transform(choosing(stop)), places=100)


def test_a_position_that_is_none_is_refused() -> None:
    with choosing(False).iterate() as elements:
        next(elements)
        state = edited(elements.state_dict())
    state["position"]["inputs"] = [0]
    with pytest.raises(ad.ResumeError, match="choose_from_datasets"):
        next(choosing(False).iterate(state=state))
