"""RemotePlan: a node in the place of a dataset that a step opens, which runs on a worker of the cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

from asyncdata.cluster.handle import RunPoolHandle
from asyncdata.cluster.remote_run import RemoteRun, RunOrder
from asyncdata.executors.process.shm_arena import pickled_by_value
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import PHYSICAL, Node, Unary, nodes_of
from asyncdata.graph.stages import split
from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.queue import LoopSignal
from asyncdata.runtime.tickets import FRESH, Start, Ticket, plain
from asyncdata.sources.random_access import InMemorySource
from asyncdata.transforms.map import Map

__all__ = ("RemotePlan", "RunPlacement")

log = logging.getLogger("asyncdata")

INTERLEAVED_CHUNKS: Final = 2
CHUNKS_AHEAD: Final = 16
"""Chunks of a dataset that are here at most, besides one on its way. Datasets whose elements are given out in turn are
read equally quickly; where one follows the other, the more is here of the next, the longer its worker works."""


@dataclass(frozen=True, eq=False)
class RemotePlan(Unary):
    """Runs its input elsewhere: the same elements, tickets and positions."""

    runs: RunPoolHandle = field(metadata=PHYSICAL)
    chunks: int = field(metadata=PHYSICAL)

    async def open(self, scope: Scope, want: Demand, start: Start = FRESH) -> Blocks:
        order = RunOrder(self.input, plain(scope.epoch), start.position_with_skip(), str(self.input))
        signal, share = LoopSignal(scope.loop, threadsafe=True), scope.budget.share()
        run = RemoteRun(self.runs.pool, order, signal, not self.runs.cluster.copy, share, self.chunks)
        try:
            while (block := await run.next()) is not None:
                for part in split(block, want):
                    yield part
                block = part = None  # do not hold the last block while the next is awaited
        finally:
            run.close()

    def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        return self.input.fetch(scope, want, tickets)

    def at_once(self, most: int) -> Iterator[Block] | None:
        return self.input.at_once(most)

    @property
    def reads_elsewhere(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class RunPlacement:
    """Decides for each dataset that a step opens where it runs, with the maps that follow the step."""

    runs: RunPoolHandle
    maps: tuple[Map, ...] = ()
    """Of these the input is any dataset that is opened."""

    chunks: int = INTERLEAVED_CHUNKS
    """How many chunks of each dataset are here at most."""

    @property
    def at_once(self) -> int:
        return self.runs.cluster.runs

    def in_turn(self) -> RunPlacement:
        """Return the same for datasets that are given out one after another, of which more is read ahead."""
        return replace(self, chunks=CHUNKS_AHEAD)

    def followed_by(self, node: Map) -> RunPlacement:
        """Return the same with one more map."""
        return replace(self, maps=(*self.maps, replace(node, rows=None)))

    def plan_elsewhere(self, plan: Node) -> Node:
        """Return the plan that runs instead of a plan."""
        if isinstance(plan, InMemorySource) and not self.maps:  # which is here already
            return plan
        whole = plan
        for node in self.maps:  # one after another in the thread of the run
            whole = Map(whole, node.functions)
        reason = reason_to_stay(whole)
        if reason is None:
            return RemotePlan(whole, self.runs, self.chunks)
        log_once(reason)
        return self.plan_here(plan)

    def plan_here(self, plan: Node) -> Node:
        """Return the plan that runs instead of a plan in this process."""
        for node in self.maps:
            plan = node.with_inputs(plan)
        return plan


def reason_to_stay(plan: Node) -> str | None:
    """Return why a plan runs where the pipeline does; `None` if it can run elsewhere."""
    for node in nodes_of(plan):
        if (reason := node.process_bound_reason) is not None:
            return f"{node.label()} cannot run in another process: {reason}"
        if node.stores_elements:
            return f"{node.label()} holds elements where the pipeline runs"
    if not plan.repeatable:
        return f"{plan.label()} has no fixed order, or cannot be run again, which is required when a worker is lost"
    try:
        pickled_by_value(plan)
    except Exception as error:  # noqa: BLE001 - any error is the reason
        return f"{plan} cannot be sent: {error}"
    return None


@cache
def log_once(reason: str) -> None:
    """Log once why a dataset stays here."""
    log.info("a dataset that a step has opened runs here and not on the cluster: %s", reason)
