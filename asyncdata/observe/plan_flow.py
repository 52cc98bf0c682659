"""A pipeline as HTML that flows over the width of a page: a card for each step, sources first, branches stacked."""

from __future__ import annotations

import re
from html import escape
from itertools import pairwise
from typing import Final

from asyncdata.observe.chart import sparkline
from asyncdata.observe.history import RECENT, View, load_of
from asyncdata.observe.plan_picture import Box, boxes_of
from asyncdata.statistics.statistics import StepStatistics

__all__ = ("flow",)

LONG: Final = 18
"""Labels with more characters may be broken after punctuation."""

IDLE: Final = 0.02
"""A step that was never busier than this has a small card, without a curve."""

SMOOTH: Final = 4
"""How many samples one point of a step's curve spans."""


def flow(view: View, limit: str) -> str:
    """Return the steps of a pipeline; the step `limit` is the bottleneck."""
    boxes = boxes_of(view.stats, limit)
    drawn: set[int] = set()
    return chain(view, boxes, len(boxes) - 1, drawn) if boxes else ""


def chain(view: View, boxes: list[Box], last: int, drawn: set[int]) -> str:
    """Return the steps up to one that have one input each, after the branches that they begin with."""
    cards: list[str] = []
    place: int | None = last
    while place is not None:
        box = boxes[place]
        again = place in drawn
        drawn.add(place)
        above = f'<li class="step again">{breakable(box.label)}, as above</li>'
        cards.append(above if again else card(view, place, box))
        if len(box.inputs) > 1 and not again:
            names = branch_names(view.stats.steps[place], len(box.inputs))
            parts = [name + chain(view, boxes, one, drawn) for name, one in zip(names, box.inputs, strict=True)]
            inner = "".join(parts)
            cards.append(f'<li class="branches">{inner}</li>')
        place = box.inputs[0] if len(box.inputs) == 1 and not again else None
    return f'<ol class="flow">{"".join(reversed(cards))}</ol>'


def branch_names(step: StepStatistics, count: int) -> list[str]:
    """Return the names of the datasets of a mixture as HTML, if they have names."""
    names = [*step.sources]
    if len(names) != count or all(map(str.isdigit, names)):
        return [""] * count
    return [f'<p class="branch">{escape(name)}</p>' for name in names]


def card(view: View, place: int, box: Box) -> str:
    """Return the card of a step: how busy it is now, and what it did."""
    load = recent_load(view, place, box.load or 0.0)
    level = "idle" if load < 0.01 else "calm" if load < 0.6 else "busy" if load < 0.9 else "full"
    curve = loads(view, place) or [load, load]
    idle = max(load, *curve) < IDLE and not box.functions and not box.limits
    mark = " limits" if box.limits else " idle" if idle else ""
    words = '<p class="mark">bottleneck</p>' if box.limits else ""
    facts = "".join([f"<p>{whole_parts(fact)}</p>" for fact in box.facts])
    queue = f"<p>{escape(box.waiting)} in its queue</p>" if box.waiting else ""
    functions = "".join([f"<li><span>{breakable(name)}</span> <b>{part:.0%}</b></li>" for name, part in box.functions])
    return (
        f'<li class="step{mark}">{words}<h4>{breakable(box.label)}</h4>'
        f'<p class="load {level}"><b>{load:.0%}</b> busy{" now" if view.stats.running else ""}</p>'
        f"{'' if idle else sparkline(curve, level)}"
        f"{f'<ul>{functions}</ul>' if functions else ''}{facts}{queue}</li>"
    )


def breakable(label: str) -> str:
    """Return a label as HTML, which may be broken after punctuation and between words if it is long."""
    parts = re.split(r"(?<=[(,=_.])(?=\w)|(?<=[a-z])(?=[A-Z])", label) if len(label) > LONG else [label]
    return "<wbr>".join(map(escape, parts))


def whole_parts(fact: str) -> str:
    """Return facts with commas in between as HTML, which is broken after commas first."""
    return " ".join([f"<span>{escape(part)}</span>" for part in fact.replace(", ", ",\n").split("\n")])


def recent_load(view: View, place: int, otherwise: float) -> float:
    """Return how busy a step was in the last seconds; on average, once the pipeline is over."""
    before = view.history.before(RECENT) if view.stats.running else None
    return otherwise if before is None else load_of(place, before, view.history.recent[-1])


def loads(view: View, place: int) -> list[float]:
    """Return how busy a step was over time."""
    samples = [*view.history.recent][::-SMOOTH][::-1]
    return [load_of(place, *pair) for pair in pairwise(samples)]
