"""A pipeline in a process of its own gives the same, and goes on in the same places, as anywhere else."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.graph.node import nodes_of
from tests.laws.pipelines import Pipeline, pipelines
from tests.laws.test_resume import MOST, REWRITTEN, run
from tests.running import read_async, read_plain

BESIDE = ad.Options(placement="process")

FEW = settings(max_examples=max(4, settings().max_examples // 10))
"""Each example starts a process or several."""

sent = pipelines().filter(lambda pipe: not any(node.process_bound_reason for node in nodes_of(pipe.build().plan)))
"""Pipelines that may run in another process: none that belong to the consumer's loop."""


@FEW
@given(pipe=sent)
def test_running_gives_the_meaning(pipe: Pipeline) -> None:
    ds = pipe.build().with_options(BESIDE)
    for iteration, read in enumerate([read_plain, read_async]):
        assert pipe.comparable(read(ds)) == pipe.elements(iteration)


PLACEMENTS = st.sampled_from(["process", "process", "thread"])
LEGS = st.lists(
    st.tuples(st.integers(0, 25), st.booleans(), PLACEMENTS, st.sampled_from(REWRITTEN)), min_size=1, max_size=3
)


@FEW
@given(pipe=sent, legs=LEGS)
def test_going_on_is_as_if_nothing_had_happened(pipe: Pipeline, legs: list[Any]) -> None:
    found: list[Any] = []
    state = None
    for leg in [*legs, (MOST, False, "process", ad.Options())]:
        elements, state = run(pipe.build(), leg, state)
        state = json.loads(json.dumps(state))
        found += elements
        assert state["delivered"] == len(found)
    assert pipe.comparable(found) == pipe.elements()
