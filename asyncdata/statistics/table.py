"""Tables for people, as text and as HTML, and the format of numbers in them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final, TypeAlias

__all__ = ("Row", "html_table", "memory", "share", "text_table", "time_of")

Row: TypeAlias = tuple[str, ...]

WIDEST: Final = 60
"""The most characters of the first column; longer texts lose their middle."""

TIMES: Final = ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (1e-6, 1e6, "µs"), (0.0, 1e9, "ns"))
SIZES: Final = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))


def time_of(seconds: float | None) -> str:
    """Return a time in the unit that suits it, with about three digits; nothing for `None`."""
    if not seconds:
        return "" if seconds is None else "0 s"
    factor, unit = next((factor, unit) for least, factor, unit in TIMES if seconds >= least)
    value = seconds * factor
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"


def memory(size: int) -> str:
    """Return a number of bytes in the unit that suits it."""
    for least, unit in SIZES:
        if size >= least:
            return f"{size / least:.3g} {unit}"
    return f"{size} bytes"


def share(part: float, total: float) -> str:
    """Return a part of a total in percent; an empty text if there is none."""
    if part <= 0 or total <= 0:
        return ""
    percent = 100 * part / total
    return f"{percent:.0f}%" if percent >= 0.95 else "<1%"


def text_table(rows: Sequence[Row]) -> str:
    """Return rows as lines; the first row has the headings. The first column is left-aligned, others right-aligned."""
    rows = [(shortened(row[0]), *row[1:]) for row in rows]
    shown = [place for place in range(len(rows[0])) if any(row[place] for row in rows[1:])] or [0]
    widths = {place: max(len(row[place]) for row in rows) for place in shown}
    lines = [
        "  ".join(row[place].rjust(widths[place]) if place else row[place].ljust(widths[place]) for place in shown)
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def shortened(text: str) -> str:
    """Return a text that is not too wide."""
    half = WIDEST // 2
    return text if len(text) <= WIDEST else f"{text[: half - 1]}…{text[len(text) - half :]}"


def html_table(rows: Sequence[Row]) -> str:
    """Return rows as a table; the first row has the headings."""
    head, *body = rows
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in body)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>"
