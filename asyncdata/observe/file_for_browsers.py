"""Pictures and reports are written as files that browsers open."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from asyncdata.errors import PlanError
from asyncdata.redaction import redacted
from asyncdata.storage import local_path

__all__ = ("check_name", "write_file")


def write_file(method: str, kind: str, path: str | PathLike[str], content: str) -> None:
    """Write a file of a kind, `"SVG"` or `"HTML"`; `PlanError` if its name says that it is of another kind."""
    check_name(f"{method}()", kind, path).write_text(content, encoding="utf-8")


def check_name(what: str, kind: str, path: str | PathLike[str]) -> Path:
    """Return the path of a file of a kind; `PlanError` if its name says that it is of another kind."""
    suffix = f".{kind.lower()}"
    file = Path(local_path(path, "pictures and reports"))
    if file.suffix.lower() not in {"", suffix}:
        got = f"got {redacted(file.name)!r:.80}"
        raise PlanError(f"{what} writes {kind}, which browsers open: give a name that ends in {suffix}, {got}")
    return file
