"""The files and objects of a log: how they are named, written and found.

A local log is a file that is appended to. When it is large, and in an object store from the beginning, it goes on in
parts, whose names have the time at which the run began, and a number: `run.20261127T234105000000-000001.jsonl`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from glob import escape, glob, has_magic
from itertools import groupby, islice
from pathlib import Path
from typing import Final

from asyncdata.errors import PlanError
from asyncdata.storage import is_local, local_path, store_for, without_query
from asyncdata.storage.cached import blocking
from asyncdata.storage.sinks import put_object

__all__ = ("LogFiles", "contents", "log_path", "parts_of", "paths_of")

FULL: Final = 1 << 28
"""From so many bytes on, a local log goes on in another part."""

PART: Final = re.compile(r"\.\d{8}T\d{12}-\d{6,}(?=(\.[^./\\]*)?$)")
"""What the name of a part has besides that of its log."""

TIME: Final = "%Y%m%dT%H%M%S%f"

BEGIN: Final = b'{"log":'
"""How a log begins."""

SPECIAL: Final = re.compile(r"[*?\[]")
"""What means something in a pattern."""

AT_ONCE: Final = 16
"""How many objects are read at once."""


class LogFiles:
    """Where the log of a run is written, piece by piece."""

    def __init__(self, record: str | os.PathLike[str], shares: Sequence[Sequence[int]]) -> None:
        self.path = log_path(record, shares)
        self.local = is_local(self.path)
        if self.local:
            check_writable(Path(self.path))
        self.number = 0

    @cached_property
    def began(self) -> datetime:
        """When the run began: after those in parts of this log, also where the clock stands or was put back."""
        now, path = datetime.now(UTC), Path(self.path)
        before = list[datetime | None]()
        with suppress(OSError):  # who may only write knows none
            before += map(began_of, parts_of(self.path)[-1:])
        if self.local and path.exists() and path.stat().st_size >= FULL:
            before.append(datetime.fromtimestamp(path.stat().st_mtime, UTC))
        return max([now, *[time + timedelta(microseconds=1) for time in before if time is not None]])

    def next_part(self) -> int:
        """Return the number of the part for the next piece: the one of the last piece as long as that may grow."""
        path = Path(self.name(self.number))
        return self.number if self.local and not (path.exists() and path.stat().st_size >= FULL) else self.number + 1

    def name(self, part: int) -> str:
        """Return the path or URL of a part."""
        root, ending = os.path.splitext(self.path)
        return f"{root}.{self.began:{TIME}}-{part:06}{ending}" if part else self.path

    def write(self, part: int, data: bytes, first: bool) -> None:
        """Write a piece at the end of a part; the `first` one of a run on a line of its own."""
        if self.local:
            append(Path(self.name(part)), data, first)
        else:
            put_object(self.name(part), data)
        self.number = part


def check_writable(path: Path) -> None:
    """Raise at the beginning of a run what writing would raise at its first state, and make the folder of the log.

    `PlanError` for a file that is no log: it would be spoilt.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    if path.is_file():
        with path.open("rb") as file:
            start = file.read(len(BEGIN))
        if not BEGIN.startswith(start):
            raise PlanError(
                f"record={str(path)!r} is a file that is no log of runs, and is not appended to: give another"
            )


def append(path: Path, data: bytes, first: bool) -> None:
    """Append to a file, in one piece or not at all; the first time on a line of its own, as the last one may have been
    cut off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:
        start = file.tell()
        if first and start and last_byte(path) != b"\n":
            data = b"\n" + data
        if file.write(data) != len(data):
            file.truncate(start)
            raise OSError(f"{path}: the log could not be written completely: the disk is full")


def last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read()


def log_path(record: str | os.PathLike[str], shares: Sequence[Sequence[int]]) -> str:
    """Return the path or URL of the log of one share: `run-1-of-4.jsonl` for `run.jsonl`.

    >>> log_path("run.jsonl", [(4, 1)])
    'run-1-of-4.jsonl'
    """
    root, ending = os.path.splitext(local_path(record) if is_local(record) else str(record))
    share = "".join([f"-{index}-of-{count}" for count, index in shares if count > 1])
    return f"{root}{share}{ending}"


def parts_of(path: str) -> list[str]:
    """Return the files or objects that a log consists of, those that are there."""
    root, ending = os.path.splitext(path)
    if is_local(path):
        found = [*([path] if os.path.exists(path) else []), *glob(f"{escape(root)}.*{escape(ending)}")]
    else:
        found = listed(SPECIAL.sub(r"\\\g<0>", root) + f".*{ending}")
    return sorted([one for one in found if PART.sub("", one) == path], key=by_log)


def listed(pattern: str) -> list[str]:
    """Return the objects that match a pattern."""
    store, inside = store_for(pattern)
    return [entry.path for entry in store.list(inside)]


def by_log(path: str) -> tuple[str, str]:
    """Return by what the parts of logs are sorted: the log, and their place in it."""
    return PART.sub("", path), path if PART.search(path) else ""


def began_of(path: str) -> datetime | None:
    """Return when the run of a part began, as its name says."""
    found = PART.search(path)
    try:
        return datetime.strptime(found[0][1:].partition("-")[0], TIME).replace(tzinfo=UTC) if found else None
    except ValueError:  # the name is not of a log's part
        return None


def paths_of(patterns: Sequence[str]) -> list[str]:
    """Return the files and objects that names and patterns of logs mean, each once, those of a log in order."""
    found: dict[str, str] = {}
    for one in patterns:
        if is_local(one):
            path = local_path(one)
            some = glob(path) if has_magic(path) else parts_of(path) or [path]
            found.update((os.path.realpath(path), path) for path in some)
        else:
            some = listed(one) if has_magic(one) else parts_of(one)
            found.update((path, path) for path in some)
        if not some:
            raise PlanError(f"no log matches {without_query(one)}")
    return sorted(found.values(), key=by_log)


def contents(paths: Sequence[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield each file or object, and its lines, which are read until the next one is asked for."""
    for local, some in groupby(paths, is_local):
        if local:
            for path in some:
                with Path(path).open("rb") as file:
                    yield path, file
        else:
            while names := [*islice(some, AT_ONCE)]:
                for name, content in zip(names, blocking(partial(read_all, names)), strict=True):
                    yield name, iter(content.splitlines(keepends=True))


async def read_all(urls: Sequence[str]) -> list[bytes]:
    return await asyncio.gather(*[store.read(path) for store, path in map(store_for, urls)])
