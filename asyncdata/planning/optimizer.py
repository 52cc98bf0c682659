"""The rewrite rules, in order, and the loop that applies them. A rule changes speed only, never results.

Reasons and measurements: docs/design.md, "Rewrites".
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from asyncdata.errors import PlanError, StageError
from asyncdata.executors.autotune import Tuning
from asyncdata.executors.function_call import Call
from asyncdata.graph.node import Node, OneForOne, Unary, nodes_of
from asyncdata.options import AUTOTUNE, Options
from asyncdata.sources.in_memory import Getter
from asyncdata.transforms.batch import Batch
from asyncdata.transforms.fields import Fields
from asyncdata.transforms.filter import Filter, Predicate
from asyncdata.transforms.function_node import Called
from asyncdata.transforms.map import Map
from asyncdata.transforms.map_batches import MapBatches
from asyncdata.transforms.prefetch import Prefetch
from asyncdata.transforms.prefetch_to_device import PrefetchToDevice
from asyncdata.transforms.repeat import Repeat
from asyncdata.transforms.skip import Skip
from asyncdata.transforms.take import Take

__all__ = ("RULES", "Planner", "Rewrite", "explained", "optimize")

Rule: TypeAlias = Callable[[Node], Node | None]
"""Returns the replacement for a node, or `None` if the rule does not apply."""

MOST_REWRITES: Final = 10_000

MARGIN: Final = 11
"""The columns of the words on the left of `Dataset.explain`."""


class Rewrite(NamedTuple):
    """What one rule did, for `Dataset.explain`."""

    rule: str
    before: Node
    after: Node


class Optimized(NamedTuple):
    """A plan that is ready to run, and how it came about."""

    plan: Node
    story: list[Rewrite]


def noop_elimination(node: Node) -> Node | None:
    """Remove steps that do nothing: take(-1), skip(0), repeat(1), prefetch(0)."""
    match node:
        case Take(input=source, count=-1):
            return source
        case Skip(input=source, count=0) | Repeat(input=source, count=1):
            return source
        case Prefetch(input=source, buffer_size=0):
            return source
        case _:
            return None


def map_fusion(node: Node) -> Node | None:
    """map(f).map(g) -> map(f → g): one pass instead of two, in the workers of the first only if the second is pure."""
    match node:
        case Map(input=Map() as first) if fusible(first, node):
            return dataclasses.replace(first, functions=first.functions + node.functions)
        case _:
            return None


def map_and_filter_fusion(node: Node) -> Node | None:
    """filter.map, map.filter and filter.filter in one pass, in the workers of the first if the second is pure."""
    match node:
        case Filter(input=Map() | Filter() as first) | Map(input=Filter() as first) if fusible(first, node):
            return in_one_pass(first, first.functions + node.functions)
        case _:
            return None


def in_one_pass(first: Map | Filter, functions: tuple[Call, ...]) -> Filter:
    """Return functions of maps and filters where those of the first are called."""
    how = {name: getattr(first, name) for name in ("workers", "ordered", "executor", "pure", "pinned")}
    return Filter(first.input, functions, **how)


def fusible(first: Map | Filter, second: Map | Filter) -> bool:
    """Return whether functions may be called in one pass: of a pass in which some are awaited, each element is one."""
    if second.workers is not None or awaited(first) != awaited(second) or vectorized(first) != vectorized(second):
        return False
    if first.workers is None:
        return (first.pure, first.pinned) == (second.pure, second.pinned)
    return (
        second.pure and not second.pinned and first.ordered is not False and may_join(first.executor, second.executor)
    )


def may_join(first: object, second: object) -> bool:
    """Return whether the workers of the first may call the function of the second: processes need one that can be
    sent."""
    if isinstance(first, Tuning) and first.processes:
        return isinstance(second, Tuning) and second.processes
    return first is None or isinstance(first, Tuning)


def awaited(node: Map | Filter) -> bool:
    return any(call.is_async for call in node.functions)


def vectorized(node: Map | Filter) -> bool:
    return isinstance(node, Map) and node.vectorized


def map_vectorisation(node: Node) -> Node | None:
    """map(f, vectorized=True).batch(n) -> f of each batch."""
    if type(node) is not Batch or not isinstance(node.input, Map) or not node.input.vectorized:
        return None
    from asyncdata.transforms.map_and_batch import MapAndBatch

    match node.input:
        case Map(vectorized=True, workers=None) as mapped:
            return MapAndBatch.of(mapped, node)
        case Map(vectorized=True, pure=True, workers=-1) as mapped:  # AUTOTUNE, likely by the rule before
            return MapAndBatch.of(dataclasses.replace(mapped, workers=None), node)
        case _:
            return None


def map_and_batch_fusion(node: Node) -> Node | None:
    """map(f, num_parallel_calls=k).batch(n): the workers of the map make the batches, which are not copied again."""
    match node:
        case Batch(input=Map(rows=None) as mapped) if (
            type(node) is Batch and mapped.workers is not None and not awaited(mapped)
        ):
            return dataclasses.replace(node, input=dataclasses.replace(mapped, rows=node.size))
        case _:
            return None


def map_parallelisation(node: Node) -> Node | None:
    """map(f, pure=True) -> map(f, executor=AUTOTUNE), for plain functions: cheap ones stay on the engine's thread."""
    match node:
        case Map(workers=None, pure=True, pinned=False) | Filter(workers=None, pure=True) if not awaited(node):
            return dataclasses.replace(node, workers=AUTOTUNE, ordered=True)  # as one call after the other gave them
        case _:
            return None


