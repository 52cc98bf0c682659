"""Listings: the names of files that match a pattern, all at once, or page by page where there are many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from glob import has_magic
from itertools import islice
from os import PathLike, fsdecode
from typing import Any, Final, TypeAlias

from asyncdata.elements.spec import TensorSpec
from asyncdata.errors import PlanError, ResumeError
from asyncdata.executors.scope import Scope
from asyncdata.graph.node import PHYSICAL, Node
from asyncdata.graph.stages import Produce
from asyncdata.redaction import redacted
from asyncdata.runtime.block import Block, Blocks, Demand
from asyncdata.runtime.tickets import END, ExplicitTickets, Position, ReplayedTickets, Ticket
from asyncdata.sources.file_names import FileNames
from asyncdata.storage import Entry, StorageOptions, is_local, is_web, store_for, without_query

__all__ = ("Listing", "Pattern", "buffer_for", "is_pattern", "listed", "matching")

Pattern: TypeAlias = str | bytes | PathLike[str]

MANY: Final = 10_000
"""Listing more names than this takes seconds, so they are listed while they are read, if the store sorts them."""

PAGE: Final = 1000


@dataclass(frozen=True, eq=False)
class Listing(Node):
    """The URLs of objects that match a pattern, in order, as they are listed."""

    pattern: str
    storage: StorageOptions | None = field(default=None, repr=False, metadata=PHYSICAL)

    def stage(self) -> Produce:
        return Produce(self.blocks)

    @property
    def signature(self) -> Any:
        return TensorSpec((), object)

    def label(self) -> str:
        return f"list_files({without_query(self.pattern)})"

    def entries(self, after: str = "") -> Iterator[Entry]:
        """Yield the entries that match, from the first one after `after`; may block."""
        store, path = store_for(self.pattern, self.storage)
        return store.list(path, store_for(after, self.storage)[1] if after else "")

    async def blocks(self, scope: Scope, want: Demand, position: Position) -> Blocks:
        """Yield names, page by page."""
        last = "" if position is None else self.parse_position(position, place_in)
        entries = self.entries(last and self.with_user(last))
        while page := await scope.in_thread(partial(page_of, entries)):
            start = 0
            while start < len(page):
                part = page[start : start + want.items]
                start += len(part)
                names = self.without_user(part)
                yield Block(part, ExplicitTickets(names, NamePositions([last, *names])))
                last = names[-1]

    async def fetch(self, scope: Scope, want: Demand, tickets: Sequence[Ticket]) -> Blocks:
        names = [*map(self.checked, tickets)]
        done = 0
        while done < len(names):
            some = names[done : done + want.items]
            yield Block(some, ReplayedTickets(tickets, done, done + len(some), END))
            done += len(some)

    def checked(self, ticket: Ticket) -> str:
        """Return the name in a state; `ResumeError` if it does not belong to this listing."""
        begin = self.pattern.partition("://")[0]
        if not isinstance(ticket, str) or not ticket.startswith(f"{begin}://"):
            raise ResumeError(f"{self.label()}: the state names {ticket!r:.80}, which is not one of the listed files")
        return self.with_user(ticket)

    @property
    def host(self) -> str:
        """The scheme and host of all names, with the user and password if the pattern has them."""
        scheme, _, rest = self.pattern.partition("://")
        return f"{scheme}://{rest.partition('/')[0]}"

    def without_user(self, names: list[str]) -> list[str]:
        """Return names for states and messages, which have no passwords."""
        host = self.host
        shown = redacted(host)
        return names if shown == host else [shown + name.removeprefix(host) for name in names]

    def with_user(self, name: str) -> str:
        """Return the name that a state means."""
        return self.host + name.removeprefix(redacted(self.host))


class NamePositions:
    """The positions after names: the name itself."""

    __slots__ = ("names",)

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def __call__(self, count: int) -> Position:
        return [self.names[count]] if self.names[count] else None


def place_in(position: Any) -> str:
    """Return the name after which a listing resumes."""
    (name,) = position
    if not isinstance(name, str):
        raise TypeError
    return name


def page_of(entries: Iterator[Entry]) -> list[str]:
    """Return the next names."""
    return [entry.path for entry in islice(entries, PAGE)]


def listed(
    method: str,
    pattern: Pattern | Sequence[Pattern],
    in_order: bool,
    storage_options: Mapping[str, Any] | None,
    cache_dir: Any = None,
) -> Node:
    """Return the source of the names that match: all names, or a lazy listing if they are many and sorted."""
    patterns = patterns_of(method, pattern)
    storage, keeping = StorageOptions.of(method, storage_options), StorageOptions.of(method, storage_options, cache_dir)
    if keeping is not None and keeping.cache is not None:  # all at once, as a part of a listing is not kept
        return FileNames(matching(method, pattern, keeping), storage=storage)
    if len(patterns) == 1 and in_order and not is_local(patterns[0]) and not is_web(patterns[0]):
        listing = Listing(patterns[0], storage)
        entries = listing.entries()
        names = [entry.path for entry in islice(entries, MANY)]
        if next(entries, None) is not None:
            return listing
        return FileNames(some(method, patterns, names), storage=listing.storage)
    return FileNames(matching(method, pattern, storage), storage=storage)


def matching(
    method: str,
    pattern: Pattern | Sequence[Pattern],
    storage_options: StorageOptions | Mapping[str, Any] | None = None,
) -> list[str]:
    """Return the paths that match one or several patterns, sorted; `FileNotFoundError` if none does."""
    patterns, storage = patterns_of(method, pattern), storage_options
    if not isinstance(storage, StorageOptions):
        storage = StorageOptions.of(method, storage)
    found: list[str] = []
    for one in patterns:
        if is_web(one) and not is_pattern(one):  # a web server cannot be listed, and the URL of a file is complete
            found.append(one)
            continue
        store, path = store_for(one, storage)
        found.extend(entry.path for entry in store.list(path))
    return some(method, patterns, found)


def is_pattern(path: str) -> bool:
    """Return whether a path or URL is a pattern: after a `?`, a web address has its query."""
    return has_magic(path.partition("?")[0] if is_web(path) else path)


def patterns_of(method: str, pattern: Pattern | Sequence[Pattern]) -> list[str]:
    try:
        return [*map(fsdecode, [pattern] if isinstance(pattern, (str, bytes, PathLike)) else pattern)]
    except TypeError:
        raise PlanError(
            f"{method}(file_pattern=) must be a str, bytes or a PathLike, or a list of these, got {pattern!r:.80}"
        ) from None


def some(method: str, patterns: Sequence[str], found: list[str]) -> list[str]:
    """Return the names found, sorted; `FileNotFoundError` if there are none."""
    if not found:
        wanted = ", ".join(map(without_query, patterns)) or "an empty list"
        raise FileNotFoundError(f"{method}: no file matches {wanted}")
    found.sort()
    return found


def buffer_for(files: Node) -> int | None:
    """Return the size of a buffer that shuffles all names; `None` for a lazy listing, as it would need to hold all."""
    many = isinstance(files, FileNames) and len(files.items) > MANY and not is_local(files.items[0])
    return None if many else files.cardinality
