"""FilesystemStore: file systems of fsspec, for URLs that no other store reads; each part is read in a thread."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Any, Final

from asyncdata.errors import DataLossError
from asyncdata.runtime.optional_packages import require
from asyncdata.storage.base import BLOCK_BYTES, Entry, Runner
from asyncdata.storage.limit import Limit
from asyncdata.storage.options import StorageOptions
from asyncdata.storage.read_ahead import Part, ReadAhead
from asyncdata.storage.retries import Retries, Tries

__all__ = ("FilesystemStore",)

INSTALL: Final = "'asyncdata[remote]'"

READERS: Final = 8
"""Concurrent requests: each takes a thread."""

VERSIONS: Final = ("ETag", "etag", "e_tag", "version_id", "generation", "LastModified", "mtime", "modified", "created")
"""The fields in which file systems report a file's version; the first one present is used."""


class FilesystemStore:
    """The files of one file system of fsspec."""

    def __init__(self, scheme: str, root: str, options: StorageOptions) -> None:
        self.scheme = scheme
        self.retries = Retries()
        self.limit = Limit(READERS, READERS)
        url_to_fs = require("fsspec.core", f"{scheme}://", INSTALL).url_to_fs
        self.root = root
        self.system, inside = url_to_fs(root, **options.values)
        self.place = f"{root} {options.key.hex()}"
        """A string that identifies the store."""
        self.inside: str = inside.rstrip("/")
        """The root's path within the file system."""

    def __repr__(self) -> str:
        return f"FilesystemStore({self.scheme!r})"

    def list(self, pattern: str, after: str = "") -> Iterator[Entry]:
        """Yield the files that match, sorted; all are listed first."""
        found = self.tried(lambda: self.system.glob(pattern, detail=True))
        return iter([self.entry(path, found[path]) for path in sorted(found) if not after or self.url(path) > after])

    def url(self, path: str) -> str:
        """Return the URL of a path within the file system."""
        return path if "://" in path else self.root + path.removeprefix(self.inside)

    def head(self, path: str) -> Entry:
        """Return a file's size and version."""
        return self.entry(path, self.tried(lambda: self.system.info(path)))

    def entry(self, path: str, info: Any) -> Entry:
        """Return the entry of a file that the file system describes."""
        size = info.get("size")
        version = next((info[name] for name in VERSIONS if info.get(name)), "")
        label = version.isoformat() if isinstance(version, datetime) else str(version)
        return Entry(self.url(path), -1 if size is None else size, label)

    def stream(
        self, path: str, block_bytes: int = BLOCK_BYTES, offset: int = 0, runner: Runner | None = None
    ) -> ReadAhead:
        """Return the file's bytes from `offset` on, in blocks; the next parts are read ahead."""
        return ReadAhead(Threaded(self, runner), path, block_bytes, offset, runner)

    async def now(self, path: str) -> Entry:
        """Return a file's size and version."""
        return await asyncio.to_thread(self.head, path)

    async def read(self, path: str, start: int = 0, length: int | None = None, expected: Entry | None = None) -> bytes:
        """Return the file, or `length` bytes from `start` on."""
        if expected is not None and (await self.now(path))[1:] != expected[1:]:
            raise DataLossError(f"{self.url(path)}: the file was replaced while it was read")
        stop = None if length is None else start + length
        data = await asyncio.to_thread(self.bytes_of, path, start, stop)
        if length is not None and len(data) < length:
            raise DataLossError(f"{self.url(path)}: asked for {length} bytes from byte {start} on, got {len(data)}")
        return data

    def bytes_of(self, path: str, start: int, stop: int | None) -> bytes:
        """Return some bytes of a file, in the caller's thread."""
        bounds = {} if not start and stop is None else {"start": start, "end": stop}
        return self.tried(lambda: self.system.cat_file(path, **bounds))

    def part(self, path: str, start: int, stop: int, expected: Entry | None) -> Part:
        """Return the bytes from `start` to before `stop`, or to the file's end, in the caller's thread."""
        entry = self.head(path) if expected is None else expected
        if entry.size < 0:
            raise OSError(
                errno.ESPIPE, "its file system does not say its size, so it cannot be read in parts", entry.path
            )
        stop = min(stop, entry.size)
        data = self.bytes_of(path, start, stop) if stop > start else b""
        if len(data) < stop - start:
            raise DataLossError(f"{entry.path}: it ends at byte {start + len(data)}, but had {entry.size} bytes")
        return Part(memoryview(data), entry)

    def tried(self, work: Callable[[], Any]) -> Any:
        """Return the result of `work`, which is repeated after transient errors."""
        tries = Tries(self.retries)
        while True:
            try:
                return work()
            except (ConnectionError, TimeoutError) as error:
                time.sleep(tries.pause(error))


class Threaded:
    """A file system whose parts are read in the threads of a pipeline."""

    def __init__(self, store: FilesystemStore, runner: Runner | None) -> None:
        self.store = store
        self.limit = store.limit
        self.in_thread: Callable[[Callable[[], Part]], Any] = asyncio.to_thread if runner is None else runner.in_thread

    async def part(self, path: str, start: int, stop: int, expected: Entry | None = None) -> Part:
        """Return the bytes from `start` to before `stop`, or to the file's end."""
        async with self.limit.slot():
            return await self.in_thread(partial(self.store.part, path, start, stop, expected))
