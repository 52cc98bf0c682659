"""A picture of curves over numbers from one to very many, both axes in powers of ten, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

__all__ = ("Curve", "drawn")

LEFT: Final = 70
TOP: Final = 30
WIDTH: Final = 520
HEIGHT: Final = 300
RIGHT: Final = 190
COLOURS: Final = ("#1f6feb", "#d1701a", "#2e8b57", "#8a4fbf", "#888888")


class Curve(NamedTuple):
    """The points of one curve; a dashed one is a limit, or worked out and not measured."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False
    marks: Sequence[tuple[float, str]] = ()
    """Words at some place across."""


class Places(NamedTuple):
    """Where points lie: between powers of ten."""

    across: tuple[int, int]
    up: tuple[int, int]

    def x(self, value: float) -> float:
        """Return how far to the right a number is."""
        low, high = self.across
        return round(LEFT + WIDTH * (math.log10(value) - low) / (high - low), 1)

    def y(self, value: float) -> float:
        """Return how far down a value is."""
        low, high = self.up
        return round(TOP + HEIGHT * (high - math.log10(value)) / (high - low), 1)


def drawn(curves: Sequence[Curve], across: str, up: str) -> str:
    """Return the picture, each curve with its name behind its last point."""
    places = Places(*[powers([point[axis] for curve in curves for point in curve.points]) for axis in (0, 1)])
    size = f'viewBox="0 0 {LEFT + WIDTH + RIGHT} {TOP + HEIGHT + 50}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">']
    parts += [f'<rect width="100%" height="100%" fill="white"/><text x="{LEFT}" y="18">{up}</text>']
    parts += axes(places, across)
    lowest = math.inf
    for curve, colour in sorted(zip(curves, COLOURS, strict=False), key=lambda pair: -pair[0].points[-1][1]):
        name_at = max(places.y(curve.points[-1][1]), -math.inf if lowest == math.inf else lowest + 16)
        lowest = name_at
        parts += line(places, curve, colour, name_at)
    return "\n".join([*parts, "</svg>", ""])


def powers(values: Sequence[float]) -> tuple[int, int]:
    """Return the powers of ten that values lie between."""
    low = math.floor(math.log10(min(values)) + 1e-9)
    return low, max(low + 1, math.ceil(math.log10(max(values)) - 1e-9))


def axes(places: Places, across: str) -> Iterator[str]:
    """Yield lines for powers of ten, and what they are."""
    for power in range(places.up[0], places.up[1] + 1):
        y = places.y(10.0**power)
        yield f'<path d="M{LEFT} {y}h{WIDTH}" stroke="#dddddd"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{written(power)}</text>'
    for power in range(places.across[0], places.across[1] + 1):
        x = places.x(10.0**power)
        yield f'<path d="M{x} {TOP}v{HEIGHT}" stroke="#dddddd"/>'
        yield f'<text x="{x}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{written(power)}</text>'
    yield f'<text x="{LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 40}" text-anchor="middle">{across}</text>'


def written(power: int) -> str:
    """Return a power of ten as it is written."""
    return f"{10**power:,}" if 0 <= power <= 3 else f"{10.0**power:g}" if -3 <= power < 0 else f"1e{power}"


def line(places: Places, curve: Curve, colour: str, name_at: float) -> Iterator[str]:
    """Yield one curve, its points, its words and its name."""
    spots = [(places.x(x), places.y(y)) for x, y in curve.points]
    path, dash = "L".join(f"{x} {y}" for x, y in spots), ' stroke-dasharray="5 4"' if curve.dashed else ""
    yield f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'
    for x, y in () if curve.dashed else spots:
        yield f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>'
    for across, words in curve.marks:
        x = places.x(across)
        yield f'<path d="M{x} {TOP}v{HEIGHT}" stroke="{colour}" stroke-dasharray="2 3"/>'
        yield f'<text x="{x - 4}" y="{TOP + HEIGHT - 8}" text-anchor="end" fill="{colour}">{words}</text>'
    yield f'<text x="{spots[-1][0] + 8}" y="{name_at + 4}" fill="{colour}">{curve.name}</text>'
