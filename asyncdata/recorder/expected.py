"""What a pipeline gives in an epoch, element by element: to compare a log with."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from itertools import count as counting
from typing import Any

from asyncdata.errors import PlanError
from asyncdata.graph.node import Node, nodes_of
from asyncdata.iterator import DatasetIterator, ended_by
from asyncdata.options import INFINITE_CARDINALITY, Options
from asyncdata.persistence.file_cache import FileCache
from asyncdata.planning.optimizer import Planner, settle
from asyncdata.recorder.log_reader import Step
from asyncdata.states import ResumePoint, check_same_plan, plan_of_worker, with_seeds
from asyncdata.transforms.balance import Balance
from asyncdata.transforms.cache import Cache
from asyncdata.transforms.shard import Shard

__all__ = ("ExpectedTickets",)


class ExpectedTickets:
    """Runs a pipeline, as each of several ranks would, and gives the tickets of its elements."""

    def __init__(self, plan: Node, options: Options) -> None:
        if plan.cardinality == INFINITE_CARDINALITY:
            raise PlanError("a pipeline that never ends cannot be compared with: no log of it is complete")
        if once := [node.label() for node in nodes_of(plan) if node.once]:
            raise PlanError(f"{once[0]} can be read only once, so the pipeline cannot be run to compare with")
        if cached := [node.label() for node in nodes_of(plan) if isinstance(node, (Cache, FileCache))]:
            raise PlanError(
                f"elements of {cached[0]} have other names in the run that fills it than later, so the pipeline "
                "cannot be compared with; audit the log alone"
            )
        self.plan, self.options = plan, options.without("record")
        self.in_order = settle(plan, options).in_order

    def steps(self, epoch: int, shares: tuple[tuple[int, int], ...], header: Mapping[str, Any]) -> Iterator[Step]:
        """Yield all elements of an epoch that a process with these shares gets."""
        plan = plan_of_worker(self.plan, header)
        check_same_plan(header, plan)
        plan = with_seeds(plan, dict(header["seeds"]), True, counting())
        place = ResumePoint(with_shares(plan, iter(shares)), epoch)
        with DatasetIterator[Any](Planner(self.options), place) as elements:
            while True:
                failed = False
                try:
                    next(elements)
                except StopIteration:
                    return
                except Exception as error:
                    if ended_by(elements, error):
                        raise
                    failed = True
                yield Step(elements.origin()["ticket"], failed)


def with_shares(plan: Node, shares: Iterator[tuple[int, int]]) -> Node:
    """Return a plan as a process with these shares builds it."""
    inputs = tuple([with_shares(node, shares) for node in plan.inputs])
    plan = plan if inputs == plan.inputs else plan.over(*inputs)
    if plan.share is None:
        return plan
    count, index = next(shares)
    if isinstance(plan, Shard):
        return dataclasses.replace(plan, num_shards=count, index=index)
    if isinstance(plan, Balance):
        return dataclasses.replace(plan, ranks=count, rank=index)
    raise PlanError(f"{plan.label()}: it is not known what other ranks get")
