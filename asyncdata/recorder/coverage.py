"""Coverage: how many records of each file or source were delivered, and when in the epoch, as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from asyncdata.graph.node import Node
from asyncdata.recorder.audit import Audit
from asyncdata.recorder.locations import records_of
from asyncdata.recorder.log_reader import ticket_of

__all__ = ("coverage",)

WIDTH: Final = 40
"""How many parts of the epoch are shown at most."""

MOST: Final = 100
"""The most files that are shown."""

SHADES: Final = " .:-=+*#%@"


def coverage(found: Audit, plan: Node) -> Iterator[str]:
    """Yield a line for each file, or other source, whose records an epoch gave: its name, how many, and a strip.

    The strip shows the epoch from its first step to its last, for all ranks together: `@` where most records of one
    file came, blank where none did.
    """
    last = max((place.step for place, _ in found.delivered), default=0)
    width, each = min(WIDTH, last + 1), dict[str, list[int]]()
    for place, ticket in found.delivered:
        for name in names_of(records_of(plan, ticket_of(ticket))):
            each.setdefault(name, [0] * width)[place.step * width // (last + 1)] += 1
    most = max((max(counts) for counts in each.values()), default=1)
    wide = max(map(len, each), default=0)
    for name, counts in sorted(each.items())[:MOST]:
        strip = "".join(SHADES[-(-count * (len(SHADES) - 1) // most)] for count in counts)
        yield f"{name:{wide}} {sum(counts):>9} records |{strip}|"
    if len(each) > MOST:
        yield f"and {len(each) - MOST} more"


def names_of(records: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the file or source of each record; what pads is none."""
    for record in records:
        if not record.get("padding"):
            yield str(record.get("file", record.get("source", record.get("cache", "unknown"))))
