"""Tickets: every element that is delivered says where it comes from, through every transformation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.engines.pipeline import Pipeline
from asyncdata.planning.optimizer import optimize
from asyncdata.runtime.memory_budget import MemoryBudget
from asyncdata.runtime.meter import Meters
from asyncdata.runtime.queue import BufferSize, LoopQueue, LoopSignal
from asyncdata.runtime.source_state import RestorableItem, SourceSnapshot
from asyncdata.runtime.tickets import (
    FRESH,
    ExplicitTickets,
    FilteredTickets,
    JoinedTickets,
    Ordinals,
    Start,
    Tickets,
    replaying,
)
from asyncdata.transforms.ignore_errors import SurvivorTickets
from asyncdata.transforms.shard import ShardCount, ShardTickets


async def delivered(ds: ad.Dataset[Any], optimized: bool) -> list[tuple[Any, Any]]:
    loop = asyncio.get_running_loop()
    queue = LoopQueue(BufferSize(64), LoopSignal(loop), reader := LoopSignal(loop))
    plan = optimize(ds.plan, ad.Options(optimize=optimized, disabled_rules=("inject_prefetch",))).plan
    running = asyncio.ensure_future(Pipeline(plan, queue, (0,), None, FRESH, MemoryBudget(), Meters()).run())
    found: list[tuple[Any, Any]] = []
    while True:
        await reader.until(queue.may_read)
        block = queue.take()
        if block is None:
            break
        assert len(block.items) == len(block.tickets)
        found.extend(zip(block.items, block.tickets))
    await running
    assert queue.error is None
    return found


def members(ticket: Any) -> list[Any]:
    """Return the tickets of the elements that a batch was made of."""
    if isinstance(ticket, Tickets):
        return [one for part in ticket for one in members(part)]
    return [ticket]


STEPS: list[Callable[[ad.Dataset[Any]], ad.Dataset[Any]]] = [
    lambda ds: ds.map(lambda x: x),
    lambda ds: ds.map(lambda x: x, num_parallel_calls=3),
    lambda ds: ds.map(lambda x: x, num_parallel_calls=3, deterministic=False),
    lambda ds: ds.filter(lambda x: hash(str(x)) % 3 > 0),
    lambda ds: ds.shuffle(5, seed=3),
    lambda ds: ds.take(17),
    lambda ds: ds.skip(3),
    lambda ds: ds.shard(2, 1),
    lambda ds: ds.prefetch(4),
]


@given(st.lists(st.sampled_from(STEPS), max_size=5), st.booleans(), st.integers(0, 40))
def test_an_element_of_a_range_keeps_its_ordinal(steps: list[Any], optimized: bool, size: int) -> None:
    ds: ad.Dataset[Any] = ad.Dataset.range(size)
    for step in steps:
        ds = step(ds)
    assert all(item == ticket for item, ticket in asyncio.run(delivered(ds, optimized)))
    batches = asyncio.run(delivered(ds.batch(4), optimized))
    assert all(item.tolist() == members(ticket) for item, ticket in batches)


@pytest.mark.parametrize("parallel", [None, 2])
async def test_elements_of_inner_datasets_name_their_parent(parallel: int | None) -> None:
    ds = ad.Dataset.range(3).interleave(lambda x: ad.Dataset.range(10 * x, 10 * x + x), 2, num_parallel_calls=parallel)
    assert all(item == 10 * parent + child for item, (parent, child) in await delivered(ds, True))


async def test_elements_name_their_repetition_and_their_dataset() -> None:
    repeated = await delivered(ad.Dataset.range(2).repeat(2), True)
    assert repeated == [(0, (0, 0)), (1, (0, 1)), (0, (1, 0)), (1, (1, 1))]
    assert await delivered(ad.Dataset.range(2).shuffle(2, seed=0).repeat(2), True) == await delivered(
        ad.Dataset.range(2).shuffle(2, seed=0).repeat(2), False
    )
    joined = await delivered(ad.Dataset.range(1).concatenate(ad.Dataset.range(5, 6)), True)
    assert joined == [(0, (0, 0)), (5, (1, 0))]


def test_consecutive_elements_from_one_state_of_a_source_are_one_part_of_a_position() -> None:
    states = [SourceSnapshot(base, json.dumps({"at": name})) for base, name in [(0, "a"), (0, "b"), (4, "a"), (4, "b")]]
    tickets = [RestorableItem.at(number, state) for state in states for number in (4, 5, 7)]
    tickets += [RestorableItem.at(6, states[0]), RestorableItem.at(7, states[0]), 8, 9]
    position = replaying(12, [ExplicitTickets(tickets, lambda count: count)])
    start = Start.of(json.loads(json.dumps(position)))
    assert start.position == 12
    assert list(map(repr, start.back)) == list(map(repr, tickets))
    assert [ticket.snapshot for ticket in start.back[:-2]] == [ticket.snapshot for ticket in tickets[:-2]]
    counts = [part.get("count", 1) for part in position["back"] if isinstance(part, dict)]
    assert counts == [2, 1] * 4 + [2]


@pytest.mark.parametrize("places", [[0, 1, 2, 3], [0, 2, 3], [1, 2, 3], [0, 1, 2], [0]], ids=str)
def test_only_all_of_a_run_are_one(places: list[int]) -> None:
    """A position may tell many ordinals as the first and how many they are: not if some of them were left out."""
    whole, every = Ordinals(5, 9), len(places) == 4
    selected: list[Tickets] = [
        ShardTickets(whole, places, ShardCount()),
        SurvivorTickets(whole, places, (0, 0)),
        FilteredTickets(whole, places),
    ]
    for tickets in selected:
        assert [*tickets] == [5 + place for place in places]
        assert every or not tickets.run_from(5)
        assert Start.of(replaying(9, [tickets])).back == [*tickets]


def test_tickets_between_two_places_are_those_one_by_one() -> None:
    parts = [Ordinals(3, 5), ExplicitTickets([(0, 1), "a", 7], lambda count: count), Ordinals(9, 9), Ordinals(1, 4)]
    joined = JoinedTickets([*parts, JoinedTickets(parts).slice(1, 6)])
    tickets = [joined[place] for place in range(len(joined))]
    for start in range(len(joined) + 1):
        for stop in range(start, len(joined) + 1):
            assert [*joined.between(start, stop)] == tickets[start:stop]
            assert [*joined.slice(start, stop)] == tickets[start:stop]
