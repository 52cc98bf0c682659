"""Curves over time as SVG pictures, with axes and units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Final, TypeAlias

from asyncdata.statistics.table import time_of

__all__ = ("chart", "power_above", "sparkline")

Points: TypeAlias = Sequence[tuple[float, float]]
"""Times in seconds before now, negative, and values; newest last."""

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 420, 170, 62, 10, 8, 22
ROUND: Final = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
SPANS: Final = (5, 10, 30, 60, 120, 300, 600)
"""How many seconds an axis may have."""


def chart(
    title: str,
    curves: Sequence[tuple[str, Points]],
    words: Callable[[float], str],
    top: float = 0.0,
    end: str = "now",
) -> str:
    """Return curves on one pair of axes, with what they are called; `words` writes a value of them with its unit.

    The upper end of the axis is `top`, or a round number above all values; the time at its right is called `end`.
    """
    values = [value for _, points in curves for _, value in points]
    if not values:
        return ""
    most, span = top or round_above(max(values)), span_of([at for _, points in curves for at, _ in points])
    lines = [*value_axis(most, words), *time_axis(span, end)]
    for number, (_, points) in enumerate(curves):
        path = " ".join([f"{x_of(at, span):.1f},{y_of(value, most):.1f}" for at, value in points])
        if number == 0:
            first, last = x_of(points[0][0], span), x_of(points[-1][0], span)
            low = HEIGHT - BOTTOM
            lines.append(f'<polygon class="area" points="{first:.1f},{low} {path} {last:.1f},{low}"/>')
        lines.append(f'<polyline class="curve-{number}" points="{path}"/>')
    now = ", ".join([f"{name} {words(points[-1][1])}" for name, points in curves])
    keys = "".join(
        [
            f'<span class="key-{number}"><b>{escape(words(points[-1][1]))}</b> {escape(name)}</span>'
            for number, (name, points) in enumerate(curves)
        ]
    )
    label = escape(f"{title}: {now}; at most {words(max(values))} in {time_of(-min(p[0][0] for _, p in curves))}")
    return (
        f"<figure><figcaption>{escape(title)} {keys}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(lines)}</svg></figure>'
    )


def sparkline(values: Sequence[float], level: str) -> str:
    """Return values from 0 to 1 as a small area, without axes, in the colour of a level."""
    across = 100 / max(1, len(values) - 1)
    path = " ".join([f"{place * across:.1f},{20 - 20 * value:.1f}" for place, value in enumerate(values)])
    return (
        f'<svg class="spark {level}" viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true">'
        f'<polygon points="0,20 {path} 100,20"/></svg>'
    )


def round_above(value: float) -> float:
    """Return the next round number."""
    if value <= 0:
        return 1.0
    scale = 1.0
    while scale * 10 <= value:
        scale *= 10
    while scale > value:
        scale /= 10
    return next(scale * step for step in ROUND if scale * step >= value)


def power_above(size: float) -> float:
    """Return the next power of two, or one and a half times one, for sizes in bytes."""
    power = 2.0 ** max(0, int(size)).bit_length()
    return 0.75 * power if size <= 0.75 * power else power


def span_of(times: Sequence[float]) -> float:
    """Return how many seconds the axis has."""
    return next((span for span in SPANS if span >= -min(times)), SPANS[-1])


def x_of(at: float, span: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (1 + max(-1.0, at / span))


def y_of(value: float, most: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(1.0, value / most))


def value_axis(most: float, words: Callable[[float], str]) -> list[str]:
    """Return three lines across, with their values."""
    lines: list[str] = []
    for value in (0.0, most / 2, most):
        y = y_of(value, most)
        lines.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        lines.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(words(value))}</text>')
    return lines


def time_axis(span: float, end: str) -> list[str]:
    """Return the times below."""
    unit, size = ("min", 60) if span > 60 else ("s", 1)
    ends = ((-span, f"-{span / size:.3g} {unit}", "start"), (-span / 2, f"-{span / 2 / size:.3g} {unit}", "middle"))
    return [
        f'<text x="{x_of(at, span):.1f}" y="{HEIGHT - 5}" text-anchor="{anchor}">{words}</text>'
        for at, words, anchor in (*ends, (0.0, end, "end"))
    ]
