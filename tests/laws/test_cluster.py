"""A pipeline on a cluster gives the same, and goes on in the same places, as here, whatever the cluster loses."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from tests.cluster.fake import Faults, on_fake
from tests.laws.pipelines import Pipeline, pipelines
from tests.laws.test_resume import MOST, REWRITTEN, run
from tests.running import read_async, read_plain

HERE = ad.Options(placement="thread")
THERE = st.builds(lambda calls: ad.Options(placement="thread", cluster=ad.Cluster(calls=calls)), st.integers(1, 3))
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
    assert len(made) <= 1
