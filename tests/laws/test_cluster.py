"""A pipeline on a cluster gives the same, and goes on in the same places, as here, whatever the cluster loses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.cluster import chunk, remote_run, run_actor
from tests import reference
from tests.cluster.fake import Faults, on_fake
from tests.laws.pipelines import FIRST, INNER_STEPS, Pipeline, chains, inner_sources, length, map_, pipelines
from tests.laws.test_resume import MOST, REWRITTEN, run
from tests.running import read_async, read_plain

HERE = ad.Options(placement="thread")
CLUSTERS = st.builds(ad.Cluster, calls=st.integers(1, 3), runs=st.integers(0, 2))
THERE = st.builds(lambda cluster: ad.Options(placement="thread", cluster=cluster), CLUSTERS)
LOST = st.builds(Faults, results=st.sampled_from([0, 3]), nodes=st.sampled_from([0, 4]), actors=st.sampled_from([0, 4]))
SEEDS = st.integers(0, 1 << 16)


@given(pipe=pipelines(), there=THERE, lost=LOST, seed=SEEDS)
def test_running_gives_the_meaning(pipe: Pipeline, there: ad.Options, lost: Faults, seed: int) -> None:
    with on_fake(seed, lost):
        ds = pipe.build().with_options(there)
        for iteration, read in enumerate([read_plain, read_async]):
            assert pipe.comparable(read(ds)) == pipe.elements(iteration)


LEGS = st.lists(
    st.tuples(st.integers(0, 25), st.booleans(), st.one_of(st.just(HERE), THERE), st.sampled_from(REWRITTEN)),
    min_size=1,
    max_size=3,
)


@given(pipe=pipelines(), legs=LEGS, last=st.one_of(st.just(HERE), THERE), lost=LOST, seed=SEEDS)
def test_going_on_here_and_there_is_as_if_nothing_had_happened(
    pipe: Pipeline, legs: list[Any], last: ad.Options, lost: Faults, seed: int
) -> None:
    found: list[Any] = []
    state = None
    with on_fake(seed, lost):
        for most, is_async, where, rewritten in [*legs, (MOST, False, last, ad.Options())]:
            leg = most, is_async, "thread", rewritten
            elements, state = run(pipe.build().with_options(where), leg, state)
            state = json.loads(json.dumps(state))
            found += elements
            assert state["delivered"] == len(found)
    assert pipe.comparable(found) == pipe.elements()


@given(pipe=pipelines(), there=THERE, lost=LOST, seed=SEEDS, most=st.integers(0, 20))
def test_leaving_leaves_no_call_in_flight(
    pipe: Pipeline, there: ad.Options, lost: Faults, seed: int, most: int
) -> None:
    with on_fake(seed, lost) as made:
        ds = pipe.build().with_options(there)
        read_plain(ds, most)
        assert pipe.comparable(read_plain(ds)) == pipe.elements(1)  # on the same actors
    assert len(made) <= 2  # for calls and for runs


@st.composite
def merged(draw: st.DrawFn) -> Pipeline:
    """An interleave or a flat_map of longer datasets."""
    inner = draw(chains(inner_sources(), INNER_STEPS, 5).filter(lambda pipe: pipe.ordered and 0 < length(pipe) <= 60))
    count, cycle, block = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    ordered, in_turn = draw(st.sampled_from([True, True, False])), draw(st.booleans())

    def build() -> ad.Dataset:
        datasets = ad.Dataset.range(count)
        if in_turn:
            return datasets.flat_map(lambda _: inner.build())
        return datasets.interleave(
            lambda _: inner.build(), cycle, block, num_parallel_calls=cycle, deterministic=ordered
        )

    def meaning(_: Any) -> list[Any]:
        if in_turn:
            return list(reference.flat_map(range(count), lambda _: inner.meaning(FIRST)))
        return list(reference.interleave(range(count), lambda _: inner.meaning(FIRST), cycle, block))

    more = draw(st.sampled_from([0, 0, 1, 2]))
    step = "flat_map(lambda _" if in_turn else f"interleave({cycle}, {block}, {ordered=}, lambda _"
    pipe = Pipeline(f"range({count}).{step}: {inner})", build, meaning, in_turn or ordered, inner.counted)
    for _ in range(more):  # maps that move into the datasets
        pipe = map_(draw, pipe)
    return pipe


@contextmanager
def chunks(most_bytes: int, few: int, heavy: int) -> Iterator[None]:
    """Have chunks of so many bytes; of up to so many elements each has its position, and of so many bytes not each."""
    with (
        mock.patch.object(remote_run, "CHUNK", most_bytes),
        mock.patch.object(remote_run, "LEAST", most_bytes),
        mock.patch.object(chunk, "FEW", few),
        mock.patch.object(run_actor, "HEAVY", heavy),
        mock.patch.object(run_actor, "SEVERAL", 3),
    ):
        yield


SIZES = st.builds(
    chunks, st.sampled_from([1, 100, 1000, 4 << 20]), st.sampled_from([0, 3, 16]), st.sampled_from([0, 4096])
)


@given(pipe=merged(), legs=LEGS, last=st.one_of(st.just(HERE), THERE), lost=LOST, seed=SEEDS, sizes=SIZES)
def test_datasets_that_run_elsewhere_go_on_wherever_they_were(
    pipe: Pipeline, legs: list[Any], last: ad.Options, lost: Faults, seed: int, sizes: Any
) -> None:
    with sizes:
        test_going_on_here_and_there_is_as_if_nothing_had_happened.hypothesis.inner_test(pipe, legs, last, lost, seed)
