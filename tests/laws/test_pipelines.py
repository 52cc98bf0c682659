"""Laws that every pipeline keeps, tried on random ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.elements.structure import conform, spec_of
from asyncdata.executors.autotune import Choice, Tuning
from asyncdata.testing import leaves_nothing
from tests.laws import pipelines as steps
from tests.laws.pipelines import Pipeline, pipelines
from tests.reference import Failed
from tests.running import WAYS, collect, impatient, read_async, read_plain

RULES = (
    "noop_elimination",
    "filter_pushdown",
    "shrink_pushdown",
    "map_fusion",
    "map_and_filter_fusion",
    "shuffle_and_repeat_fusion",
    "take_pushdown",
    "skip_pushdown",
    "shard_pushdown",
    "shuffle_lift",
    "map_parallelisation",
    "map_vectorisation",
    "map_and_batch_fusion",
    "inject_prefetch",
)


QUARTER = settings(max_examples=settings().max_examples // 4)
"""For what is tried for each of many rules, or takes long."""


def check(pipe: Pipeline, elements: list[Any], iteration: int = 0) -> None:
    assert pipe.comparable(elements) == pipe.elements(iteration)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@given(pipe=pipelines())
def test_running_gives_the_meaning(way: Callable[..., list[Any]], pipe: Pipeline) -> None:
    check(pipe, way(pipe.build()))


@given(pipe=pipelines(), way=st.sampled_from(WAYS))
def test_without_the_optimizer_nothing_changes(pipe: Pipeline, way: Callable[..., list[Any]]) -> None:
    check(pipe, way(pipe.build().with_options(ad.Options(optimize=False))))


@pytest.mark.parametrize("rule", RULES)
@QUARTER
@given(pipe=pipelines())
def test_without_a_rule_nothing_changes(rule: str, pipe: Pipeline) -> None:
    check(pipe, read_plain(pipe.build().with_options(ad.Options(disabled_rules=(rule,), reorder=True))))


@st.composite
def movable(draw: st.DrawFn) -> Pipeline:
    return steps.movable(draw, draw(pipelines()))


@given(pipe=movable(), way=st.sampled_from(WAYS))
def test_reordering_changes_nothing_where_nothing_fails(pipe: Pipeline, way: Callable[..., list[Any]]) -> None:
    check(pipe, way(pipe.build().with_options(ad.Options(reorder=True))))


def fickle(tuning: Tuning) -> Choice:
    """Choose something else for each group."""
    wheres = ["task"] if tuning.waiting == "task" else ["inline", "thread"]
    before = tuning.choice
    tuning.choice = Choice(
        wheres[before.where == wheres[0] and len(wheres) - 1], 1 + before.workers % 3, "for a change"
    )
    return tuning.choice


@given(pipe=pipelines(), way=st.sampled_from(WAYS))
def test_a_fickle_autotune_changes_nothing(pipe: Pipeline, way: Callable[..., list[Any]]) -> None:
    with mock.patch.object(Tuning, "consider", fickle), leaves_nothing():
        check(pipe, way(pipe.build()))


@given(pipe=pipelines(), way=st.sampled_from(WAYS), count=st.integers(0, 20))
def test_leaving_with_a_fickle_autotune_leaves_nothing(
    pipe: Pipeline, way: Callable[..., list[Any]], count: int
) -> None:
    with mock.patch.object(Tuning, "consider", fickle), leaves_nothing():
        way(pipe.build(), count)


@given(pipe=pipelines(), way=st.sampled_from(WAYS), changes=st.booleans())
def test_groups_that_are_given_up_change_nothing(pipe: Pipeline, way: Callable[..., list[Any]], changes: bool) -> None:
    consider = fickle if changes else Tuning.consider
    with impatient(), mock.patch.object(Tuning, "consider", consider), leaves_nothing():
        check(pipe, way(pipe.build()))


@given(pipe=pipelines(), placement=st.sampled_from(["thread", "current"]))
def test_each_iteration_is_the_next_epoch(pipe: Pipeline, placement: Any) -> None:
    ds = pipe.build().with_options(ad.Options(placement=placement))
    for iteration, read in enumerate([read_plain, read_async, read_plain]):
        check(pipe, read(ds), iteration)


@given(pipe=pipelines(), size=st.integers(1, 8), ways=st.tuples(*[st.sampled_from(WAYS)] * 2))
def test_inner_shuffles_depend_on_the_element_alone(pipe: Pipeline, size: int, ways: tuple[Any, Any]) -> None:
    """Not on how elements came in blocks, nor on rewrites: the same seed, the same order.

    A file that caches what depends on time numbers its elements anew when it is read.
    """
    assume(pipe.ordered and not ("within=" in pipe.text and "cache(file)" in pipe.text))

    def shuffled(ahead: int) -> ad.Dataset:
        some = pipe.build().take(20)  # of which eighteen times as many are made
        ds = some.prefetch(ahead).flat_map(lambda *_: ad.Dataset.range(6).shuffle(size, seed=1)).enumerate()
        return ds.prefetch(ahead).batch(2).flat_map(lambda *_: ad.Dataset.range(6).shuffle(size, seed=2))

    one, other = ways
    assert one(shuffled(0)) == other(shuffled(50).with_options(ad.Options(optimize=False)))


@given(pipe=pipelines())
def test_len_is_the_number_delivered(pipe: Pipeline) -> None:
    ds, count = pipe.build(), len(pipe.elements())
    if ds.cardinality() == ad.UNKNOWN_CARDINALITY:
        with pytest.raises(TypeError):
            len(ds)
    elif pipe.counted:
        assert len(ds) == ds.cardinality() == count


@settings(max_examples=4 * settings().max_examples)  # of which a sixth know their elements
@given(pipe=pipelines(), way=st.sampled_from(WAYS))
def test_what_is_known_of_elements_is_true_of_each(pipe: Pipeline, way: Callable[..., list[Any]]) -> None:
    ds = pipe.build()
    spec = ds.plan.signature
    for element in [] if spec is None else way(ds):
        assert isinstance(element, Failed) or spec_of(conform(element, spec)) == spec_of(element)


@given(pipe=pipelines())
def test_every_plan_can_be_explained(pipe: Pipeline) -> None:
    ds = pipe.build()
    assert isinstance(ds.explain(), str)
    assert repr(ds)


@given(pipe=pipelines(), way=st.sampled_from(WAYS), count=st.integers(0, 20))
def test_leaving_early_leaves_nothing(pipe: Pipeline, way: Callable[..., list[Any]], count: int) -> None:
    with leaves_nothing():
        elements = way(pipe.build(), count)
    if pipe.ordered:
        assert pipe.comparable(elements) == pipe.elements()[:count]


@QUARTER
@given(pipe=pipelines(), count=st.integers(0, 20))
def test_breaking_off_leaves_nothing(pipe: Pipeline, count: int) -> None:
    """No `close`, no context manager: the loop is left by `break`, or by the failure of an element."""
    with leaves_nothing():
        try:
            for place, _ in enumerate(pipe.build()):
                if place == count:
                    break
        except Exception:
            pass


@given(pipe=pipelines(), count=st.integers(0, 20))
def test_pipelines_side_by_side_do_not_disturb_each_other(pipe: Pipeline, count: int) -> None:
    async def several() -> list[list[Any]]:
        runs = [collect(pipe.build()), collect(pipe.build(), count), collect(pipe.build())]
        return list(await asyncio.gather(*runs))

    with leaves_nothing():
        first, part, last = asyncio.run(several())
    check(pipe, first)
    check(pipe, last)
    assert len(part) == min(count, len(first))
