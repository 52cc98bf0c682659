"""Header: describes in a cache file the pipeline of its elements, so that no other pipeline uses them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from itertools import count, zip_longest
from typing import Any, Final, NamedTuple, Self

from asyncdata.errors import DataLossError, ResumeError
from asyncdata.formats.tfrecord import HEADER, RecordParser
from asyncdata.graph.node import Node, nodes_of
from asyncdata.identity.content_hash import changed
from asyncdata.runtime.json_text import parse_json
from asyncdata.sources.file_list_digest import label_text
from asyncdata.states import seeds_of, shares_of, with_seeds
from asyncdata.storage import RandomFile
from asyncdata.transforms.cache import hashed_name

__all__ = ("HEAD", "TAIL", "EndMark", "Header", "recorded_end")

HEAD: Final = b"\0asyncdata kept 1\n"
"""Begins the first record of a file. No element begins with a zero."""

TAIL: Final = b"\0asyncdata end\n"
"""Begins the last record of a file that is complete."""

LAST: Final = 64
"""No last record is longer."""

USUAL: Final = 1 << 14
MOST: Final = 1 << 22
"""Most headings are shorter than this, and none is longer than that."""


class EndMark(NamedTuple):
    """The last record of a complete file: how many elements it has; and the checksum of all, if another run may give
    others."""

    elements: int
    checksum: int | None = None

    def record(self) -> bytes:
        return TAIL + " ".join([str(part) for part in self if part is not None]).encode()

    @classmethod
    def parse(cls, record: bytes) -> Self:
        return cls(*map(int, record.removeprefix(TAIL).split()))


class Header(NamedTuple):
    """A pipeline as text, its shares and seeds, whether it is repeatable, and hashes of what labels leave out; of a
    complete file that is not repeatable also the checksum of its elements."""

    plan: list[str]
    shares: list[list[int]]
    seeds: list[tuple[int, int]]
    repeatable: bool
    contents: list[str]
    checksum: int | None = None

    @classmethod
    def of(cls, plan: Node, contents: Sequence[str]) -> Self:
        shares, seeds = [*map(list, shares_of(plan))], [*seeds_of(plan).items()]
        words = [node.identity for node in nodes_of(plan) if node.identity is not None]
        return cls(words, shares, seeds, plan.repeatable, [*contents])

    def record(self) -> bytes:
        """Return the heading as the first record of a file."""
        parts = {name: part for name, part in self._asdict().items() if name != "checksum"}  # which is in the end mark
        return HEAD + json.dumps(parts, separators=(",", ":")).encode()

    @classmethod
    def read(cls, path: str) -> Self | None:
        """Return the heading of a file; `None` if there is no file, `ResumeError` if it has none."""
        parser = RecordParser(path)
        try:
            with RandomFile(path) as file:
                for offset, size in ((0, USUAL), (USUAL, MOST)):
                    parser.feed(file.read_at(offset, size))
                    if found := parser.parse(1):
                        return cls.parse(path, found[0])._replace(checksum=checksum_in(recorded_end(path)))
        except FileNotFoundError:
            return None
        return cls.parse(path, b"")

    @classmethod
    def parse(cls, path: str, record: bytes | DataLossError) -> Self:
        if isinstance(record, bytes) and record.startswith(HEAD):
            with suppress(ValueError, TypeError, KeyError):
                return cls(**checked(parse_json(record.removeprefix(HEAD))))
        raise ResumeError(f"{path}: not a cache file, or one of another version; delete it, or give another name")

    def check(self, path: str, plan: Node, contents: Sequence[str]) -> None:
        """Raise `ResumeError` unless the file is of this pipeline; where the user gave no seed, any seed fits."""
        now = Header.of(plan, contents)
        for place, (old, new) in enumerate(zip_longest(self.plan, now.plan)):
            if old != new:
                words = (
                    f"step {place + 1} was {label_text(old or 'nothing')}, and is {label_text(new or 'nothing')} now"
                )
                raise another(path, words)
        if (place := changed(self.contents, now.contents)) is not None:
            if place >= len(now.plan):
                raise another(path, "exclude() leaves out other records now")
            raise another(path, f"step {place + 1}, {label_text(now.plan[place])}, has other code or data now")
        if self.shares != now.shares:
            raise another(path, f"it is of share {self.shares}, and this is {now.shares}")
        identified = [node for node in nodes_of(plan) if node.identity is not None]
        for place, seed in self.seeds:
            chance = identified[place].chance
            if chance is not None and not chance.drawn and chance.seed != seed:
                raise another(path, f"the seed of step {place + 1} was {seed}, and is {chance.seed} now")

    @property
    def its_name(self) -> int:
        """The name of the elements, which tells them from those of other runs and seeds."""
        return hashed_name(repr((self.checksum, [*map(list, self.seeds)])))

    def name(self, plan: Node) -> int | None:
        """Return that name, or `None` if a plan gives the same elements in all runs."""
        drawn = any(node.chance is not None and node.chance.drawn for node in nodes_of(plan))
        return None if self.checksum is None and not drawn else self.its_name

    def seeded(self, plan: Node) -> Node:
        """Return the plan with the seeds that the elements were made with."""
        return with_seeds(plan, dict[int, int](self.seeds), False, count())


def checked(content: Any) -> dict[str, Any]:
    """Return the decoded heading; `ValueError` or `TypeError` if its parts are invalid."""
    for name in ("plan", "contents"):
        if type(content[name]) is not list or {*map(type, content[name])} - {str}:
            raise ValueError(f"{name} should be strings, got {content[name]!r:.80}")
    for name in ("shares", "seeds"):
        if any([*map(type, pair)] != [int, int] for pair in content[name]):
            raise ValueError(f"{name} should be pairs of integers, got {content[name]!r:.80}")
    return content


def recorded_end(path: str) -> EndMark | None:
    """Return the last record of a file; `None` if there is no file, or no such record."""
    parser = RecordParser(path)
    try:
        with RandomFile(path) as file:
            end = file.status().size
            data = file.read_at(max(0, end - LAST), LAST)
    except FileNotFoundError:
        return None
    parser.feed(data[max(0, data.rfind(TAIL) - HEADER) :])
    found = parser.parse(2)
    if len(found) == 1 and isinstance(found[0], bytes) and found[0].startswith(TAIL):
        return EndMark.parse(found[0])
    return None


def checksum_in(mark: EndMark | None) -> int | None:
    return None if mark is None else mark.checksum


def another(path: str, words: str) -> ResumeError:
    """Return the error for a file of another pipeline."""
    return ResumeError(f"{path} has the elements of another pipeline: {words}; delete it, or give another name")
