"""A damaged state is refused, or gives an iterator that works: never another error, and never none at all."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.errors import AsyncDataError
from asyncdata.iterator import ended_by
from tests.laws.pipelines import Pipeline, pipelines
from tests.laws.test_resume import run

WRONG = st.sampled_from(
    [None, True, "x", "", "end", -1, 0, 1, 2, 7, 300, 1.5, [], [0], ["x"], {}, {"from": 3}, [[], 1]]
)

MOST = 400
"""What a state says may be possible, and give more elements than the pipeline has."""


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in a JSON value: what holds it, and under which name."""
    for name in value if isinstance(value, dict) else range(len(value)):
        yield value, name
        if isinstance(value[name], (list, dict)):
            yield from places(value[name])


Damage = tuple[bool, int, str, Any]
"""Whether it is in the position, at which of all places in turn, of what kind, and what stands there then."""

DAMAGES = st.lists(
    st.tuples(
        st.sampled_from([True] * 4 + [False]),
        st.integers(0, 999),
        st.sampled_from(["change"] * 3 + ["leave out", "twice"]),
        WRONG,
    ),
    min_size=1,
    max_size=2,
)


def damaged(state: dict[str, Any], damages: list[Damage]) -> dict[str, Any]:
    """A state in which one or two things were changed, left out or put twice."""
    for in_position, place, how, wrong in damages:
        whole = {"position": state["position"]} if in_position and "position" in state else state
        found = [*places(whole)]
        holder, name = found[place % len(found)]
        if how == "twice" and isinstance(holder, list):
            holder.insert(name, holder[name])
        elif how == "leave out" and holder is not whole:
            del holder[name]
        else:
            holder[name] = copy.deepcopy(wrong)
        state |= whole
    return state


def read_on(pipe: Pipeline, state: Any) -> None:
    """Go on from a state: what ends the pipeline, if not its end, must be an error that we document."""
    try:
        elements = pipe.build().iterate(state=state)
    except ad.ResumeError:
        return
    with elements:
        for _ in range(MOST):
            try:
                next(elements)
            except StopIteration:
                return
            except Exception as error:
                if ended_by(elements, error):
                    if not isinstance(error, AsyncDataError):
                        raise
                    return


@given(pipe=pipelines(), count=st.integers(0, 20), damages=DAMAGES)
def test_a_damaged_state_is_refused_or_works(pipe: Pipeline, count: int, damages: list[Damage]) -> None:
    _, state = run(pipe.build(), (count, False, "thread", ad.Options()), None)
    read_on(pipe, damaged(json.loads(json.dumps(state)), damages))
