"""What is read by hand, without an event loop, is what a loop gives; and what is said never to wait never does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from itertools import takewhile
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.engines.no_loop import driven
from asyncdata.executors.scope import LooplessScope
from asyncdata.graph.node import Node
from asyncdata.planning.optimizer import Planner
from asyncdata.runtime.block import Demand, Failure
from asyncdata.testing import leaves_nothing
from tests.laws.pipelines import Pipeline, pipelines
from tests.reference import Failed, failed
from tests.running import MOST, read_plain

OPTIONS = st.sampled_from([ad.Options(), ad.Options(optimize=False)])


async def everything(plan: Node, size: int, found: list[Any]) -> None:
    """Take all elements of a plan, failures in their places; so many are asked for at once."""
    async with aclosing(plan.open(LooplessScope((0,)), Demand(size))) as source:
        async for block in source:
            assert 0 < len(block) <= size
            found += [failed(item.error) if type(item) is Failure else item for item in block.items]
            if len(found) >= MOST:
                return


def driven_to_the_end(plan: Node, size: int) -> list[Any]:
    """All elements of a plan that never waits; an error that ends it comes again and again, as from an iterator."""
    found: list[Any] = []
    try:
        driven(everything(plan, size, found), lambda: None)
    except Exception as error:
        found += [failed(error)] * MOST
    return found[:MOST]


def unwaiting(plan: Node, options: ad.Options) -> Iterator[Node]:
    """The largest parts of a plan that are driven by hand."""
    by_hand = Planner(options).runs_by_hand(plan)
    if by_hand is not None:
        yield by_hand
    else:
        for part in plan.inputs:
            yield from unwaiting(part, options)


@given(pipe=pipelines(), options=OPTIONS, size=st.sampled_from([1, 2, 7, 500]))
def test_what_is_said_never_to_wait_never_does_and_gives_the_same(pipe: Pipeline, options: Any, size: int) -> None:
    parts = list(unwaiting(pipe.build().plan, options))
    assume(parts)
    for part in parts:
        with leaves_nothing():
            found = driven_to_the_end(part, size)
        expected = read_plain(ad.Dataset(part), MOST)
        assert repr(pipe.comparable(found)) == repr(pipe.comparable(expected))  # elements may be datasets


def first_of(elements: list[Any]) -> list[Any]:
    """Elements up to the first failure, and that alone if there is one: what is raised."""
    good = list(takewhile(lambda element: type(element) is not Failed, elements))
    return good if len(good) == len(elements) else [elements[len(good)]]


@given(pipe=pipelines(), options=OPTIONS, count=st.integers(0, 12))
def test_looking_at_the_beginning_gives_what_iterating_gives(pipe: Pipeline, options: Any, count: int) -> None:
    assume(pipe.ordered)
    ds = pipe.build().with_options(options)
    for _ in range(2):
        with leaves_nothing():
            try:
                found = ds.head(count)
            except Exception as error:
                found = [failed(error)]
        assert pipe.comparable(found) == first_of(pipe.elements()[:count])


@given(pipe=pipelines(), options=OPTIONS)
def test_the_only_element_is_the_only_one(pipe: Pipeline, options: Any) -> None:
    assume(pipe.ordered)
    expected = first_of(pipe.elements()[:2])
    try:
        found = [pipe.build().with_options(options).get_single_element()]
    except Exception as error:
        found = [failed(error)]
    alone = len(expected) == 1
    assert pipe.comparable(found) == (expected if alone else [Failed("StructureError")])


@given(pipe=pipelines(), options=OPTIONS, place=st.integers(0, 30))
def test_an_element_by_its_number_is_the_one_with_that_place(pipe: Pipeline, options: Any, place: int) -> None:
    """Where no failure is delivered that has no number."""
    ds = pipe.build().with_options(options)
    assume(pipe.ordered and ds.plan.random_access)
    elements = pipe.elements()
    assume(place < len(elements) and not any(type(one) is Failed and one.out_of_place for one in elements))
    try:
        found = ds.at(place)
    except Exception as error:
        found = failed(error)
    assert pipe.comparable([found]) == [elements[place]]
