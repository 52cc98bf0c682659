"""Going on from a state is as if nothing had happened: at any place, several times over, whatever the pipeline."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.graph.node import nodes_of
from asyncdata.persistence.file_cache import FileCache
from tests.laws import pipelines as steps
from tests.laws.files import scratch
from tests.laws.pipelines import ALL_STEPS, Pipeline, cache_in_file, chains, pipelines, sources
from tests.reference import Failed, failed, is_lost
from tests.running import MOST, impatient, taken, taken_async

Leg: TypeAlias = tuple[int, bool, Literal["thread", "current"], ad.Options]
"""How far one run goes, whether it is read with `async for`, where it runs, and how it is rewritten."""

PLACEMENTS: tuple[Literal["thread", "current"], ...] = ("thread", "current")
REWRITTEN = (ad.Options(), ad.Options(optimize=False), ad.Options(reorder=True))


def some_leg(least: int = 0, most: int = 25) -> st.SearchStrategy[Leg]:
    count, where = st.integers(least, most), st.sampled_from(PLACEMENTS)
    return st.tuples(count, st.booleans(), where, st.sampled_from(REWRITTEN))


legs = st.lists(some_leg(), max_size=4)


def run(ds: ad.Dataset[Any], leg: Leg, state: Any) -> tuple[list[Any], Any]:
    """Deliver some elements from a state on, and return them with the state after them."""
    most, is_async, placement, rewritten = leg
    ds = ds.with_options(ad.Options(placement=placement)).with_options(rewritten)

    async def read() -> tuple[list[Any], Any]:
        async with ds.iterate(state=state) as elements:
            return await taken_async(elements, most), elements.state_dict()

    if is_async:
        return asyncio.run(read())
    with ds.iterate(state=state) as elements:
        return taken(elements, most), elements.state_dict()


def read_in_legs(pipe: Pipeline, legs: list[Leg]) -> list[Any]:
    """Run a pipeline in several legs, each in a dataset of its own, as another process would build it."""
    found: list[Any] = []
    state = None
    for leg in [*legs, (MOST, False, "thread", ad.Options())]:
        elements, state = run(pipe.build(), leg, state)
        state = json.loads(json.dumps(state))
        assert state["delivered"] == len(found) + len(elements)
        found += elements
    return found


@pytest.mark.timeout(600)
@settings(max_examples=min(10_000, 5 * settings().max_examples))
@given(pipe=pipelines(), legs=legs)
def test_going_on_is_as_if_nothing_had_happened(pipe: Pipeline, legs: list[Leg]) -> None:
    assert pipe.comparable(read_in_legs(pipe, legs)) == pipe.elements()


@given(pipe=pipelines(), legs=legs)
def test_going_on_where_groups_were_given_up_is_as_if_nothing_had_happened(pipe: Pipeline, legs: list[Leg]) -> None:
    with impatient():
        assert pipe.comparable(read_in_legs(pipe, legs)) == pipe.elements()


@st.composite
def movable(draw: st.DrawFn) -> Pipeline:
    return steps.movable(draw, draw(pipelines()))


@given(pipe=movable(), legs=legs)
def test_a_state_goes_on_whatever_was_reordered(pipe: Pipeline, legs: list[Leg]) -> None:
    assert pipe.comparable(read_in_legs(pipe, legs)) == pipe.elements()


@given(pipe=pipelines())
def test_a_state_is_the_same_before_and_after_going_on(pipe: Pipeline) -> None:
    _, state = run(pipe.build(), (3, False, "thread", ad.Options()), None)
    _, again = run(pipe.build(), (0, False, "current", ad.Options(optimize=False)), state)
    assert again == state


@given(pipe=pipelines().filter(lambda pipe: pipe.ordered and pipe.counted), legs=legs, skipped=st.integers(0, 30))
def test_what_is_skipped_is_left_out_and_nothing_else(pipe: Pipeline, legs: list[Leg], skipped: int) -> None:
    """Skip somewhere, also in a state that is saved before anything else is read.

    What goes wrong with a source is raised where it is read.
    """
    raised: list[Any] = []
    found, state = run(pipe.build(), legs[0] if legs else (0, False, "thread", ad.Options()), None)
    with pipe.build().iterate(state=state) as elements:
        try:
            elements.skip(skipped)
        except Exception as error:
            raised.append(failed(error))
        state = elements.state_dict()
    rest, _ = run(pipe.build(), (MOST, False, "thread", ad.Options()), json.loads(json.dumps(state)))
    begun = pipe.elements()[len(found) :]
    lost = [one for one in begun[:skipped] if is_lost(one)]
    assert [*raised, *pipe.comparable(rest)] in (begun[skipped:], [*lost, *begun[skipped:]])


@st.composite
def storing(draw: st.DrawFn) -> Pipeline:
    """A pipeline that stores elements in a file."""
    before = draw(chains(sources(), ALL_STEPS, 3))
    return draw(chains(st.just(cache_in_file(draw, before)), ALL_STEPS, 3))


def remove_files(pipe: Pipeline) -> None:
    for node in nodes_of(pipe.build().plan):
        if isinstance(node, FileCache):
            for left in Path(node.path).parent.iterdir():
                left.unlink()


@settings(max_examples=2 * settings().max_examples)
@given(pipe=storing(), legs=legs, again=st.booleans())
def test_where_stored_elements_are_gone_or_were_stored_again_nothing_is_lost(
    pipe: Pipeline, legs: list[Leg], again: bool
) -> None:
    """If they may be in another order, or in other batches, it may be an error; never are other elements given."""
    found: list[Any] = []
    state = None
    for leg in [*legs, (MOST, False, "thread", ad.Options())]:
        elements, state = run(pipe.build(), leg, state)
        if any(element == Failed("ResumeError") for element in elements if isinstance(element, Failed)):
            assert not (pipe.ordered and pipe.build().plan.in_order)
            return
        found += elements
        state = json.loads(json.dumps(state))
        remove_files(pipe)
        if again:
            taken(iter(pipe.build()))
    assert pipe.comparable(found) == pipe.elements()


ANEW = random.Random(0)


@st.composite
def stored_in_some_order(draw: st.DrawFn) -> Pipeline:
    """Numbers in a complete file, in another order each time that it is written."""
    numbers = [*range(draw(st.sampled_from([12, 30])))]
    folder = Path(tempfile.mkdtemp(dir=scratch()))

    def in_some_order() -> Iterator[int]:
        yield from ANEW.sample(numbers, len(numbers))

    def build() -> ad.Dataset[Any]:
        ds = ad.Dataset.from_generator(in_some_order).cache(folder / "kept")
        taken(iter(ds))
        return ds

    weakref.finalize(build, shutil.rmtree, folder)
    return Pipeline(f"from_generator({len(numbers)}).cache(file)", build, lambda _: numbers, ordered=False)


@settings(max_examples=2 * settings().max_examples)
@given(pipe=chains(stored_in_some_order(), ALL_STEPS, 3), leg=some_leg(1, 11), again=st.booleans())
def test_never_are_elements_of_another_file_given(pipe: Pipeline, leg: Leg, again: bool) -> None:
    found, state = run(pipe.build(), leg, None)
    if again:
        remove_files(pipe)
    rest, _ = run(pipe.build(), (MOST, False, "thread", ad.Options()), json.loads(json.dumps(state)))
    if any(element == Failed("ResumeError") for element in rest if isinstance(element, Failed)):
        assert again or not pipe.build().plan.in_order
    else:
        assert pipe.comparable(found + rest) == pipe.elements()


@given(
    pipe=st.one_of(pipelines(), storing()),
    most=st.integers(0, 25),
    before=st.sampled_from([0, 3, MOST]),
    same=st.booleans(),
)
def test_a_state_of_a_later_epoch_goes_on(pipe: Pipeline, most: int, before: int, same: bool) -> None:
    """Whatever an earlier one has left in caches, in the same dataset or in one of another process."""
    ds = pipe.build()
    with ds.iterate() as elements:
        taken(elements, before)
    with ds.iterate() as elements:
        found = taken(elements, most)
        state = json.loads(json.dumps(elements.state_dict()))
    assert state["epoch"] == 1
    other = ds if same else pipe.build()
    found += taken(other.iterate(state=state))
    if any(element == Failed("ResumeError") for element in found if isinstance(element, Failed)):
        assert not other.plan.in_order
    else:
        assert pipe.comparable(found) == pipe.elements(1)
        assert pipe.comparable(taken(iter(other))) == pipe.elements(2)
