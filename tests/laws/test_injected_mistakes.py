"""The laws of each step by itself find mistakes that were made on purpose, and so does `check_transform`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.elements.spec import TensorSpec
from asyncdata.graph.node import Unary
from asyncdata.runtime.tickets import ExplicitTickets, replaying
from asyncdata.testing import check_transform
from asyncdata.testing.steps import check_tickets
from asyncdata.transforms.batch import Batch
from asyncdata.transforms.enumerate import Enumerate
from asyncdata.transforms.shuffle import Shuffle
from asyncdata.transforms.skip import Skip
from asyncdata.transforms.window import Window
from tests.laws import pipelines
from tests.laws.pipelines import Pipeline, Step, of_numbers
from tests.laws.test_each_step import Built, check_step
from tests.reference import Failed
from tests.test_contributing import module_of


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module_of("MovingAverage", tmp_path, monkeypatch)


def averages(elements: Any, size: int) -> Iterator[Any]:
    held: list[Any] = []
    for element in elements:
        held = held if isinstance(element, Failed) else [*held, element][-size:]
        if isinstance(element, Failed) or len(held) == size:
            yield element if isinstance(element, Failed) else sum(held) / size


def moving_average(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    size, pipe = draw(st.integers(1, 4)), of_numbers(pipe)
    return pipe.then(
        f"moving_average({size})",
        lambda ds: ds.moving_average(size),  # type: ignore[attr-defined]
        lambda epoch: averages(pipe.meaning(epoch), size),
    )


def try_law(step: Step, built: Built | None = None) -> None:
    """Try a step by as many examples as by default."""

    @settings(max_examples=25, phases=[Phase.generate], database=None)
    @given(st.data())
    def law(data: st.DataObject) -> None:
        check_step(step, data.draw, built or Built())

    law()


def losing(self: Any, count: int) -> Any:
    """Forget what was held where a failure was the last."""
    places = self.members[count - 1] if count else [-1, *range(len(self.held))]
    last = places[1:] if not count or len(places) == self.size else []
    held = ExplicitTickets([self.member(place) for place in last], lambda _: None)
    return [replaying(self.block.at(places[-1] + 1 - len(self.held) if count else 0), [held])]


def chaining(self: Any, block: Any) -> Any:
    """Let the tickets of what is held refer to those of before."""
    before = self.held.tickets
    out = type(self).feed_once(self, block)
    self.held = self.held.ticketed(ExplicitTickets([*self.held.tickets], lambda _: before))
    return out


def make_mistake(mistake: str, module: ModuleType, patch: pytest.MonkeyPatch) -> None:
    node = module.MovingAverage
    if mistake == "cardinality":
        patch.setattr(node, "cardinality", Unary.cardinality)
    if mistake == "signature":
        patch.setattr(node, "signature", Unary.signature)
    if mistake == "holds":
        patch.setattr(node, "holds", 0)
    if mistake == "state":
        patch.setattr(module.AverageTickets, "at", losing)
    if mistake == "tickets":
        patch.setattr(module.Averager, "feed_once", module.Averager.feed, raising=False)
        patch.setattr(module.Averager, "feed", chaining)
    if mistake == "label":
        patch.setattr(node, "label", lambda self: f"average({self.size})")


MISTAKES = {
    "": None,
    "cardinality": "cardinality is",
    "signature": "signature is",
    "holds": "holds 0 at most|holds 1 of its input",
    "state": "after|resume",
    "tickets": "tickets reach",
    "label": "should begin with the method's name",
}


def add_method(template: ModuleType, built: Built, patch: pytest.MonkeyPatch) -> None:
    def method(ds: Any, size: int) -> Any:
        return ad.Dataset(template.MovingAverage(ds.plan, size))

    patch.setattr(ad.Dataset, "moving_average", built.watched("moving_average", method), raising=False)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_laws_find_a_mistake(mistake: str, template: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    built = Built()
    add_method(template, built, monkeypatch)
    make_mistake(mistake, template, monkeypatch)

    def law() -> None:
        try_law(moving_average, built)
        check_tickets(ad.Dataset.range(900).moving_average(3).plan, (200, 400))  # type: ignore[attr-defined]

    if not mistake:
        law()
        return
    with pytest.raises(AssertionError):
        law()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_check_transform_finds_a_mistake(mistake: str, template: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    make_mistake(mistake, template, monkeypatch)

    def check() -> None:
        check_transform(
            lambda ds: ad.Dataset(template.MovingAverage(ds.plan, 3)), lambda items: averages(items, 3), [range(10)]
        )

    if not mistake:
        check()
        return
    with pytest.raises(AssertionError, match=MISTAKES[mistake]):
        check()


@pytest.mark.parametrize(
    ("step", "node", "name", "wrong"),
    [
        (pipelines.batch, Batch, "cardinality", property(lambda self: self.input.cardinality)),
        (pipelines.batch, Batch, "signature", property(lambda self: self.input.signature)),
        (pipelines.batch, Batch, "holds", 0),
        (pipelines.window, Window, "holds", 0),
        (pipelines.shuffle, Shuffle, "holds", 1),
        (pipelines.skip, Skip, "cardinality", property(lambda self: self.input.cardinality)),
        (pipelines.enumerate_, Enumerate, "signature", property(lambda self: TensorSpec((), "int64"))),
    ],
)
def test_the_laws_find_what_a_step_declares_wrongly(
    step: Step, node: Any, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, name, wrong)
    with pytest.raises(AssertionError):
        try_law(step)
