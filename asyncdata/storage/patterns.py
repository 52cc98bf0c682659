"""Glob patterns for paths of objects, with the rules for local files, and the prefix to list for them."""

from __future__ import annotations

import re
from typing import Final

__all__ = ("Pattern",)

SPECIAL: Final = re.compile(r"\\[*?\[]|[*?]|\[")


PIECE: Final = re.compile(r"\\[*?\[]|\[[!^]?\]?[^\]]*\]|[*?]|[^*?\[\\]+|.", re.DOTALL)
"""An escaped character, a character class, a wildcard, or the text between them."""

WILD: Final = {"*": "[^/]*", "?": "[^/]"}


class Pattern:
    """A pattern of paths: `*` and `?` within a name, `**` over any number of folders, `[a-z]` and `[!a]`.

    As with files, `*` at the beginning of a name matches no name that begins with a dot, and a backslash escapes a
    special character.
    """

    def __init__(self, pattern: str) -> None:
        first = SPECIAL.search(pattern)
        self.plain = first is None
        self.prefix = pattern if first is None else pattern[: first.start()]
        """The prefix of all paths that match."""
        parts = pattern.split("/")
        self.expression = re.compile("".join(map(expression_of, parts, [*[False] * (len(parts) - 1), True])), re.DOTALL)

    def matches(self, path: str) -> bool:
        return self.expression.fullmatch(path) is not None


def expression_of(part: str, last: bool) -> str:
    """Return the regular expression for one part of a pattern, with the separator after it."""
    if part == "**":
        return r"(?:(?!\.)[^/]+/)*" + (r"(?!\.)[^/]+" if last else "")
    hidden = "" if part.startswith((".", "\\.", "[.")) or not part or part[0] not in "*?[" else r"(?!\.)"
    return hidden + PIECE.sub(lambda found: piece_expression(found[0]), part) + ("" if last else "/")


def piece_expression(piece: str) -> str:
    """Return the regular expression for an escaped character, a character class, a wildcard, or the text between."""
    if piece in WILD:
        return WILD[piece]
    if piece[0] == "[" and len(piece) > 2:
        negated = piece[1] in "!^"
        members = re.sub(r"[\\\[\]^&~|]", r"\\\g<0>", piece[1 + negated : -1])
        return f"[{'^/' if negated else ''}{members}]"
    return re.escape(piece[1:] if len(piece) == 2 and piece[0] == "\\" and piece[1] in "*?[" else piece)
