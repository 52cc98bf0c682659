"""Show the examples in docstrings as code: fence what starts with `>>>`, up to the next empty line."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from griffe import Extension, Object

__all__ = ("Doctests",)


class Doctests(Extension):
    """Fences the examples of every docstring that Griffe collects."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Return `text` with its doctests between fences."""
    lines: list[str] = []
    for blank, paragraph in groupby(text.splitlines(), key=lambda line: not line.strip()):
        block = list(paragraph)
        is_example = not blank and block[0].lstrip().startswith(">>>")
        shown = [line.replace("  # doctest: +SKIP", "") for line in block]
        lines += ["```pycon", *shown, "```"] if is_example else block
    return "\n".join(lines)
