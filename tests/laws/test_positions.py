"""What tickets tell of a position depends on the element alone: not on what was asked before, nor on its block."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.runtime.block import Block
from tests.laws.pipelines import ALL_STEPS, ORDERED_STEPS, Pipeline, Step, chains, sources
from tests.laws.test_resume import Leg, run
from tests.reference import failed
from tests.running import MOST
from tests.states import edited

TO_THE_END: Leg = (MOST, False, "thread", ad.Options())
FEW = 60
"""So many elements are read: a position may tell all that a pipeline holds."""


def read_in_blocks(ds: ad.Dataset[Any]) -> tuple[list[Any], list[Block], Any]:
    """Some elements, the blocks that they came in, and the state after them."""
    found, blocks = list[Any](), list[Block]()
    with ds.iterate() as elements:
        while len(found) < FEW:
            try:
                found.append(next(elements))
            except StopIteration:
                break
            except Exception as error:
                found.append(failed(error))
            block = elements._reader.held.piece  # noqa: SLF001
            if block is not None and (not blocks or block is not blocks[-1]):
                blocks.append(block)
        return found, blocks, elements.state_dict()


@st.composite
def ending_with(draw: st.DrawFn, step: Step) -> Pipeline:
    """A short pipeline that ends with a step of one kind."""
    return step(draw, draw(chains(sources(), ORDERED_STEPS, 1).filter(lambda pipe: pipe.ordered)))


@pytest.mark.parametrize("step", dict.fromkeys(ALL_STEPS), ids=lambda step: step.__name__)
@settings(max_examples=settings().max_examples // 6)
@given(data=st.data())
def test_positions_depend_on_the_element_alone(step: Step, data: st.DataObject) -> None:
    """They are the same whenever they are asked for. That before a block leads to it, also where none of it was given.

    No state of a running pipeline tells the position before a block.
    """
    pipe = data.draw(ending_with(step))
    found, blocks, state = read_in_blocks(pipe.build())
    places = [(block.tickets, count) for block in blocks for count in range(len(block) + 1)][:FEW]
    told = [json.dumps(tickets.at(count)) for tickets, count in places]
    assert [json.dumps(tickets.at(count)) for tickets, count in reversed(places)] == told[::-1]
    for tickets in chain.from_iterable([block.tickets, block.tickets.slice(1, len(block))] for block in blocks):
        if len(tickets) and isinstance(first := tickets[0], int) and tickets.run_from(first):
            assert [*tickets] == [*range(first, first + len(tickets))]
    for number, block in enumerate(blocks[:3]):
        before = sum(map(len, blocks[:number]))
        position = json.loads(json.dumps(block.tickets.at(0)))
        rest, _ = run(pipe.build(), TO_THE_END, edited(state, position=position, delivered=before))
        assert pipe.comparable(found[:before] + rest) == pipe.elements()
