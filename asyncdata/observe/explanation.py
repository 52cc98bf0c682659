"""What `Dataset.explain` returns: a text, and pictures of the plan before and after the rewrites."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Self

from asyncdata.graph.node import Node, nodes_of
from asyncdata.observe.file_for_browsers import write_file
from asyncdata.observe.plan_picture import Box, Graph, boxes_of, plan_picture
from asyncdata.options import Options
from asyncdata.planning.optimizer import explained, optimize
from asyncdata.statistics.bottleneck import bottleneck_of
from asyncdata.statistics.statistics import Statistics

__all__ = ("Explanation", "explanation_of")


class Explanation(str):
    """A text that can be drawn; notebooks do so by themselves.

    >>> import asyncdata as ad
    >>> ds = ad.Dataset.range(9).skip(0).batch(3)
    >>> ds.explain().plot("/tmp/plan.svg")
    """

    __slots__ = ("_graphs",)

    _graphs: tuple[Graph, ...]

    def __new__(cls, text: str, graphs: tuple[Graph, ...]) -> Self:
        made = super().__new__(cls, text)
        made._graphs = graphs
        return made

    def _repr_svg_(self) -> str:
        return plan_picture(self._graphs)

    def plot(self, path: str | PathLike[str]) -> None:
        """Draw the plan, as it was built and as it runs, as an SVG picture."""
        write_file("plot", "SVG", path, plan_picture(self._graphs))


def explanation_of(plan: Node, options: Options, ran: Callable[[], Statistics] | None) -> Explanation:
    """Return the plan as it was built and as it runs, with its statistics if it `ran`."""
    optimized = optimize(plan, options)
    boxes = boxes_of_plan(optimized.plan)
    title = f"runs as, {len(optimized.story)} rewrites" if optimized.story else "runs as"
    if ran is not None:
        stats = ran()
        boxes = boxes_of(stats, bottleneck_of(stats).step)
        title += ", measured"
    return Explanation(explained(plan, options), (("plan", boxes_of_plan(plan)), (title, boxes)))


def boxes_of_plan(plan: Node) -> list[Box]:
    """Return the steps of a plan without statistics."""
    nodes = [*dict.fromkeys(nodes_of(plan))]
    places = {node: place for place, node in enumerate(nodes)}
    return [Box(node.label(), inputs=tuple([places[inner] for inner in node.inputs])) for node in nodes]
