"""The objects that a pattern may match, folder by folder, without listing what it does not name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeAlias

from asyncdata.storage.base import Entry
from asyncdata.storage.patterns import Pattern

__all__ = ("Item", "objects_by_folder")

Item: TypeAlias = tuple[str, Entry]
"""The path of an object, and its entry."""


class Listed(Protocol):
    """A bucket that is listed."""

    def find(self, path: str) -> Iterator[Item]: ...

    def below(self, prefix: str, after: str) -> Iterator[list[Item]]: ...

    def level(self, folder: str) -> tuple[list[Item], list[str]]: ...


def objects_by_folder(bucket: Listed, pattern: str, folder: str = "") -> Iterator[list[Item]]:
    """Yield the objects in a folder that a pattern below it may match, sorted, in lists: more than those that match.

    Only the folders are listed that the pattern matches so far, one request or more for each.
    """
    part, _, rest = pattern.partition("/")
    begin = f"{folder}/" if folder else ""
    if part == "**":
        yield from bucket.below(begin, "")
    elif (matcher := Pattern(part)).plain:
        yield from objects_by_folder(bucket, rest, begin + part) if rest else iter([[*bucket.find(begin + part)]])
    else:
        objects, folders = bucket.level(folder)
        if not rest:
            yield sorted(objects)
            return
        for inner in sorted(folders, key=lambda path: path + "/"):
            if matcher.matches(inner.removeprefix(begin)):
                yield from objects_by_folder(bucket, rest, inner)