def shuffle_and_repeat_fusion(node: Node) -> Node | None:
    """shuffle.repeat -> one node that fills the next epoch's buffer while it drains the last one's."""
    return node.input.repeated_as_one(node.count) if isinstance(node, Repeat) and node.count != 1 else None


def take_pushdown(node: Node) -> Node | None:
    """Take before elementwise work, so that nothing is computed only to be dropped."""
    return swapped(node) if isinstance(node, Take) and node.input.elementwise else None


def skip_pushdown(node: Node) -> Node | None:
    """Skip before elementwise work, so that nothing is computed only to be dropped."""
    return swapped(node) if isinstance(node, Skip) and node.input.elementwise else None


def shard_pushdown(node: Node) -> Node | None:
    """Shard before elementwise work, so that no shard computes elements of another."""
    if node.share is None:
        return None
    from asyncdata.transforms.shard import Shard

    if isinstance(node, Shard) and node.input.elementwise and not node.pad_remainder:
        return swapped(node)
    return None


def swapped(node: Unary) -> Node:
    """Return a node and its input in each other's place."""
    return node.input.with_inputs(dataclasses.replace(node, input=node.input.inputs[0]))


def shuffle_lift(node: Node) -> Node | None:
    """Shuffle before elementwise work, so that the buffer holds inputs and not results.

    Not before a map that shrinks elements.
    """
    match node:
        case Unary(shuffles=True, input=OneForOne(elementwise=True) as work) if not (
            node.retains_elements and isinstance(work, Called) and work.calls[-1].shrinks
        ):
            return swapped(node)
        case _:
            return None


def filter_pushdown(node: Node) -> Node | None:
    """Filter before maps that do not change the fields it reads, so that no dropped element is computed
    (reorder=True)."""
    match node:
        case Filter(functions=(Predicate(reads=(_, *_)),), input=Prefetch()):
            return swapped(node)
        case Filter(functions=(Predicate(reads=(_, *_) as fields),), input=Called() as work) if (
            work.preserves_tickets and (work.pure or work.workers is not None)
        ):
            calls = work.calls
            place = earliest(calls, fields)
            if place == 0:
                return swapped(node)
            if place < len(calls) and isinstance(work, (Map, Filter)) and fusible(work, node):
                return in_one_pass(work, calls[:place] + node.functions + calls[place:])
            return None
        case _:
            return None


def earliest(calls: Sequence[Call], fields: Fields) -> int:
    """Return before which of some calls a filter may come that reads these fields: always a map, else after the last.

    So a filter only ever passes maps, which it never follows again.
    """
    place = len(calls)
    for number in reversed(range(len(calls))):
        if not calls[number].is_predicate:
            if not set(fields) <= set(calls[number].untouched):
                break
            place = number
    return place


def shrink_pushdown(node: Node) -> Node | None:
    """Call maps that shrink elements before a shuffle or prefetch, which then holds less (reorder=True)."""
    match node:
        case Map(input=Unary() as buffer) | MapBatches(input=Unary() as buffer) if (
            (isinstance(buffer, Prefetch) or (buffer.shuffles and buffer.retains_elements))
            and node.elementwise
            and all(call.shrinks for call in node.calls)
        ):
            return swapped(node)
        case _:
            return None


