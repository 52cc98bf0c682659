"""What AUTOTUNE has chosen in a running pipeline, told step by step."""

from __future__ import annotations

from typing import Any

from asyncdata.executors.autotune import Tuning
from asyncdata.executors.interleave_tuner import InterleaveTuner
from asyncdata.graph.node import Node, nodes_of
from asyncdata.options import AUTOTUNE
from asyncdata.runtime.memory_budget import MemoryBudget
from asyncdata.transforms.function_node import Called
from asyncdata.transforms.interleave import Interleave
from asyncdata.transforms.prefetch import Prefetch

__all__ = ("stats_of",)


def stats_of(plan: Node, budget: MemoryBudget) -> list[dict[str, Any]]:
    """Return what was chosen so far, a dict for each step that is tuned, sources first."""
    return [{"step": node.label(), **found} for node in nodes_of(plan) if (found := chosen(node, budget))]


def chosen(node: Node, budget: MemoryBudget) -> dict[str, Any]:
    """Return what was chosen for a step; nothing if it is not tuned."""
    if isinstance(node, Called) and isinstance(node.executor, Tuning):
        return node.executor.choice._asdict() | {"group": node.executor.group}
    if isinstance(node, Interleave) and isinstance(node.tuner, InterleaveTuner):
        return node.tuner.choice._asdict() | {"buffer": node.tuner.buffer}
    if isinstance(node, Prefetch) and node.buffer_size == AUTOTUNE and node in budget.buffers:
        return budget.buffers[node]()
    return {}
