"""A timeline as an SVG picture: rows of bars over an axis of seconds."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple, TypeAlias

from asyncdata.statistics.table import time_of

__all__ = ("Bar", "Part", "timeline")


class Bar(NamedTuple):
    """One piece of work, from `begin` to `end` in seconds since the trace began."""

    row: str
    kind: str
    """`"engine"`, `"worker"`, `"function"` (one of several that a step calls in one pass), `"wait"`, `"device"` or
    `"step"`."""
    lane: int
    begin: float
    end: float
    items: int


Part: TypeAlias = tuple[str, Sequence[Bar], float]
"""A title, bars, and how many seconds they cover."""

LEFT, WIDTH, ROW, GAP, HEAD, AXIS = 290, 900, 22, 6, 28, 26
COLOURS: Final = {
    "engine": "#4c78a8",
    "worker": "#54a24b",
    "function": "#9ecae9",
    "wait": "#e45756",
    "device": "#b279a2",
    "step": "#f58518",
}
LEGEND: Final = {
    "engine": "pipeline's thread",
    "worker": "worker",
    "function": "a function of a step",
    "wait": "consumer waits",
    "device": "copy to device",
    "step": "training step",
}
CLOSE: Final = 0.35
"""Bars of a row that are fewer pixels apart are drawn as one, since thousands of them would look so anyway."""


def timeline(parts: Sequence[Part], order: Sequence[str] = ()) -> str:
    """Return the picture of some traces, one above the other on one scale; rows in `order` come in that order."""
    seconds = max([part[2] for part in parts] + [1e-9])
    drawn: list[str] = []
    top = 8
    for title, bars, length in parts:
        lines, top = drawing(title, bars, rows_of(bars, order), seconds, top, length)
        drawn += lines
    kinds = [kind for kind in COLOURS if any(bar.kind == kind for _, bars, _ in parts for bar in bars)]
    drawn += legend(kinds, top + 4)
    if not kinds:
        drawn.append(f'<text x="{LEFT}" y="{top + 14}">nothing ran</text>')
    height = top + 34
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" '
        f'width="{LEFT + WIDTH + 20}" height="{height}" font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *drawn, "</svg>", ""])


def drawing(
    title: str, bars: Sequence[Bar], rows: Sequence[str], seconds: float, top: float, length: float
) -> tuple[list[str], float]:
    """Return the drawing of one trace at a height, and the height where the next one begins."""
    scale, lines = WIDTH / seconds, list[str]()
    if title:
        words = f"{title}: {time_of(length)}"
        lines.append(f'<text x="8" y="{top + 16}" font-weight="bold" font-size="14">{escape(words)}</text>')
        top += HEAD
    for row in rows:
        words = f"{escape(shortened(row))}<title>{escape(row)}</title>"
        lines.append(f'<text x="{LEFT - 8}" y="{top + 15}" text-anchor="end">{words}</text>')
        lines.append(f'<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{ROW}" fill="#f4f4f4"/>')
        for lane, (kind, found) in enumerate(mine := lanes_of(row, bars)):
            height = ROW / len(mine)
            for begin, end in merged(found, CLOSE / scale):
                x, width = LEFT + begin * scale, max(0.4, (end - begin) * scale)
                shape = f'x="{x:.2f}" y="{top + lane * height:.2f}" width="{width:.2f}" height="{height:.2f}"'
                lines.append(f'<rect {shape} fill="{COLOURS.get(kind, "#888")}"/>')
        top += ROW + GAP
    lines += axis(seconds, scale, top)
    return lines, top + AXIS


def rows_of(bars: Sequence[Bar], order: Sequence[str] = ()) -> list[str]:
    """Return the names of rows: training and waiting first, as in the guide's pictures, then steps as in `order`.

    Others come last, as they began.
    """
    ahead, known = {"step": 0, "wait": 1}, {row: place for place, row in enumerate(order)}
    first: dict[str, tuple[int, int]] = {}
    for bar in sorted(bars, key=lambda bar: bar.begin):
        first.setdefault(bar.row, (ahead.get(bar.kind, 2), known.get(bar.row, len(known))))
    return sorted(first, key=lambda row: first[row])


def lanes_of(row: str, bars: Sequence[Bar]) -> list[tuple[str, list[Bar]]]:
    found: dict[tuple[str, int], list[Bar]] = {}
    for bar in bars:
        if bar.row == row:
            found.setdefault((bar.kind, bar.lane), []).append(bar)
    return [(kind, lane) for (kind, _), lane in sorted(found.items())]


def merged(bars: Sequence[Bar], apart: float) -> list[tuple[float, float]]:
    """Return bars as intervals, merged if they are less than so many seconds apart."""
    found: list[tuple[float, float]] = []
    for bar in sorted(bars, key=lambda bar: bar.begin):
        if found and bar.begin - found[-1][1] <= apart:
            found[-1] = found[-1][0], max(found[-1][1], bar.end)
        else:
            found.append((bar.begin, bar.end))
    return found


def axis(seconds: float, scale: float, top: float) -> list[str]:
    """Return an axis with about eight ticks at round numbers."""
    step = next(
        step
        for power in range(-9, 9)
        for step in (10.0**power, 2 * 10.0**power, 5 * 10.0**power)
        if seconds / step <= 8
    )
    lines: list[str] = []
    for number in range(int(seconds / step) + 1):
        x = LEFT + number * step * scale
        lines.append(f'<line x1="{x:.1f}" y1="{top - GAP}" x2="{x:.1f}" y2="{top}" stroke="#888"/>')
        words = time_of(number * step) if number else "0"
        lines.append(f'<text x="{x:.1f}" y="{top + 12}" text-anchor="middle" fill="#555" font-size="10">{words}</text>')
    return lines


def legend(kinds: Sequence[str], top: float) -> list[str]:
    """Return the meaning of the colours."""
    lines: list[str] = []
    for place, kind in enumerate(kinds):
        x = LEFT + place * 150
        lines.append(f'<rect x="{x}" y="{top}" width="12" height="12" fill="{COLOURS[kind]}"/>')
        lines.append(f'<text x="{x + 18}" y="{top + 10}">{LEGEND[kind]}</text>')
    return lines


def shortened(text: str) -> str:
    """Return a label that fits next to a row."""
    return text if len(text) <= 31 else f"{text[:15]}…{text[-15:]}"
