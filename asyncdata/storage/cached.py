"""CachedStore: the objects of a remote store, cached as complete files in a local folder."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import aclosing, contextmanager
from functools import partial
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol, TypeVar, final

from asyncdata.runtime.memory_budget import MemoryBudget
from asyncdata.runtime.open_files import OpenFiles
from asyncdata.storage.base import BLOCK_BYTES, AnyPart, Buffer, Cancellable, Entry, Runner, Status, Store, Stream
from asyncdata.storage.cache_dir import CachedFile, CacheDir, CacheWriter, version_mtime
from asyncdata.storage.local import FileStream, RandomFile
from asyncdata.system.signal_handlers import start_thread

__all__ = ("CachedStore", "RemoteFile", "Source", "blocking")

T = TypeVar("T")

VERIFIED: Final[dict[tuple[str, str], tuple[int, int, Entry]]] = {}
"""The cached objects that this process has compared with the store, and whose checksum is right: the file's inode
number, its modification time and the object's entry by folder and key."""

MAX_VERIFIED: Final = 1 << 17

NO_ANSWER: Final = (ConnectionRefusedError, TimeoutError)
"""What a request ends with, after its retries, if no server answers."""

ASK_AGAIN: Final = 5.0
"""Seconds after a request without an answer in which cached objects are read without asking."""


class Outage:
    """The time from a store's first request without an answer until its next answer."""

    def __init__(self) -> None:
        self.until = 0.0
        """Until when no object that is cached is asked for."""
        self.words = ""
        """The message of the last error."""
        self.warned = set[str]()
        """The folders of which the log says that they are read without asking."""


OUTAGES: Final[dict[str, Outage]] = {}
"""The outage of each store that does not answer, by its identity."""

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class Source(Store, Protocol):
    """A store whose objects can be cached."""

    @property
    def identity(self) -> str:
        """A string that identifies the store."""
        ...

    async def now(self, path: str) -> Entry:
        """Return the entry of an object, by a small request."""
        ...

    async def read(self, path: str, start: int = 0, length: int | None = None, expected: Entry | None = None) -> bytes:
        """Return the object, or exactly `length` bytes from `start` on, of the version that is `expected`."""
        ...


class CachedObject(NamedTuple):
    """An object that is cached: its file and its entry."""

    file: CachedFile
    entry: Entry


