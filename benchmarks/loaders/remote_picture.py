"""A picture of how something grows with a number, both drawn by powers of two, as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

__all__ = ("Line", "drawn")

LEFT: Final = 60
TOP: Final = 30
WIDTH: Final = 560
HEIGHT: Final = 300
COLOURS: Final = ("#888888", "#1f6feb", "#d1701a")


class Line(NamedTuple):
    """The points of one contender."""

    name: str
    points: Sequence[tuple[int, float]]


def drawn(lines: Sequence[Line], across: str, up: str) -> str:
    """Return the picture, with a sign for each point, since lines may lie on each other."""
    counts = [count for line in lines for count, _ in line.points]
    values = [value for line in lines for _, value in line.points]
    places = Places(max(counts), math.floor(math.log2(min(values))), math.ceil(math.log2(max(values))))
    size = f'viewBox="0 0 {LEFT + WIDTH + 110} {TOP + HEIGHT + 50}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">']
    parts += [f'<rect width="100%" height="100%" fill="white"/><text x="{LEFT}" y="18">{up}</text>']
    parts += axes(places, across)
    for line, colour in zip(lines, COLOURS, strict=False):
        parts += curve(places, line, colour)
    return "\n".join([*parts, "</svg>", ""])


class Places(NamedTuple):
    """Where points lie: from one to the largest count, and between two powers of two."""

    most: int
    low: int
    high: int

    def x(self, count: int) -> float:
        """Return how far to the right a count is."""
        return round(LEFT + WIDTH * math.log2(count) / math.log2(self.most), 1)

    def y(self, value: float) -> float:
        """Return how far down a value is."""
        return round(TOP + HEIGHT * (self.high - math.log2(value)) / (self.high - self.low), 1)


def axes(places: Places, across: str) -> Iterator[str]:
    """Yield lines for powers of two, and what they are."""
    for power in range(places.low, places.high + 1):
        y = places.y(2**power)
        yield f'<path d="M{LEFT} {y}h{WIDTH}" stroke="#dddddd"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{2**power}</text>'
    for power in range(int(math.log2(places.most)) + 1):
        x = places.x(2**power)
        yield f'<path d="M{x} {TOP}v{HEIGHT}" stroke="#dddddd"/>'
        yield f'<text x="{x}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{2**power}</text>'
    yield f'<text x="{LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 40}" text-anchor="middle">{across}</text>'


def curve(places: Places, line: Line, colour: str) -> Iterator[str]:
    """Yield one contender's points, and its name behind the last."""
    spots = [(places.x(count), places.y(value)) for count, value in line.points]
    path = "L".join(f"{x} {y}" for x, y in spots)
    yield f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y in spots:
        yield f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>'
    x, y = spots[-1]
    yield f'<text x="{x + 8}" y="{y + (14 if line.name == "raw" else 0)}" fill="{colour}">{line.name}</text>'
