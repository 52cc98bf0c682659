"""Coverage as an SVG picture: a row for each file, the steps of the epoch to the right, darker where more came."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from os.path import commonpath
from typing import Final

from asyncdata.recorder.audit import Audit
from asyncdata.recorder.coverage import Coverage

__all__ = ("PARTS", "coverage_picture")

PARTS: Final = 100
"""Into how many parts an epoch is divided at most."""

CELL, ROW, LINE, PAD, TOTAL, LETTER = 7, 16, 18, 12, 130, 6.6
MOST_WORDS: Final = 12
"""The most lines of what an audit says that are shown."""

GOOD, BAD, DARK, EMPTY = "#2e7d32", "#c62828", "#1f6feb", "#f0f0f0"


def coverage_picture(epochs: Sequence[tuple[Audit, Coverage]]) -> str:
    """Return the picture of some epochs, one below the other; a mouse over a cell shows its steps and its number."""
    names = [name for _, coverage in epochs for name in coverage.rows]
    cut = len(folder_of(names))
    wide = PAD + LETTER * max((len(name) - cut for name in names), default=0) + PAD
    lines, top = list[str](), PAD
    for found, coverage in epochs:
        drawn, top = drawing(found, coverage, wide, top, cut)
        lines += drawn
    said = max((len(line) for found, _ in epochs for line in words(found)), default=0)
    width = max(wide + CELL * PARTS + TOTAL, 2 * PAD + LETTER * said)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {top}" '
        f'width="{width:.0f}" height="{top}" font-family="monospace" font-size="11">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *lines, "</svg>", ""])


def folder_of(names: Sequence[str]) -> str:
    """Return the folder that all files are in, which need not be said for each."""
    if not names or not all("/" in name for name in names):
        return ""
    try:
        found = commonpath(names)
    except ValueError:  # some are absolute
        return ""
    return f"{found}/" if all(name.startswith(f"{found}/") for name in names) else ""


def words(found: Audit) -> list[str]:
    """Return what an audit says, shortened."""
    lines = str(found).splitlines()
    return lines if len(lines) <= MOST_WORDS else [*lines[:MOST_WORDS], f"  and {len(lines) - MOST_WORDS} lines more"]


def drawing(found: Audit, coverage: Coverage, left: float, top: int, cut: int) -> tuple[list[str], int]:
    """Return the picture of one epoch that begins so far down, and where it ends."""
    lines = list[str]()
    for line in words(found):
        top += LINE
        style = f'font-weight="bold" fill="{GOOD if found.complete else BAD}" xml:space="preserve"'
        lines.append(text(PAD, top - 5, line, style))
    for name, counts in coverage.rows.items():
        lines += row(name[cut:], counts, coverage, left, top)
        top += ROW
    if coverage.rows:
        last = left + CELL * PARTS
        lines.append(text(left, top + 13, "step 0"))
        lines.append(text(last, top + 13, f"step {coverage.steps - 1}", 'text-anchor="end"'))
        top += LINE
    return lines, top + PAD


def row(name: str, counts: Sequence[int], coverage: Coverage, left: float, top: int) -> Iterator[str]:
    """Yield the cells of one file, its name before them, and how many records they are behind."""
    wide, most, high = CELL * PARTS / coverage.parts, coverage.most, ROW - 2
    yield text(left - 6, top + 12, name, 'text-anchor="end"')
    yield f'<rect x="{left:.1f}" y="{top}" width="{CELL * PARTS}" height="{high}" fill="{EMPTY}"/><g fill="{DARK}">'
    for part, count in enumerate(counts):
        first, last = coverage.steps_of(part)
        steps = f"step {first}" if first == last else f"steps {first} to {last}"
        if count:
            yield (
                f'<rect x="{left + part * wide:.1f}" y="{top}" width="{wide:.1f}" height="{high}" '
                f'opacity="{0.15 + 0.85 * count / most:.2f}"><title>{escape(name)}, {steps}: {count:,}</title></rect>'
            )
    yield f"</g>{text(left + CELL * PARTS + 6, top + 12, f'{sum(counts):,} records')}"


def text(x: float, y: float, content: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y}" {style}>{escape(content)}</text>'