@final
class CachedStore:
    """A store whose objects are read from a cache folder. Objects that are not cached are cached as they are read."""

    def __init__(self, store: Source, cache: CacheDir) -> None:
        self.store = store
        self.cache = cache

    def __repr__(self) -> str:
        return f"CachedStore({self.store!r}, {self.cache!r})"

    def list(self, pattern: str, after: str = "") -> Iterator[Entry]:
        """Yield the objects that match, of a complete listing that is kept if no server answers."""
        listing, found = self.key(f"{pattern}\nlisting"), list[Entry]()
        entries = self.store.list(pattern, after)
        try:
            while (entry := self.next_listed(entries)) is not None:
                found.append(entry)
                yield entry
        except NO_ANSWER as error:
            kept = None if found else self.cache.listing(listing)
            if kept is None:
                raise
            self.warn_unanswered(error)
            yield from [entry for entry in kept if entry.path > after or not after]
            return
        if not after:
            self.cache.keep_listing(listing, found)

    def next_listed(self, entries: Iterator[Entry]) -> Entry | None:
        with self.noting_outage():
            return next(entries, None)

    def head(self, path: str) -> Entry:
        """Return the current entry of an object; of one that is kept, if no server answers."""
        try:
            return blocking(lambda: self.now(path))
        except NO_ANSWER as error:
            key = self.key(path)
            if (found := self.cache.find(key)) is None:
                raise
            return self.entry_kept(key, found, error)

    def stream(
        self, path: str, block_bytes: int = BLOCK_BYTES, offset: int = 0, runner: Runner | None = None
    ) -> CachedStream:
        """Return the object's bytes; an object that is read completely is cached."""
        return CachedStream(self, path, block_bytes, offset, runner)

    async def read(self, path: str) -> bytes:
        """Return the object's bytes, and cache it."""
        return await run_in_group(partial(self.joined, path))

    async def joined(self, path: str, runner: Runner) -> bytes:
        """Return all blocks of an object in one bytes object."""
        stream = self.stream(path, runner=runner)
        async with aclosing(stream):
            return b"".join([bytes(block) async for block in stream])

    def open(self, path: str) -> AnyPart:
        """Cache the object and return it to read parts of it; parts are read from the store if there is no space."""
        key = self.key(path)
        found = self.cache.find(key)
        if found is not None and self.verified(key, found) is not None:
            return RandomFile(found.take())
        return blocking(lambda: self.fetch(path))

    async def fetch(self, path: str) -> AnyPart:
        """Return an object, downloaded to the cache if it is not there."""
        key = self.key(path)
        while True:
            cached = await self.find(path, asyncio.to_thread)
            if cached is not None:
                return RandomFile(cached.file.take())
            writer = await run_in_group(partial(self.download, path))
            if writer is not None and writer.busy:
                try:
                    await asyncio.to_thread(self.cache.wait, key)
                except PermissionError:  # another user writes it, and nobody else may read it
                    return RemoteFile(self.store, path, writer.entry)
            elif writer is not None and not writer.published:
                return RemoteFile(self.store, path, writer.entry)

    async def download(self, path: str, runner: Runner) -> CacheWriter | None:
        """Cache an object if there is space; `None` if it is cached already."""
        stream = self.stream(path, runner=runner)
        async with aclosing(stream):
            await stream.begin()
            while stream.is_caching and await anext(stream, None) is not None:
                pass
        return stream.writer

    # cached objects

    def key(self, path: str) -> str:
        """Return the name of an object in the folder."""
        return blake2b(f"{self.store.identity}\n{path}".encode(errors="surrogatepass"), digest_size=20).hexdigest()

    async def find(self, path: str, in_thread: InThread) -> CachedObject | None:
        """Return an object that is cached in the store's version; each process asks the store for that once."""
        key = self.key(path)
        found: CachedFile | None = await in_thread(partial(self.cache.find, key))
        if found is None:
            return None
        if (entry := self.verified(key, found)) is not None:
            return CachedObject(found, entry)
        try:
            entry = await self.now(path)
        except NO_ANSWER as error:
            return CachedObject(found, await in_thread(partial(self.entry_kept, key, found, error)))
        if not await in_thread(partial(self.is_valid, key, found, entry)):
            await in_thread(partial(self.discard, key, entry))
            return None
        self.mark_verified(key, found.number, entry)
        return CachedObject(found, entry)

    async def now(self, path: str) -> Entry:
        """Return the entry of an object; for a short time after no server answered, none is asked."""
        outage = OUTAGES.get(self.store.identity)
        if outage is not None and time.monotonic() < outage.until:
            raise ConnectionRefusedError(outage.words)
        with self.noting_outage():
            return await self.store.now(path)

    @contextmanager
    def noting_outage(self) -> Generator[None]:
        """Begin or prolong the store's outage if a request ends without an answer; end it at any other outcome."""
        try:
            yield
        except NO_ANSWER as error:
            outage = OUTAGES.setdefault(self.store.identity, Outage())
            outage.until, outage.words = time.monotonic() + ASK_AGAIN, str(error)
            raise
        except Exception:
            self.end_outage()
            raise
        self.end_outage()

    def end_outage(self) -> None:
        """Note that the store has answered."""
        OUTAGES.pop(self.store.identity, None)

    def warn_unanswered(self, error: Exception) -> None:
        """Log, once in an outage, that the folder is read without a comparison with the store."""
        outage = OUTAGES.setdefault(self.store.identity, Outage())  # it may have ended since the request
        self.cache.warn_unanswered(error, outage.warned)

    def entry_kept(self, key: str, found: CachedFile, error: Exception) -> Entry:
        """Return the entry of an intact file, as no server tells whether there is a newer version; else raise."""
        metadata = self.cache.metadata(key, found)
        if metadata is None or metadata["crc32c"] != found.checksum():
            raise error
        self.warn_unanswered(error)
        return Entry(metadata["url"], metadata["size"], metadata["version"])

    def discard(self, key: str, entry: Entry) -> None:
        """Remove an object that is outdated; if it is another user's it stays, and the store's is not cached."""
        try:
            self.cache.remove(key)
        except OSError as error:
            self.cache.report(entry.path, error)

    def mark_verified(self, key: str, number: int, entry: Entry) -> None:
        """Note that a file is complete and has the store's version."""
        while len(VERIFIED) >= MAX_VERIFIED:
            VERIFIED.pop(next(iter(VERIFIED)), None)
        VERIFIED[str(self.cache.folder), key] = (number, version_mtime(entry), entry)

    def verified(self, key: str, found: CachedFile) -> Entry | None:
        """Return the entry of an object that this process has verified; `None` for others."""
        number, changed, entry = VERIFIED.get((str(self.cache.folder), key), (-1, -1, None))
        return entry if (number, changed) == (found.number, found.changed) else None

    def is_valid(self, key: str, found: CachedFile, entry: Entry) -> bool:
        """Return whether a file is complete and has the store's version."""
        metadata = self.cache.metadata(key, found)
        if metadata is None or (metadata["size"], metadata["version"]) != (entry.size, entry.version):
            return False
        return metadata["crc32c"] == found.checksum()


