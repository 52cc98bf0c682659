"""A pipeline as an SVG picture: a box for each step, with its statistics, sources at the top."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple, TypeAlias

from asyncdata.statistics.statistics import Statistics, StepStatistics, counted, in_number
from asyncdata.statistics.table import time_of

__all__ = ("Box", "Graph", "boxes_of", "plan_picture")


class Box(NamedTuple):
    """A step in the picture."""

    label: str
    facts: tuple[str, ...] = ()
    """Lines below the label."""
    load: float | None = None
    """How busy it is, from 0 to 1; `None` if that is not known."""
    waiting: str = ""
    """The text beside the arrow to the next step: the elements in between."""
    limits: bool = False
    """Whether it is the bottleneck."""
    inputs: tuple[int, ...] = ()
    """The places of the boxes above."""
    functions: tuple[tuple[str, float], ...] = ()
    """The functions that it calls in one pass, each with its share of the time, drawn as boxes within this one."""


Graph: TypeAlias = tuple[str, Sequence[Box]]
"""A title and boxes, sources first."""

WIDTH, GAP, LINE, PAD, ARROW, BAR, HEAD, INNER = 290, 26, 16, 8, 30, 5, 28, 24
FITS: Final = 36
"""The most characters of a label that fit into a box."""
CALM, BUSY, FULL = "#54a24b", "#f58518", "#e45756"
BORDER: Final = "#b8b8b8"


def plan_picture(graphs: Sequence[Graph]) -> str:
    """Return the picture of some pipelines, one next to the other."""
    lines: list[str] = []
    left, height = 8.0, 0.0
    for title, boxes in graphs:
        if title:
            lines.append(text(left, 20, title, 'font-weight="bold" font-size="14"'))
        drawn, right, bottom = drawing(boxes, left, HEAD if title else PAD)
        lines += drawn
        left, height = right + 2 * GAP, max(height, bottom)
    width, height = left - 2 * GAP + 8, height + PAD
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *lines, "</svg>", ""])


def drawing(boxes: Sequence[Box], left: float, top: float) -> tuple[list[str], float, float]:
    """Return the boxes and arrows of a pipeline, and where they end to the right and below."""
    columns, rows = places(boxes)
    heights = [
        max([height_of(box) for box, at in zip(boxes, rows) if at == row], default=0.0) for row in range(len(boxes))
    ]
    tops = [top + sum(heights[:row]) + row * ARROW for row in range(len(boxes))]
    at = [(left + column * (WIDTH + GAP), tops[row]) for column, row in zip(columns, rows)]
    lines: list[str] = []
    for box, (x, y) in zip(boxes, at):
        for inner in box.inputs:
            from_x, from_y = at[inner]
            lines += arrow(from_x + WIDTH / 2, from_y + height_of(boxes[inner]), x + WIDTH / 2, y, boxes[inner].waiting)
        lines += outline(box, x, y)
    bottom = max([y + height_of(box) for box, (_, y) in zip(boxes, at)], default=top)
    return lines, max([x for x, _ in at], default=left) + WIDTH, bottom


def places(boxes: Sequence[Box]) -> tuple[list[float], list[int]]:
    """Return the column and the row of each box: sources side by side, their readers below and in the middle."""
    columns: list[float] = []
    after = [0] * len(boxes)
    sources = 0
    for box in boxes:
        if box.inputs:
            columns.append(sum([columns[inner] for inner in box.inputs]) / len(box.inputs))
        else:
            columns.append(float(sources))
            sources += 1
    for place in reversed(range(len(boxes))):
        for inner in boxes[place].inputs:
            after[inner] = max(after[inner], after[place] + 1)
    return columns, [max(after, default=0) - steps for steps in after]


def height_of(box: Box) -> float:
    lines = 1 + len(box.facts)
    return 2 * PAD + LINE * lines - 4 + INNER * len(box.functions) + (BAR if box.load is not None else 0)


def outline(box: Box, x: float, y: float) -> list[str]:
    """Return a box with its words, and a bar for how busy it is."""
    height, edge = height_of(box), f'stroke="{FULL}" stroke-width="2.5"' if box.limits else f'stroke="{BORDER}"'
    lines = [
        f'<g class="step"><title>{escape(box.label)}</title>',
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{WIDTH}" height="{height:.1f}" rx="4" fill="#f4f4f4" {edge}/>',
        text(x + PAD, y + PAD + 9, shortened(box.label), 'font-weight="bold"'),
    ]
    for number, fact in enumerate(box.facts):
        lines.append(text(x + PAD, y + PAD + 9 + LINE * (number + 1), fact, 'fill="#555"'))
    for number, (name, part) in enumerate(box.functions):
        lines += function_box(name, part, x + PAD, y + PAD + LINE * (1 + len(box.facts)) + INNER * number)
    if box.load is not None:
        colour = CALM if box.load < 0.6 else BUSY if box.load < 0.9 else FULL
        shape = f'x="{x:.1f}" y="{y + height - BAR:.1f}" height="{BAR}"'
        lines.append(f'<rect {shape} width="{WIDTH}" fill="#dddddd"/>')
        lines.append(f'<rect {shape} width="{WIDTH * min(1.0, box.load):.1f}" fill="{colour}"/>')
    return [*lines, "</g>"]


def function_box(name: str, part: float, x: float, y: float) -> list[str]:
    """Return the box of a function within that of its step; its background shows its share of the time."""
    width, height = WIDTH - 2 * PAD, INNER - 4
    shape = f'x="{x:.1f}" y="{y:.1f}" height="{height}" rx="3"'
    return [
        f'<g class="function"><title>{escape(name)}</title>',
        f'<rect {shape} width="{width}" fill="white"/>',
        f'<rect {shape} width="{width * part:.1f}" fill="#dce9f5"/>',
        f'<rect {shape} width="{width}" fill="none" stroke="{BORDER}"/>',
        text(x + PAD, y + 14, shortened(name, FITS - 6), 'fill="#333"'),
        text(x + width - PAD, y + 14, f"{part:.0%}", 'fill="#333" text-anchor="end"'),
        "</g>",
    ]


def arrow(from_x: float, from_y: float, x: float, y: float, words: str) -> list[str]:
    """Return an arrow down, with words next to it."""
    lines = [
        f'<path d="M{from_x:.1f} {from_y:.1f} L{x:.1f} {y - 6:.1f}" stroke="#888" fill="none"/>',
        f'<path d="M{x - 4:.1f} {y - 7:.1f} L{x + 4:.1f} {y - 7:.1f} L{x:.1f} {y:.1f} Z" fill="#888"/>',
    ]
    if words:
        side, anchor = (-8, "end") if x > from_x else (8, "start")  # not where a slanted arrow is
        lines.append(text(from_x + side, from_y + 18, words, f'fill="#555" font-size="11" text-anchor="{anchor}"'))
    return lines


def text(x: float, y: float, words: str, how: str) -> str:
    """Return a line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" {how}>{escape(words)}</text>'


