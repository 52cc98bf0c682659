"""What several processes have left is dealt to another number of them: nothing is lost, nothing repeated."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from asyncdata.checkpoint import merge_states
from tests import reference
from tests.laws import functions, pipelines
from tests.laws.pipelines import ORDERED_STEPS, Pipeline, Step, chains, sources
from tests.laws.test_resume import Leg, run
from tests.running import MOST


@dataclass
class Process:
    """Which of how many processes builds a pipeline now."""

    count: int = 1
    index: int = 0


PROCESS = Process()


def share(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """All shares together are everything, in an order that nobody promises."""
    shared = pipe.then("shard(...)", lambda ds: ds.shard(PROCESS.count, PROCESS.index), pipe.meaning)
    return replace(shared, ordered=False)


def numbers_in_batches(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """Which elements come together in a batch is not promised; they come out as they went in."""
    size = draw(st.integers(1, 5))
    return pipe.then(
        f"map(number).batch({size}).unbatch()",
        lambda ds: ds.map(functions.number).batch(size).unbatch(),
        lambda epoch: reference.unbatch(reference.batch(reference.map_(pipe.meaning(epoch), functions.number), size)),
    )


DEALT_STEPS: tuple[Step, ...] = (
    *(pipelines.map_, pipelines.filter_, pipelines.prefetch, pipelines.unbatch, pipelines.shuffle, pipelines.repeat),
    *(numbers_in_batches, pipelines.flat_map, pipelines.interleave, pipelines.ignore_errors),
)
"""What may follow a shard, if the number of shards is to change."""


@st.composite
def shared_pipelines(draw: st.DrawFn) -> Pipeline:
    """A random pipeline that is shared out somewhere."""
    pipe = share(draw, draw(chains(sources(), (*ORDERED_STEPS, pipelines.repeat, pipelines.flat_map), 3)))
    for _ in range(draw(st.integers(0, 4))):
        if len(pipe.elements()) <= pipelines.MANY:
            pipe = draw(st.sampled_from(DEALT_STEPS))(draw, pipe)
    return pipe


def legs(most: int) -> st.SearchStrategy[Leg]:
    far = st.integers(0, most)
    return st.tuples(far, st.booleans(), st.sampled_from(["thread", "current"]), st.booleans())


@st.composite
def generations(draw: st.DrawFn) -> list[list[Leg]]:
    """How far each process of several generations goes; the processes of the last one go to the end."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=3))
    return [[draw(legs(12)) for _ in range(size)] for size in sizes[:-1]] + [[draw(legs(0)) for _ in range(sizes[-1])]]


def read_in_generations(pipe: Pipeline, generations: list[list[Leg]]) -> list[Any]:
    """Run a pipeline in as many processes as each generation has, merging their states after it."""
    found: list[Any] = []
    state: Any = None
    for number, legs in enumerate(generations):
        states: list[Any] = []
        PROCESS.count = len(legs)
        for PROCESS.index, leg in enumerate(legs):
            whole = (MOST, *leg[1:]) if number == len(generations) - 1 else leg
            elements, told = run(pipe.build(), whole, state)
            found += elements
            states.append(json.loads(json.dumps(told)))
        state = merge_states(states[::-1])
        assert state["delivered"] == len(found)
    return found


@settings(max_examples=max(500, settings().max_examples))
@given(pipe=shared_pipelines(), generations=generations())
def test_any_number_of_processes_goes_on_for_any_other(pipe: Pipeline, generations: list[list[Leg]]) -> None:
    assert pipe.comparable(read_in_generations(pipe, generations)) == pipe.elements()