class CachedStream(Stream):
    """The bytes of an object in blocks, from the folder or from the store. Those from the store are cached."""

    def __init__(self, store: CachedStore, path: str, block_bytes: int, offset: int, runner: Runner | None) -> None:
        self._store = store
        self._path = path
        self._block_bytes = block_bytes
        self._offset = offset
        self._runner = runner
        self._in_thread: InThread = asyncio.to_thread if runner is None else runner.in_thread
        self._entry = Entry("")
        self._stream: Stream | None = None
        self._is_remote = False
        self.writer: CacheWriter | None = None

    @property
    def is_caching(self) -> bool:
        """Whether the object is being written to the cache."""
        return self.writer is not None and not self.writer.ended

    async def begin(self) -> Entry:
        """Open the object; return its entry."""
        if self._stream is not None:
            return self._entry
        cached = await self._store.find(self._path, self._in_thread)
        if cached is not None:
            self._entry = cached.entry
            url, descriptor = cached.entry.path, cached.file.take()
            executor = None if self._runner is None else self._runner.executor
            self._stream = FileStream(url, self._block_bytes, self._offset, executor, descriptor)
            return self._entry
        self._stream = self._store.store.stream(self._path, self._block_bytes, self._offset, self._runner)
        with self._store.noting_outage():
            self._entry = await self._stream.begin()
        self._is_remote = True
        if not self._offset:
            self.writer = CacheWriter(self._store.cache, self._store.key(self._path), self._entry)
            await self._in_thread(self.writer.begin)
        return self._entry

    async def __anext__(self) -> Buffer:
        await self.begin()
        assert self._stream is not None
        block = await anext(self._stream, None)
        if self._is_remote:
            self._store.end_outage()
        writer = self.writer
        if writer is not None and not writer.ended:
            await self._in_thread(writer.finish if block is None else partial(writer.write, block))
            if writer.published:
                self._store.mark_verified(writer.key, writer.number, writer.entry)
        if block is None:
            raise StopAsyncIteration
        return block

    async def aclose(self) -> None:
        """Stop reading, without waiting; an object that was not read to its end is not cached."""
        if self.writer is not None:
            self.writer.abort()
        if self._stream is not None:
            await self._stream.aclose()


class RemoteFile(AnyPart):
    """An object that does not fit in the cache: parts of it are read from its store, in the caller's thread."""

    def __init__(self, store: Source, path: str, entry: Entry) -> None:
        self._store = store
        self._path = path
        self._entry = entry

    def __exit__(self, *_: object) -> None:
        return None

    def status(self) -> Status:
        return Status(self._entry.size, version_mtime(self._entry))

    def read_at(self, offset: int, size: int) -> bytes:
        size = min(size, self._entry.size - offset)
        return b"" if size <= 0 else blocking(lambda: self._store.read(self._path, offset, size, self._entry))

    def fill_at(self, offset: int, buffer: memoryview) -> int:
        data = self.read_at(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def peek_at(self, offset: int, buffer: memoryview) -> int:
        """Return 0: no bytes are available without a request."""
        return 0


class TaskGroupRunner:
    """Runs the calls and tasks of a stream outside a pipeline, in a task group."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.group = group
        self.budget = MemoryBudget()
        self.executor = None
        self.open_files = OpenFiles()

    async def in_thread(self, call: Callable[[], T], /) -> T:
        """Run a blocking call in a thread of asyncio's executor."""
        return await asyncio.to_thread(call)

    def spawn(self, run: Callable[[], Awaitable[None]], /) -> Cancellable:
        async def task() -> None:
            await run()

        return CancellableTask(self.group.create_task(task()))


async def run_in_group(work: Callable[[Runner], Awaitable[T]]) -> T:
    """Return the result of `work`, whose tasks run in their own group and have ended when this returns."""
    failed: Exception
    async with asyncio.TaskGroup() as group:
        try:
            return await work(TaskGroupRunner(group))
        except Exception as error:  # noqa: BLE001  it is raised by itself, not in a group
            failed = error
    raise failed


class CancellableTask(NamedTuple):
    """A task that can be cancelled."""

    task: asyncio.Task[None]

    def cancel(self) -> None:
        self.task.cancel()


def blocking(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in a new event loop and return its result; in a new thread if this thread has a loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    outcome: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(asyncio.run(work()))
        except BaseException as error:  # noqa: BLE001  it is raised in the thread that asked
            errors.append(error)

    thread = threading.Thread(target=run, name="asyncdata-get")
    start_thread(thread)
    thread.join()
    if errors:
        raise errors[0]
    return outcome[0]
