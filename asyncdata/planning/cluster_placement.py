"""Which steps of a plan go to a cluster, and why the others stay."""

from __future__ import annotations

import dataclasses
import operator
from concurrent.futures import Executor
from typing import Final

from asyncdata.cluster.handle import ActorPoolHandle, ActorsBeforeCopy, actors_of, runs_of, sent
from asyncdata.cluster.remote_plan import RunPlacement
from asyncdata.errors import PlanError
from asyncdata.executors.group_work import GroupWork
from asyncdata.executors.workers import RemoteExecutor
from asyncdata.graph.node import Node, nodes_of
from asyncdata.options import Options
from asyncdata.sources.in_memory import Getter
from asyncdata.transforms.batch import Batch
from asyncdata.transforms.filter import Filter
from asyncdata.transforms.flat_map import FlatMap
from asyncdata.transforms.function_node import Called, travels
from asyncdata.transforms.interleave import Interleave
from asyncdata.transforms.map import Map
from asyncdata.transforms.padded_batch import PaddedBatch

__all__ = ("calls_on_cluster", "placement_lines")

COPYING: Final = (Batch, PaddedBatch)
"""Steps that copy each array of an element into one of their own."""


def calls_on_cluster(plan: Node, options: Options) -> Node:
    """Return a plan whose parallel calls are made on the cluster of the options; `PlanError` if they cannot travel."""
    cluster = options.cluster
    if cluster is None:
        return plan
    if options.placement == "process":
        raise PlanError(
            "Options(placement='process') and cluster= cannot be combined: the connection to Ray is in this "
            "process; leave placement out"
        )
    actors = actors_of(cluster) if cluster.calls else None
    runs = RunPlacement(runs_of(cluster)) if cluster.runs else None
    return placed(plan, actors, runs)


def placed(node: Node, actors: ActorPoolHandle | None, runs: RunPlacement | None) -> Node:
    """Return a plan with the actors as executor of the steps that may run there. Steps that must run as built stay."""
    inputs = node.inputs if node.sealed else [placed(part, actors, runs) for part in node.inputs]
    if type(node) in COPYING:
        inputs = [*map(before_copy, inputs)]
    if any(map(operator.is_not, inputs, node.inputs)):
        node = node.with_inputs(*inputs)
    if isinstance(node, Interleave) and node.workers is not None and runs is not None:
        return dataclasses.replace(node, elsewhere=runs, tuner=None)
    if isinstance(node, FlatMap) and node.travels and runs is not None:
        return dataclasses.replace(node, elsewhere=runs.in_turn())
    if isinstance(node, Map) and (opened := placement_below(node)) is not None:
        sendable(node)
        return dataclasses.replace(opened[0], elsewhere=opened[1].followed_by(node))
    if actors is None or not isinstance(node, Called) or reason_to_stay(node) is not None:
        return node
    sendable(node)
    if isinstance(node, Map):
        node = node.with_inputs(*map(before_copy, node.inputs))
    return dataclasses.replace(with_getter(node), executor=actors, workers=actors.cluster.calls)


def before_copy(node: Node) -> Node:
    """Return a node whose results the next step copies or sends on, so that they need not be copied before."""
    if isinstance(node, Called) and isinstance(node.executor, ActorPoolHandle) and node.rows is None:
        return dataclasses.replace(node, executor=ActorsBeforeCopy(node.executor))
    return node


def with_getter(node: Called) -> Called:
    """Return a map or filter that reads its own elements, if they come from `from_source` and the source can be
    sent."""
    below = node.inputs[0]
    if not isinstance(node, (Map, Filter)) or not isinstance(below, Map):
        return node
    getter = below.functions[0]
    if not isinstance(getter, Getter) or getter.holds or not travels(getter):
        return node
    return dataclasses.replace(node, input=below.input, functions=(*below.functions, *node.functions))


def sendable(node: Called) -> None:
    """Raise `PlanError` if the functions of a node cannot be sent to another machine."""
    sent(GroupWork(node.calls, node.rows))


def placement_below(node: Map) -> tuple[Interleave | FlatMap, RunPlacement] | None:
    """Return the step that a map follows and whose datasets run elsewhere, if the map may run with them."""
    below = node.input
    if not isinstance(below, (Interleave, FlatMap)) or not isinstance(below.elsewhere, RunPlacement):
        return None
    moves = node.elementwise and not node.pinned and not isinstance(node.executor, Executor)
    if moves and not any(call.keyed or call.is_async or call.waits for call in node.functions):
        return below, below.elsewhere
    return None


def reason_to_stay(node: Called) -> str | None:
    """Return why the calls of a node are made where the pipeline runs; `None` if they go to the cluster."""
    if node.workers is None:
        return "its calls are made one after the other; num_parallel_calls sends them to the cluster"
    if any(isinstance(call, Getter) and call.holds for call in node.calls):
        return "its elements are in memory here"
    if any(call.is_async for call in node.calls):
        return "a coroutine function is awaited where the pipeline runs"
    if isinstance(node.executor, Executor):
        return "it has an executor of its own"
    if node.workers == 1:
        return "one call at a time was asked for"
    return None


def where_datasets_run(node: Interleave | FlatMap, runs: int) -> str:
    """Return where the datasets of a step run."""
    if node.elsewhere is not None:
        maps = node.elsewhere.maps if isinstance(node.elsewhere, RunPlacement) else ()
        with_maps = "".join(f" → {one.label()}" for one in maps)
        return f"its datasets{with_maps} on the cluster{'' if maps else ', those in memory here'}"
    if isinstance(node, FlatMap) and not node.travels:
        return "here: its datasets are made of elements that are here"
    return "here: Cluster(runs=0)" if not runs else "here: its datasets are read in turn; num_parallel_calls sends them"


def placement_lines(plan: Node, options: Options) -> list[str]:
    """Return the lines of `Dataset.explain` that say which steps run on the cluster, and which stay and why."""
    cluster = options.cluster
    if cluster is None:
        return []
    lines = [f"Ray, at most {cluster.calls + cluster.runs} actors of {cluster.num_cpus:g} CPUs"]
    for node in nodes_of(plan):
        if isinstance(node, Called):
            off = "Cluster(calls=0)" if not cluster.calls else reason_to_stay(node)
            where = "on the cluster" if isinstance(node.executor, RemoteExecutor) else f"here: {off}"
            lines.append(f"{node.label()}  {where}")
        elif isinstance(node, (Interleave, FlatMap)):
            lines.append(f"{node.label()}  {where_datasets_run(node, cluster.runs)}")
    lines.append("all other steps  here")
    return ["cluster    " + ("\n" + 11 * " ").join(lines)]
