"""What an element costs does not depend on how many keys are open, counted in instructions of the interpreter."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.runtime.block import Block
from asyncdata.runtime.tickets import Ordinals
from asyncdata.transforms import group_by_reducer, group_by_window

FEW, MANY = 250, 2000
SIZE = 8
"""How many elements come in one block."""


class Instructions:
    """How many instructions the code of a module has run."""

    def __init__(self, module: Any) -> None:
        self.path = module.__file__
        self.count = 0

    def trace(self, frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != self.path:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        self.count += event == "opcode"
        return self.trace


@contextmanager
def counted(module: Any) -> Iterator[Instructions]:
    before, found = sys.gettrace(), Instructions(module)
    sys.settrace(found.trace)
    try:
        yield found
    finally:
        sys.settrace(before)


def blocks(keys: int) -> Iterator[Block]:
    """Pairs of keys and elements: each key once, and then each once more."""
    order = [*range(keys)] * 2
    for start in range(0, len(order), SIZE):
        pairs = [(key, key) for key in order[start : start + SIZE]]
        yield Block(pairs, Ordinals(start, start + len(pairs)))


def windows(ds: ad.Dataset[int], keys: int) -> Any:
    return ds.group_by_window(int, lambda key, window: window, 2).plan.inputs[0]


def windows_of_many_sizes(ds: ad.Dataset[int], keys: int) -> Any:
    reduced = ds.group_by_window(int, lambda key, window: window, window_size_func=lambda key: 2 + key % 2)
    return reduced.plan.inputs[0]


def buckets(ds: ad.Dataset[int], keys: int) -> Any:
    return ds.bucket_by_sequence_length(int, range(1, keys), [2] * keys).plan


def instructions_of_groups(make: Callable[..., Any], keys: int) -> int:
    """Count what an element costs while all keys are opened, some are closed, and the others given at the end."""
    step = group_by_window.Grouper(make(ad.Dataset.range(1), keys))
    with counted(group_by_window) as found:
        for block in blocks(keys):
            step.feed(block)
        assert len([*step.flush()]) == len(step.groups)
    return found.count // (2 * keys)


@pytest.mark.parametrize("make", [windows, windows_of_many_sizes, buckets])
def test_an_element_of_a_group_costs_the_same_with_more_open_keys(make: Callable[..., Any]) -> None:
    instructions_of_groups(make, FEW)  # Python 3.12.1 counts none at first
    few, many = (instructions_of_groups(make, keys) for keys in (FEW, MANY))
    assert 0 < many < 1.2 * few


def instructions_of_reducer(keys: int) -> int:
    calls = group_by_reducer.Calls.of(ad.Reducer(lambda key: 0, lambda state, x: state + x, lambda state: state))

    async def run() -> None:
        step = group_by_reducer.ReducerStep(calls, ad.Dataset.range(1).plan)
        for block in blocks(keys):
            await step.feed(block)
        assert [block.items async for block in step.flush()] == [[2 * key] for key in range(keys)]

    with counted(group_by_reducer) as found:
        asyncio.run(run())
    return found.count // (2 * keys)


def test_an_element_of_a_reducer_costs_the_same_with_more_open_keys() -> None:
    few, many = map(instructions_of_reducer, (FEW, MANY))
    assert 0 < many < 1.2 * few


def test_how_many_elements_are_asked_for_is_what_fills_a_group_at_the_earliest() -> None:
    ds = ad.Dataset.range(1).bucket_by_sequence_length(int, [1, 2], [3, 5, 4])
    step, asked = group_by_window.Grouper(ds.plan), []
    for key in [2, 2, 2, 1, 1, 1, 1, 2, 0, 1, 0, 0]:
        step.feed(Block([(key, key)], Ordinals(0, 1)))
        asked.append(step.need(1))
    assert asked == [3, 2, 1, 1, 1, 1, 1, 1, 1, 2, 1, 3]
    huge = ad.Dataset.range(1).group_by_window(int, lambda key, window: window, 1 << 60).plan.inputs[0]
    assert group_by_window.Grouper(huge).need(1) == group_by_window.AT_ONCE


def test_states_in_and_behind_a_journal_are_those_of_open_groups() -> None:
    """Elements of 150 keys, so that several journals are begun, and each state tells which elements are held."""
    keys = [x * x % 151 % 150 for x in range(400)]
    ds = ad.Dataset.range(400).group_by_window(lambda x: keys[x], lambda key, window: window.batch(3), 3)
    whole = [x.tolist() for x in ds]
    with ds.iterate() as elements:
        for number in range(len(whole) + 1):
            if number % 8 == 0:
                with ds.iterate(state=elements.state_dict()) as rest:
                    assert [x.tolist() for x in rest] == whole[number:]
            next(elements, None)
    assert len(whole) > 100
