"""A short digest of a list of files, which shows whether the list has changed and where."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Self

__all__ = ("Files", "label_text", "stamps")

GROUPS: Final = 32
"""The most groups of files in a digest, four digits for each; up to 32 files are groups of one."""

WORDS: Final = re.compile(r"^(\d+) files #([0-9a-f]+):((?:[0-9a-f]{4})*)$")


@dataclass(frozen=True)
class Files:
    """How many files, a hash of all their names and sizes, and a short one of each group of consecutive files."""

    count: int
    digest: str
    groups: list[str]

    @classmethod
    def of(cls, names: Sequence[str]) -> Self:
        """Return the digest of these files as they are now."""
        from asyncdata.storage import without_query

        names = [without_query(name) for name in names]
        size, folder, groups = group_size(len(names)), folder_of(names), list[str]()
        total = blake2b(b"[", digest_size=4)  # of the text of the complete list, which is built one group at a time
        for place in range(0, len(names), size):
            text = repr(in_folder(names[place : place + size], folder))
            groups.append(blake2b(text.encode(), digest_size=2).hexdigest())
            total.update(f"{', ' if place else ''}{text[1:-1]}".encode())
        total.update(b"]")
        return cls(len(names), total.hexdigest(), groups)

    @classmethod
    def parse(cls, words: str) -> Self | None:
        """Return the digest in a state, `None` for other text."""
        found = WORDS.fullmatch(words)
        return None if found is None else cls(int(found[1]), found[2], re.findall("....", found[3]))

    def __str__(self) -> str:
        return f"{self.count} files #{self.digest}:{''.join(self.groups)}"

    def difference(self, names: Sequence[str]) -> str:
        """Return a description of where the files now differ from these."""
        size = group_size(self.count)
        now = in_groups(names_and_sizes(names), size)
        pairs = zip(self.groups, now, strict=False)
        place = next((i for i, (old, new) in enumerate(pairs) if old != new), min(len(self.groups), len(now)))
        where = between(names, place * size, size)
        more = len(names) - self.count
        if more == 0:
            return changed(where, size, sum(old != new for old, new in zip(self.groups, now, strict=True)))
        if size == 1 and more > 0 and now[place + more :] == self.groups[place:]:
            return f"{more} added, from {where} on; " if more > 1 else f"{where} was added; "
        gone = f"{abs(more)} file{'s' * (abs(more) > 1)} {'more' if more > 0 else 'fewer'}"
        if size == 1 and more < 0 and self.groups[place - more :] == now[place:]:
            return f"{gone}, which was before {where}; "
        return f"{gone}, and the first difference is at {where}; "


def label_text(words: object) -> str:
    """Return a label of a state for a message: a digest of files without the hashes of its groups."""
    return WORDS.sub(r"\1 files #\2", str(words))


def stamps(names: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return what identifies files in their current version: paths, sizes and modification times."""
    return [stamp(name) for name in names]


def stamp(name: str) -> tuple[str, int, int]:
    """Return the absolute path of a file, its size and its modification time; -1 for what is unknown."""
    from asyncdata.storage import is_local, store_for, without_query

    if not is_local(name):
        return without_query(name), -1, -1
    _, path = store_for(name)
    try:
        found = os.stat(path)
        return os.path.realpath(path), found.st_size, found.st_mtime_ns
    except OSError:
        return os.path.realpath(path), -1, -1


def names_and_sizes(names: Sequence[str]) -> list[tuple[str, int]]:
    """Return the files' names relative to their common folder, as it may be moved, and their sizes."""
    from asyncdata.storage import without_query

    names = [without_query(name) for name in names]
    return in_folder(names, folder_of(names))


def folder_of(names: Sequence[str]) -> int:
    """Return the length of the path of the common folder."""
    first, last = min(names, default=""), max(names, default="")
    same = next((place for place, (one, other) in enumerate(zip(first, last)) if one != other), len(first))
    return same - len(os.path.basename(first[:same]))


def in_folder(names: Sequence[str], folder: int) -> list[tuple[str, int]]:
    """Return the files' names without the folder, and their sizes."""
    from asyncdata.storage import size_of

    return [(name[folder:], size_of(name)) for name in names]


def group_size(count: int) -> int:
    """Return the size of a group."""
    return max(1, -(-count // GROUPS))


def in_groups(files: Sequence[tuple[str, int]], size: int) -> list[str]:
    """Return a short hash for each group of consecutive files."""
    groups = [files[place : place + size] for place in range(0, len(files), size)]
    return [blake2b(repr(group).encode(), digest_size=2).hexdigest() for group in groups]


def between(names: Sequence[str], place: int, size: int) -> str:
    """Return the name of a group of files in messages, or of the end of the list."""
    from asyncdata.storage import without_query

    group = [without_query(name) for name in names[place : place + size]]
    if not group:
        return "the end"
    return group[0] if len(group) == 1 else f"{group[0]} to {group[-1]}"


def changed(where: str, size: int, count: int) -> str:
    """Return the message for a list of the same length with a changed file."""
    if count == 0:
        return "a file has another name or size; "
    others = "" if count <= 1 else f", and {count - 1} more {'file' if size == 1 else 'group'}{'s' * (count > 2)}"
    return f"{'' if size == 1 else 'one of '}{where} has another name or size{others}; "
