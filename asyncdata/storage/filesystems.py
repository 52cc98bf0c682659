"""FilesystemStore: file systems of fsspec, for URLs that no other store reads; each part is read in a thread."""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from typing import Any, Final

from asyncdata.errors import DataLossError, MissingDependencyError
from asyncdata.redaction import redacted
from asyncdata.storage.base import BLOCK_BYTES, Entry, Runner
from asyncdata.storage.options import StorageOptions
from asyncdata.storage.read_ahead import ObjectPart, ReadAhead
from asyncdata.storage.request_limit import Limit
from asyncdata.storage.retries import Retries, Tries
from asyncdata.storage.servers import servers_of
from asyncdata.system import forks
from asyncdata.system.optional_packages import require

__all__ = ("FilesystemStore",)

INSTALL: Final = "'asyncdata[remote]'"

READERS: Final = 8
"""Concurrent requests: each takes a thread."""

THREAD_SAFE: Final = frozenset({"memory", "hf", "hdfs"})
"""The schemes whose file systems threads may share, besides those that are asynchronous. The others, such as FTP and
SFTP, have one connection for one request at a time."""

VERSIONS: Final = (
    "ETag", "etag", "e_tag", "version_id", "generation", "blob_id", "sha", "LastModified", "mtime", "modify",
    "modificationTime", "modified", "created",
)  # fmt: skip
"""The fields in which file systems report a file's version; the first one present is used."""

PROTOCOLS: Final = frozenset({"ftplib", "paramiko"})
"""The packages whose exceptions are no `OSError`."""


class FilesystemStore:
    """The files of one file system of fsspec."""

    def __init__(self, scheme: str, root: str, options: StorageOptions) -> None:
        self.scheme = scheme
        self.retries = Retries()
        self.root = root
        self.options = options
        servers = servers_of(root, options.values).items()
        self.identity = " ".join([root, options.key.hex(), *(f"{name}={value}" for name, value in servers)])
        """A string that identifies the store."""
        self.connect()
        self.is_shared = scheme in THREAD_SAFE or getattr(self.system, "async_impl", False)
        self.renew()
        forks.register(self)

    def connect(self) -> None:
        """Open a file system that only this store uses."""
        url_to_fs = require("fsspec.core", f"{self.scheme}://", INSTALL).url_to_fs
        try:
            self.system, inside = url_to_fs(self.root, skip_instance_cache=True, **self.options.values)
        except ImportError as error:  # that of a file system's own package, whose name fsspec tells
            raise MissingDependencyError(f"{self.scheme}://: {error}") from error
        self.inside: str = inside.rstrip("/")
        """The root's path within the file system."""
        self.is_connected = True

    def renew(self) -> None:
        """Begin without requests under way."""
        readers = READERS if self.is_shared else 1
        self.limit = Limit(readers, readers)
        self.turn: Any = nullcontext() if self.is_shared else threading.Lock()
        """Held while the file system is used."""

    def disown(self) -> None:
        """Leave the connection to the parent, in a forked child."""
        forks.never_finalize(self.system)  # which would end the parent's connection
        self.renew()
        self.is_connected = False

    def __repr__(self) -> str:
        return f"FilesystemStore({self.scheme!r})"

    def list(self, pattern: str, after: str = "") -> Iterator[Entry]:
        """Yield the files that match, sorted; all are listed first."""
        found = self.tried(lambda: (self.system.invalidate_cache(), self.system.glob(pattern, detail=True))[1], pattern)
        return iter([self.entry(path, found[path]) for path in sorted(found) if not after or self.url(path) > after])

    def url(self, path: str) -> str:
        """Return the URL of a path within the file system."""
        return path if "://" in path else self.root + path.removeprefix(self.inside)

    def shown(self, path: str) -> str:
        """Return the URL for messages, without a password."""
        return redacted(self.url(path))

    def head(self, path: str, is_current: bool = False) -> Entry:
        """Return a file's size and version, perhaps of an earlier listing unless they must be current."""

        def info() -> Any:
            if is_current:
                self.system.invalidate_cache()
            return self.system.info(path)

        return self.entry(path, self.tried(info, path))

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
            raise DataLossError(f"{self.shown(path)}: the file was replaced while it was read")
        stop = None if length is None else start + length
        data = await asyncio.to_thread(self.bytes_of, path, start, stop)
        if length is not None and len(data) < length:
            raise DataLossError(f"{self.shown(path)}: asked for {length} bytes from byte {start} on, got {len(data)}")
        return data

    def bytes_of(self, path: str, start: int, stop: int | None) -> bytes:
        """Return some bytes of a file, in the caller's thread."""
        bounds = {} if not start and stop is None else {"start": start, "end": stop}
        return self.tried(lambda: self.system.cat_file(path, **bounds), path)

    def read_part(self, path: str, start: int, stop: int, expected: Entry | None) -> ObjectPart:
        """Return the bytes from `start` to before `stop`, or to the file's end, in the caller's thread."""
        entry = self.head(path, is_current=start > 0) if expected is None else expected
        if entry.size < 0:
            raise OSError(
                errno.ESPIPE, "its file system does not say its size, so it cannot be read in parts", self.shown(path)
            )
        stop = min(stop, entry.size)
        data = self.bytes_of(path, start, stop) if stop > start else b""
        # another version may have the same size; after several parts an earlier listing may be outdated
        if self.head(path, is_current=0 < start < stop == entry.size)[1:] != entry[1:]:
            raise DataLossError(f"{self.shown(path)}: the file was replaced while it was read")
        if len(data) < stop - start:
            raise DataLossError(f"{self.shown(path)}: it ends at byte {start + len(data)}, but had {entry.size} bytes")
        return ObjectPart(memoryview(data), entry)

    def tried(self, work: Callable[[], Any], path: str) -> Any:
        """Return the result of `work`, which is repeated after transient errors, on a new connection."""
        tries = Tries(self.retries)
        while True:
            try:
                with self.turn:
                    if not self.is_connected:
                        self.connect()
                    return work()
            except Exception as error:  # noqa: BLE001  protocols have exceptions of their own
                time.sleep(tries.pause(explained(error, self.shown(path))))
                self.is_connected = False


def explained(error: Exception, url: str) -> Exception:
    """Return a builtin exception for one of a protocol; `ConnectionError` and `TimeoutError` are transient."""
    words = redacted(f"{url}: {type(error).__name__}: {error}")
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "no such file", url)
    if isinstance(error, PermissionError):
        return PermissionError(errno.EACCES, redacted(f"access denied: {error}"), url)
    if type(error).__name__ == "error_perm":  # FTP's statuses from 500 on
        return OSError(errno.EIO, redacted(str(error)), url)
    is_lost = isinstance(error, EOFError) or (type(error) is OSError and error.errno is None)
    return ConnectionError(words) if is_lost or type(error).__module__.partition(".")[0] in PROTOCOLS else error


class Threaded:
    """A file system whose parts are read in the threads of a pipeline."""

    def __init__(self, store: FilesystemStore, runner: Runner | None) -> None:
        self.store = store
        self.limit = store.limit
        self.in_thread: Callable[[Callable[[], ObjectPart]], Any] = (
            asyncio.to_thread if runner is None else runner.in_thread
        )

    async def read_part(self, path: str, start: int, stop: int, expected: Entry | None = None) -> ObjectPart:
        """Return the bytes from `start` to before `stop`, or to the file's end."""
        async with self.limit.slot():
            return await self.in_thread(partial(self.store.read_part, path, start, stop, expected))