def shortened(label: str, most: int = FITS) -> str:
    """Return a label that fits into a box."""
    return label if len(label) <= most else f"{label[: most // 2 - 1]}…{label[len(label) - most // 2 :]}"


def boxes_of(stats: Statistics, limit: str = "") -> list[Box]:
    """Return the steps of a pipeline with their statistics; the step `limit` is the bottleneck."""
    return [measured(step, stats.engine_seconds, step.step == limit) for step in stats.steps]


def measured(step: StepStatistics, seconds: float, limits: bool) -> Box:
    """Return a step with its statistics over so many seconds."""
    cost = f", {time_of(step.p50)} each" if step.p50 is not None else ""
    odd = "".join([f", {many:,} {what}" for many, what in ((step.failed, "failed"), (step.retries, "retries")) if many])
    facts = [f"{in_number(step.items, 'element')}{cost}{odd}"]
    own = step.own_seconds / seconds if seconds else 0.0
    load = max(own, step.worker_seconds / step.workers / seconds if step.workers and seconds else 0.0)
    if step.workers:
        facts.append(f"{counted(step)} busy {load:.0%} of the time")
    elif own >= 0.005:
        facts.append(f"busy {own:.0%} on the pipeline's thread")
    held = "" if step.queued is None else f"{step.queued:,}"
    waiting = f"{held} of {step.queue_size:,}" if step.queue_size is not None else held
    functions = tuple([(one.name, step.function_share(one)) for one in step.functions])
    return Box(step.step, (*facts,), min(1.0, load) if seconds else None, waiting, limits, step.inputs, functions)
