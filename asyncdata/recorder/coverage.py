"""Coverage: how many records of each file or source were delivered, and when in the epoch, as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from asyncdata.graph.node import Node
from asyncdata.recorder.audit import Audit
from asyncdata.recorder.locations import records_of
from asyncdata.recorder.log_reader import ticket_of

__all__ = ("Coverage", "coverage_lines", "coverage_of")

WIDTH: Final = 40
"""How many parts of the epoch the text shows at most."""

MOST: Final = 100
"""The most rows; of more files, those whose names follow each other share a row."""

SHADES: Final = " .:-=+*#%@"


class Coverage(NamedTuple):
    """How many records of each file, or other source, an epoch gave in each part of it, for all ranks together."""

    steps: int
    """How many steps the epoch had on the rank that had the most."""
    parts: int
    """Into how many parts of about as many steps it is divided."""
    rows: Mapping[str, list[int]]
    """For each file, in the order of names, the records in each part."""

    @property
    def most(self) -> int:
        """The most records of one row in one part; at least 1."""
        return max((max(counts) for counts in self.rows.values()), default=1)

    def steps_of(self, part: int) -> tuple[int, int]:
        """Return the first and the last step of a part."""
        return -(-part * self.steps // self.parts), -(-(part + 1) * self.steps // self.parts) - 1


def coverage_of(found: Audit, plan: Node, parts: int) -> Coverage:
    """Return which files of a pipeline gave the records that count, in at most so many parts of the epoch."""
    steps = max((place.step + 1 for place, _ in found.delivered), default=1)
    parts, each = min(parts, steps), dict[str, list[int]]()
    for place, ticket in found.delivered:
        for name in names_of(records_of(plan, ticket_of(ticket))):
            each.setdefault(name, [0] * parts)[place.step * parts // steps] += 1
    names = sorted(each)
    size = -(-len(names) // MOST) or 1
    groups = [names[start : start + size] for start in range(0, len(names), size)]
    rows = {named(group): [*map(sum, zip(*map(each.__getitem__, group), strict=True))] for group in groups}
    return Coverage(steps, parts, rows)


def named(group: list[str]) -> str:
    """Return the name of a row of some files."""
    return group[0] if len(group) == 1 else f"{group[0]} to {group[-1]} ({len(group)} files)"


def coverage_lines(found: Audit, plan: Node) -> Iterator[str]:
    """Yield a line for each file, or other source, whose records an epoch gave: its name, how many, and a strip.

    The strip shows the epoch from its first step to its last, for all ranks together: `@` where most records of one
    file came, blank where none did.
    """
    coverage = coverage_of(found, plan, WIDTH)
    most, wide = coverage.most, max(map(len, coverage.rows), default=0)
    for name, counts in coverage.rows.items():
        strip = "".join(SHADES[-(-count * (len(SHADES) - 1) // most)] for count in counts)
        yield f"{name:{wide}} {sum(counts):>9} records |{strip}|"


def names_of(records: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the file or source of each record; what pads is none."""
    for record in records:
        if not record.get("padding"):
            yield str(record.get("file", record.get("source", record.get("cache", "unknown"))))
