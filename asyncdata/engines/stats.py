"""Statistics from the meters of a running pipeline, step by step, with AUTOTUNE's choices."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from asyncdata.executors.autotune import Tuning
from asyncdata.executors.interleave_tuner import InterleaveTuner
from asyncdata.graph.node import Node, nodes_of
from asyncdata.graph.stages import Merge
from asyncdata.options import AUTOTUNE
from asyncdata.runtime.memory_budget import MemoryBudget
from asyncdata.runtime.meter import Meter, Meters, seconds_of_bin
from asyncdata.statistics.statistics import EMPTY, EngineStatistics, FunctionStatistics, StepStatistics
from asyncdata.transforms.function_node import Called
from asyncdata.transforms.interleave import Interleave
from asyncdata.transforms.prefetch import Prefetch

__all__ = ("stats_of",)


def stats_of(plan: Node, meters: Meters, budget: MemoryBudget) -> EngineStatistics:
    """Return the statistics of the steps of a plan so far."""
    nodes = [*dict.fromkeys(nodes_of(plan))]
    places = {node: place for place, node in enumerate(nodes)}
    counters = [meters.steps.get(node, meters.output) for node in nodes]
    steps: list[StepStatistics] = []
    for node, meter in zip(nodes, counters, strict=True):
        inputs = tuple([places[inner] for inner in node.inputs])
        waited = sum([steps[place].output_seconds for place in inputs])
        before = sum([counters[place].failed for place in inputs])
        step = buffer_step(meter, waited) if meter is meters.output else own_step(meter, waited, before)
        tuned = chosen(node, budget)
        kind, where = kind_of(node), tuned.get("where") or (node.where if isinstance(node, Called) else "")
        step = step._replace(step=node.label(), inputs=inputs, tuned=tuned, kind=kind, where=where)
        if inputs and step.items:
            step = step._replace(batched=node.batched(steps[inputs[0]].items / step.items))
        steps.append(with_inner(step, node, meter, steps[inputs[0]].items) if kind == "merge" and inputs else step)
    clock = meters.clock
    return EngineStatistics(
        tuple(steps),
        clock.seconds,
        budget.held,
        budget.total,
        clock.thread_seconds,
        clock.queued_seconds,
        clock.process_seconds,
        clock.idle_cores,
    )


def kind_of(node: Node) -> str:
    """Return the kind of a step, for `StepStatistics.kind`."""
    if not node.inputs:
        return "source"
    if isinstance(node, Called):
        return "function"
    if isinstance(node, Prefetch):
        return "buffer"
    return "merge" if isinstance(node.stage(), Merge) else "step"


def with_inner(step: StepStatistics, node: Node, meter: Meter, made: int) -> StepStatistics:
    """Return the statistics of a step that has made so many datasets, with what is known of functions inside them."""
    inside = meter.within
    tuners: list[Tuning] = [calls.tuning for calls in inside.shared.values()]
    functions = inside.functions | {tuner.choice.where: inside.functions.get("thread", "") for tuner in tuners}
    parallel = [where for where in functions if where != "inline"]
    if inside.worked > inside.own and parallel:
        where = parallel[-1]
    elif "inline" in functions and 2 * inside.own > step.own_seconds:
        where = "inline"
    else:
        return step
    opened = min(node.cycle_length, max(1, made)) if isinstance(node, Interleave) else 1
    each = 1 if where == "process" or tuners else opened  # all of them have the same processes, or AUTOTUNE's threads
    tuned = step.tuned | ({"inner": tuners[-1].described} if tuners else {})
    workers = each * inside.workers
    return step._replace(where=where, inner=functions[where], open_datasets=opened, workers=workers, tuned=tuned)


def own_step(meter: Meter, waited: float, before: int) -> StepStatistics:
    """Return the statistics of a step, given its waiting time and the failed elements of its input."""
    queue = meter.queue() or meter.within.queue()
    own, worked = meter.own + meter.within.own, meter.worked + meter.within.worked
    return EMPTY._replace(
        items=meter.items,
        failed=max(0, meter.failed - before),
        retries=len(meter.retried),
        excluded=meter.excluded + meter.within.excluded,
        dropped=meter.dropped or meter.within.dropped,
        bytes=int(meter.each * meter.items),
        read_bytes=meter.read + meter.within.read,
        own_seconds=own,
        worker_seconds=worked,
        workers=max(meter.workers, meter.within.workers),
        input_seconds=waited,
        room_seconds=meter.full + meter.within.full,
        output_seconds=own + worked + waited if meter.pulled is None else meter.pulled,
        queued=held_of(meter),
        queue_size=None if queue is None else queue.depth.items,
        cpu_seconds=meter.computed + meter.within.computed,
        p50=percentile(meter.costs, 0.5),
        p99=percentile(meter.costs, 0.99),
        functions=functions_of(meter, own + worked),
        sources=given_by(meter.within),
    )


def given_by(meter: Meter) -> dict[str, dict[str, float]]:
    """Return what each dataset of a mixture has given in this epoch; nothing for other steps."""
    names, given, cost, repeated = meter.sources
    found: dict[str, dict[str, float]] = {name: {"elements": count} for name, count in zip(names, given, strict=True)}
    for one, total in zip(found.values(), cost, strict=False):
        one["cost"] = total
    for number, turn in repeated.items():
        if (epoch := turn()) is not None:
            found[names[number]]["epoch"] = epoch
    return found


def functions_of(meter: Meter, total: float) -> tuple[FunctionStatistics, ...]:
    """Return how many of a step's seconds each of its functions took, if it calls several in one pass."""
    found = sorted([*meter.function_seconds.copy().items(), *meter.within.function_seconds.copy().items()])
    measured = sum([seconds for _, seconds in found])
    return tuple([FunctionStatistics(key.name, seconds / measured * total) for key, seconds in found if measured])


def held_of(meter: Meter) -> int | None:
    """Return how many elements are in a step's buffer or in flight; `None` if it has neither."""
    held = [at.held for one in (meter, meter.within) for at in (one.queue(), one.window()) if at is not None]
    return sum(held) if held else None


def buffer_step(meter: Meter, waited: float) -> StepStatistics:
    """Return the statistics of the consumer's buffer."""
    queue = meter.queue()
    if queue is None:
        return EMPTY
    return EMPTY._replace(
        items=queue.written,
        input_seconds=waited,
        room_seconds=meter.full,
        queued=queue.held,
        queue_size=queue.depth.items,
    )


def percentile(counts: list[int], part: float) -> float | None:
    """Return the seconds that such a part of the blocks took at most; `None` if there are none."""
    total = sum(counts)
    if not total:
        return None
    order = sorted(range(len(counts)), key=seconds_of_bin)
    reached = accumulate([counts[place] for place in order])
    return seconds_of_bin(next(place for place, count in zip(order, reached, strict=True) if count >= part * total))


def chosen(node: Node, budget: MemoryBudget) -> dict[str, Any]:
    """Return AUTOTUNE's choice for a step; nothing if it is not tuned."""
    if isinstance(node, Called) and isinstance(node.executor, Tuning):
        return node.executor.described
    if isinstance(node, Interleave) and isinstance(node.tuner, InterleaveTuner):
        return node.tuner.choice._asdict() | {"buffer": node.tuner.buffer}
    if isinstance(node, Prefetch) and node.buffer_size == AUTOTUNE and node in budget.buffers:
        return budget.buffers[node]()
    return {}