def inject_prefetch(node: Node) -> Node | None:
    """Read ahead at the end of the pipeline (applied to the last node only), and the next batch while one is split."""
    match node:
        case Prefetch():
            return None
        case PrefetchToDevice(input=source):
            ahead = inject_prefetch(source)
            return None if ahead is None else node.with_inputs(ahead)
        case Unary(splits_elements=True, input=source) if not isinstance(source, Prefetch):
            return Prefetch(node.with_inputs(Prefetch(source, 1)), AUTOTUNE)
        case _:
            return Prefetch(node, AUTOTUNE)


RULES: Final[tuple[Rule, ...]] = (
    noop_elimination,
    filter_pushdown,
    shrink_pushdown,
    map_fusion,
    map_and_filter_fusion,
    shuffle_and_repeat_fusion,
    take_pushdown,
    skip_pushdown,
    shard_pushdown,
    shuffle_lift,
    map_parallelisation,
    map_vectorisation,
    map_and_batch_fusion,
)
LAST_RULES: Final[tuple[Rule, ...]] = (inject_prefetch,)
REORDERING: Final[tuple[Rule, ...]] = (filter_pushdown, shrink_pushdown)
"""Rules that `Options(reorder=True)` switches on: with them other elements may fail."""


def check_rules(options: Options) -> None:
    """Raise `PlanError` if options name a rule that there is not."""
    known = [rule.__name__ for rule in RULES + LAST_RULES]
    for name in options.disabled_rules or ():
        if name not in known:
            raise PlanError(f"Options(disabled_rules=) has no rule {name!r}; rules are {', '.join(sorted(known))}")


def enabled(rules: Sequence[Rule], options: Options) -> list[Rule]:
    """Return the rules that `options` leave switched on."""
    disabled = options.disabled_rules or ()
    if options.optimize is False:
        return []
    asked = () if options.reorder else REORDERING
    return [rule for rule in rules if rule.__name__ not in disabled and rule not in asked]


def settle(node: Node, options: Options, numbered: bool = False) -> Node:
    """Fill in whether parallel stages keep the order if that is not given; all do before steps that divide shares and
    `cache`.

    Shares are those of different processes: only if all see the same order, each element is in exactly one of them. A
    cache also serves datasets with other options.
    """
    numbered = numbered or node.share is not None
    options = dataclasses.replace(options, deterministic=True) if node.stores_elements else options
    inputs = [settle(part, options, numbered) for part in node.inputs]
    if any(new is not old for new, old in zip(inputs, node.inputs, strict=True)):
        node = node.with_inputs(*inputs)
    return node.settled(options, numbered)


def with_copies(node: Node, retained: bool = False) -> Node:
    """Copy results of processes before a step that holds them for long; a batch is a copy already.

    A batch of `rebatch` is copied there too: elsewhere it may be a part of a larger batch.
    """
    if retained and isinstance(node, Batch) and (rows := node.input).splits_elements:
        node = node.with_inputs(dataclasses.replace(rows, alone=False))
    copies = isinstance(node, Batch) and node.copies and not (isinstance(node.input, Called) and node.input.rows)
    within = (retained or node.retains_elements) and not copies
    inputs = [with_copies(part, within) for part in node.inputs]
    if any(new is not old for new, old in zip(inputs, node.inputs, strict=True)):
        node = node.with_inputs(*inputs)
    return dataclasses.replace(node, copied=True) if retained and isinstance(node, Called) else node


def optimize(plan: Node, options: Options) -> Optimized:
    """Apply the rules bottom-up until none applies, then those for the last node; return what each did."""
    story: list[Rewrite] = []
    try:
        plan = with_copies(rewritten(settle(plan, options), enabled(RULES, options), story))
    except RecursionError:
        count = sum(1 for _ in nodes_of(plan))
        raise PlanError(
            f"the plan has {count} steps, too many in a row: call several functions in one map, or several predicates "
            "in one filter, or raise sys.setrecursionlimit"
        ) from None
    if options.cluster is not None:
        from asyncdata.planning.cluster_placement import calls_on_cluster

        plan = calls_on_cluster(plan, options)
    return Optimized(apply_first(enabled(LAST_RULES, options), plan, story) or plan, story)


