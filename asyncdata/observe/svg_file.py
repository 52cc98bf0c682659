"""Pictures are written as SVG files."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from asyncdata.errors import PlanError

__all__ = ("write_svg",)


def write_svg(path: str | PathLike[str], picture: str) -> None:
    """Write a picture; `PlanError` for a file whose name says that it is not SVG."""
    file = Path(path)
    if file.suffix.lower() not in {"", ".svg"}:
        raise PlanError(f"plot() writes SVG, which browsers open: give a name that ends in .svg, got {file.name!r:.80}")
    file.write_text(picture, encoding="utf-8")
