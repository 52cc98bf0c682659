"""Checks of one step by itself: what its node declares, how its tickets grow, and its label."""

from __future__ import annotations

import gc
import json
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import islice
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, ClassVar, Final

from asyncdata.dataset import Dataset
from asyncdata.elements.structure import conform, spec_of
from asyncdata.engines.no_loop import driven
from asyncdata.executors.scope import LooplessScope, Scope
from asyncdata.graph.node import Node, OneForOne, StateFree, Unary, nodes_of
from asyncdata.graph.stages import CallStep, Opener, Step
from asyncdata.options import UNKNOWN_CARDINALITY
from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.tickets import FRESH, Position, Start, Tickets

__all__ = (
    "check_elements",
    "check_held",
    "check_label",
    "check_length",
    "check_tickets",
    "plain_json",
    "runs_by_hand",
    "single_blocks",
)

READ: Final = (1000, 2000)
"""After how many single elements `check_tickets` looks at what their tickets reach."""

FURTHER: Final = 100
"""So many elements are read after a place to see what a step reads again: it may never end."""

NOT_FOLLOWED: Final = (type, ModuleType, FrameType, CodeType, Node, Step, CallStep)
"""What tickets may refer to and is not theirs: what a step remembers is its own."""


def check_length(ds: Dataset[Any], count: int) -> None:
    """Raise `AssertionError` if the plan names another number of elements than come."""
    known = ds.cardinality()
    assert known in (count, UNKNOWN_CARDINALITY), (
        f"{ds.plan.label()}: its cardinality is {known}, but {count} elements come; see `cardinality` of its node"
    )


def check_elements(ds: Dataset[Any], elements: Sequence[Any]) -> None:
    """Raise `AssertionError` if the plan declares another structure, shape or dtype than an element has."""
    spec = ds.plan.signature
    if spec is None:
        return
    for element in elements:
        try:
            wrong = spec_of(conform(element, spec)) != spec_of(element)
        except (ValueError, TypeError) as error:  # PlanError and StructureError are such
            raise AssertionError(f"{ds.plan.label()}: {error}; its signature is {spec}") from error
        assert not wrong, (
            f"{ds.plan.label()}: its signature is {spec}, but {element!r:.200} is {spec_of(element)}; see `signature` "
            "of its node"
        )


def check_label(node: Node, names: Iterable[str]) -> None:
    """Raise `AssertionError` unless the label begins with one of these names."""
    label = node.label()
    assert label.partition("(")[0] in names, (
        f"the label of {type(node).__name__} is {label!r}, and should begin with the method's name: "
        f"{' or '.join(sorted(names))}"
    )


# runs without an event loop, which cost little


def runs_by_hand(plan: Node) -> bool:
    """Return whether nothing in a plan waits, so that it runs without an event loop."""
    return plan.in_order and not any(node.waits for node in nodes_of(plan))


def single_blocks(plan: Node, position: Position = None) -> Iterator[Block]:
    """Yield the elements of a plan that never waits, from a position on, each in a block of its own."""
    source = plan.open(LooplessScope((0,)), Demand(1), FRESH if position is None else Start.of(position))
    try:
        while (block := driven(anext(source, None), lambda: None)) is not None:
            yield block
    finally:
        driven(source.aclose(), lambda: None)


def plain_json(position: Position) -> Position:
    """Return a position as it is read back from a file."""
    return json.loads(json.dumps(position))


# what a step holds


@dataclass(frozen=True)
class Counting:
    """1→1: counts elements, those that are read again among them."""

    counter: list[int]
    counts: ClassVar[bool] = False

    @property
    def waits(self) -> bool:
        return False

    def open(self, scope: Scope, inputs: Sequence[Opener], want: Demand, start: Start) -> Blocks:
        return self.run(inputs[0](scope, want, start))

    async def run(self, source: Blocks) -> AsyncGenerator[Block, None]:
        async with aclosing(source):
            async for block in source:
                self.counter.append(len(block))
                yield block


@dataclass(frozen=True, eq=False)
class Counted(StateFree, OneForOne):
    """The same elements, counted; no part of a state."""

    counter: list[int] = field(default_factory=list[int])

    def stage(self) -> Counting:
        return Counting(self.counter)


def check_held(node: Unary, place: int) -> None:
    """Raise `AssertionError` if a step holds more elements after `place` of its own than `holds` says.

    What it holds is what it reads again when it resumes there. Only steps that never wait are checked, as others may
    run ahead, and none with a `resume_note`, as these read more again.
    """
    if not runs_by_hand(node) or node.resume_note is not None:
        return
    whole, resumed = Counted(node.input), Counted(node.input)
    read, position = 0, None
    for number, block in enumerate(islice(single_blocks(node.with_inputs(whole)), place + FURTHER), 1):
        if number == place:
            read, position = sum(whole.counter), plain_json(block.tickets.at(1))
    for _ in islice(single_blocks(node.with_inputs(resumed), position), FURTHER + (0 if read else place)):
        pass
    held = sum(resumed.counter) - (sum(whole.counter) - read)
    assert held <= node.holds, (
        f"{node.label()}: after {place} elements it holds {held} of its input, which it reads again when it resumes "
        f"there, but its node says that it holds {node.holds} at most; see `holds`"
    )


# what tickets reach


def check_tickets(plan: Node, after: tuple[int, int] = READ) -> None:
    """Raise `AssertionError` if the tickets of a late element reach many more objects than those of an early one.

    So they do if each block's tickets refer to those of the block before. A plan with fewer elements is not checked.
    """
    first, last = after
    found = [
        reached(block.tickets) for number, block in enumerate(islice(single_blocks(plan), last), 1) if number in after
    ]
    if len(found) < len(after):
        return
    early, late = found
    assert late - early < (last - first) // 2, (
        f"{plan.label()}: after {first} elements a block's tickets reach {early} objects, and {late} after {last}: do "
        "they refer to the tickets of the block before? Hold parts of the newest block only"
    )


def reached(tickets: Tickets) -> int:
    """Return how many objects tickets reach, also through functions."""
    seen, waiting, count = {id(tickets)}, list[Any]([tickets]), 0
    while waiting:
        one = waiting.pop()
        if isinstance(one, NOT_FOLLOWED):
            continue
        count += 1
        inner = [one.__closure__, one.__defaults__] if isinstance(one, FunctionType) else gc.get_referents(one)
        for part in inner:
            if gc.is_tracked(part) and id(part) not in seen:
                seen.add(id(part))
                waiting.append(part)
    return count