class Planner:
    """Computes how a plan runs, once for all epochs."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.last: tuple[Node, Node] | None = None
        self.by_hand: dict[bool, tuple[Node, Node | None]] = {}
        self.ran: Callable[[], Any] | None = None
        """Returns the statistics of the last iteration, if there was one in this process."""

    def runs(self, plan: Node) -> Node:
        """Return the plan that runs instead of a plan."""
        last = self.last
        if last is None or last[0] is not plan:
            self.last = last = (plan, optimize(plan, self.options).plan)
        return last[1]

    def runs_by_hand(self, plan: Node, *, alone: bool = False) -> Node | None:
        """Return the plan to run without an event loop; `None` if it may wait, or options set the placement.

        If elements are read `alone`, threads that only serve to work on several at once are not used.
        """
        last = self.by_hand.get(alone)
        if last is None or last[0] is not plan:
            here = self.options.placement in (None, "current")
            last = self.by_hand[alone] = (plan, unwaiting(self.runs(plan), alone) if here else None)
        return last[1]


def unwaiting(plan: Node, alone: bool) -> Node | None:
    """Return a plan in the form that runs without an event loop, `None` if a step of it may wait."""
    plan = in_place(unbuffered(plan)) if alone else unbuffered(plan)
    return None if any(node.waits for node in nodes_of(plan)) else plan


def in_place(node: Node) -> Node:
    """Return a plan whose functions are called one after another, unless the user chose otherwise."""
    inputs = [in_place(part) for part in node.inputs]
    if any(map(operator.is_not, inputs, node.inputs)):
        node = node.with_inputs(*inputs)
    ours = isinstance(node, Called) and (
        isinstance(node.executor, Tuning) or any(isinstance(call, Getter) for call in node.calls)
    )
    return dataclasses.replace(node, workers=None, executor=None) if ours else node


def unbuffered(node: Node) -> Node:
    """Return a plan without steps that read ahead, which help only a reader that works meanwhile."""
    while isinstance(node, Prefetch):
        node = node.input
    inputs = [unbuffered(part) for part in node.inputs]
    return node.with_inputs(*inputs) if any(map(operator.is_not, inputs, node.inputs)) else node


def rewritten(node: Node, rules: Sequence[Rule], story: list[Rewrite]) -> Node:
    """Return a plan of which no rule makes anything better."""
    inputs = node.inputs if node.sealed else [rewritten(part, rules, story) for part in node.inputs]
    if any(new is not old for new, old in zip(inputs, node.inputs, strict=True)):
        node = node.with_inputs(*inputs)
    better = apply_first(rules, node, story)
    return node if better is None else rewritten(better, rules, story)


def apply_first(rules: Sequence[Rule], node: Node, story: list[Rewrite]) -> Node | None:
    for rule in rules:
        better = rule(node)
        if better is not None:
            story.append(Rewrite(rule.__name__, node, better))
            if len(story) > MOST_REWRITES:
                raise StageError(f"the rewrite rules reach no fixed point; the last one was {rule.__name__}")
            return better
    return None


def resumptions(plan: Node) -> list[str]:
    """Return what a plan repeats when it resumes, sources first; nothing if it continues at the element."""
    return [words for node in nodes_of(plan) if (words := node.resume_note) is not None]


def explained(plan: Node, options: Options) -> str:
    """Return the plan before and after the rewrites, and what each rewrite did."""
    from asyncdata.graph.plan_text import change_text, plan_text
    from asyncdata.planning.cluster_placement import placement_lines
    from asyncdata.planning.decoders import decoder_lines

    optimized = optimize(plan, options)
    lines = [
        f"plan       {plan_text(plan, MARGIN)}",
        f"runs as    {plan_text(optimized.plan, MARGIN)}",
        f"placement  {options.placement or 'thread'}",
        *placement_lines(optimized.plan, options),
        *decoder_lines(optimized.plan),
        "resume     " + ("\n" + MARGIN * " ").join(resumptions(plan) or ["exact"]),
        "rewrites" if optimized.story else "rewrites   none",
    ]
    for rule, before, after in optimized.story:
        lines.append(f"  {rule}  {change_text(before, after, len(rule) + 4)}")
    return "\n".join(lines)
