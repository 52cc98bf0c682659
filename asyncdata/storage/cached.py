"""CachedStore: another machine's objects, of which whole ones are kept in a folder of this one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing
from functools import partial
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar, final

from asyncdata.runtime.memory_budget import MemoryBudget
from asyncdata.storage.base import BLOCK_BYTES, AnyPart, Buffer, Ended, Entry, Runner, Status, Store, Stream
from asyncdata.storage.cache_dir import CacheDir, Found, Keeping, changed_of
from asyncdata.storage.local import FileStream, RandomFile

__all__ = ("CachedStore", "Source")

T = TypeVar("T")

SEEN: Final[dict[tuple[str, str], tuple[int, int, Entry]]] = {}
"""The objects that this process has compared with what the store has, and whose checksum is right: by folder and key
the file's number and time of change."""

MOST_SEEN: Final = 1 << 17

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class Source(Store, Protocol):
    """A store whose objects may be kept."""

    @property
    def place(self) -> str:
        """What distinguishes it from all other stores."""
        ...

    async def now(self, path: str) -> Entry:
        """Return what an object is, by a small request."""
        ...

    async def read(self, path: str, start: int = 0, length: int | None = None, expected: Entry | None = None) -> bytes:
        """Return the object, or `length` bytes from `start` on, all of which must be there; of what is `expected`."""
        ...


class Held(NamedTuple):
    """An object that is kept, and what it is."""

    file: Found
    entry: Entry


@final
class CachedStore:
    """A store, objects of which are read from a folder where they are kept, and kept there as they are read."""

    def __init__(self, store: Source, cache: CacheDir) -> None:
        self.store = store
        self.cache = cache

    def __repr__(self) -> str:
        return f"CachedStore({self.store!r}, {self.cache!r})"

    def list(self, pattern: str, after: str = "") -> Iterator[Entry]:
        """Yield what matches; listings are not kept."""
        return self.store.list(pattern, after)

    def head(self, path: str) -> Entry:
        """Return what an object is now."""
        return blocking(lambda: self.store.now(path))

    def stream(
        self, path: str, block_bytes: int = BLOCK_BYTES, offset: int = 0, runner: Runner | None = None
    ) -> CachedStream:
        """Return the object's bytes; what is read from its beginning to its end is kept."""
        return CachedStream(self, path, block_bytes, offset, runner)

    async def read(self, path: str) -> bytes:
        """Return the object, which is kept from then on."""
        return await alone(partial(self.joined, path))

    async def joined(self, path: str, runner: Runner) -> bytes:
        """Return all blocks of an object."""
        stream = self.stream(path, runner=runner)
        async with aclosing(stream):
            return b"".join([bytes(block) async for block in stream])

    def open(self, path: str) -> AnyPart:
        """Return the object, which is kept from then on, to read parts of it; the store's own if there is no room."""
        key = self.key(path)
        found = self.cache.find(key)
        if found is not None and self.seen(key, found) is not None:
            return RandomFile(found.take())
        return blocking(lambda: self.kept(path))

    async def kept(self, path: str) -> AnyPart:
        """Return an object, got and kept if it is not there."""
        key = self.key(path)
        while True:
            held = await self.find(path, asyncio.to_thread)
            if held is not None:
                return RandomFile(held.file.take())
            keeping = await alone(partial(self.get, path))
            if keeping is not None and keeping.busy:
                await asyncio.to_thread(self.cache.wait, key)
            elif keeping is not None and not keeping.kept:
                return RemoteFile(self.store, path, keeping.entry)

    async def get(self, path: str, runner: Runner) -> Keeping | None:
        """Keep an object if there is room; `None` if it is kept already."""
        stream = self.stream(path, runner=runner)
        async with aclosing(stream):
            await stream.begin()
            while stream.is_keeping and await anext(stream, None) is not None:
                pass
        return stream.keeping

    # what is kept

    def key(self, path: str) -> str:
        """Return the name that an object has in the folder."""
        return blake2b(f"{self.store.place}\n{path}".encode(errors="surrogatepass"), digest_size=20).hexdigest()

    async def find(self, path: str, in_thread: InThread) -> Held | None:
        """Return an object that is kept and is what the store has now, which is asked once by each process."""
        key = self.key(path)
        found: Found | None = await in_thread(partial(self.cache.find, key))
        if found is None:
            return None
        if (entry := self.seen(key, found)) is not None:
            return Held(found, entry)
        entry = await self.store.now(path)
        if not await in_thread(partial(self.good, key, found, entry)):
            await in_thread(partial(self.cache.remove, key))
            return None
        self.see(key, found.number, entry)
        return Held(found, entry)

    def see(self, key: str, number: int, entry: Entry) -> None:
        """Note that a file is complete, and what the store has."""
        while len(SEEN) >= MOST_SEEN:
            SEEN.pop(next(iter(SEEN)), None)
        SEEN[str(self.cache.folder), key] = (number, changed_of(entry), entry)

    def seen(self, key: str, found: Found) -> Entry | None:
        """Return what an object is that this process has looked at before."""
        number, changed, entry = SEEN.get((str(self.cache.folder), key), (-1, -1, None))
        return entry if (number, changed) == (found.number, found.changed) else None

    def good(self, key: str, found: Found, entry: Entry) -> bool:
        """Return whether a file is complete, and what the store has."""
        metadata = self.cache.metadata(key, found)
        if metadata is None or (metadata["size"], metadata["version"]) != (entry.size, entry.version):
            return False
        return metadata["crc32c"] == found.checksum()


class CachedStream:
    """The bytes of an object in blocks: from the folder, or from the store, and then kept."""

    def __init__(self, store: CachedStore, path: str, block_bytes: int, offset: int, runner: Runner | None) -> None:
        self._store = store
        self._path = path
        self._block_bytes = block_bytes
        self._offset = offset
        self._runner = runner
        self._in_thread: InThread = asyncio.to_thread if runner is None else runner.in_thread
        self._entry = Entry("")
        self._stream: Stream | None = None
        self.keeping: Keeping | None = None

    @property
    def is_keeping(self) -> bool:
        """Whether what is read is being kept."""
        return self.keeping is not None and not self.keeping.ended

    async def begin(self) -> Entry:
        """Return what is to be read."""
        if self._stream is not None:
            return self._entry
        held = await self._store.find(self._path, self._in_thread)
        if held is not None:
            self._entry = held.entry
            url, descriptor = held.entry.path, held.file.take()
            self._stream = FileStream(url, self._block_bytes, self._offset, self._in_thread, descriptor)
            return self._entry
        self._stream = self._store.store.stream(self._path, self._block_bytes, self._offset, self._runner)
        self._entry = await self._stream.begin()
        if not self._offset:
            self.keeping = Keeping(self._store.cache, self._store.key(self._path), self._entry)
            await self._in_thread(self.keeping.begin)
        return self._entry

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Buffer:
        await self.begin()
        assert self._stream is not None
        block = await anext(self._stream, None)
        keeping = self.keeping
        if keeping is not None and not keeping.ended:
            await self._in_thread(keeping.finish if block is None else partial(keeping.write, block))
            if keeping.kept:
                self._store.see(keeping.key, keeping.number, keeping.entry)
        if block is None:
            raise StopAsyncIteration
        return block

    async def aclose(self) -> None:
        """End what is under way, without waiting; an object that was not read to its end is not kept."""
        if self.keeping is not None:
            self.keeping.abort()
        if self._stream is not None:
            await self._stream.aclose()


class RemoteFile:
    """An object that there is no room for, of which parts are read from its store, in the caller's thread."""

    def __init__(self, store: Source, path: str, entry: Entry) -> None:
        self._store = store
        self._path = path
        self._entry = entry

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def status(self) -> Status:
        """Return what the object is, as if it were kept."""
        return Status(self._entry.size, changed_of(self._entry))

    def read_at(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on, fewer at the end."""
        size = min(size, self._entry.size - offset)
        return b"" if size <= 0 else blocking(lambda: self._store.read(self._path, offset, size, self._entry))

    def fill_at(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` from `offset` on; return how many bytes there were."""
        data = self.read_at(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def peek_at(self, offset: int, buffer: memoryview) -> int:
        """Return 0: nothing is at hand."""
        return 0


class Alone:
    """Who runs what a stream does where there is no pipeline."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.group = group
        self.budget = MemoryBudget()

    async def in_thread(self, call: Callable[[], T], /) -> T:
        """Run a blocking call in a thread of asyncio's."""
        return await asyncio.to_thread(call)

    def spawn(self, run: Callable[[], Awaitable[None]], /) -> Ended:
        """Start a task."""

        async def task() -> None:
            await run()

        return Cancelled(self.group.create_task(task()))


async def alone(work: Callable[[Runner], Awaitable[T]]) -> T:
    """Return what is done with the tasks of nobody else, which have ended then."""
    failed: Exception
    async with asyncio.TaskGroup() as group:
        try:
            return await work(Alone(group))
        except Exception as error:  # noqa: BLE001  it is raised as it is, and not in a group
            failed = error
    raise failed


class Cancelled(NamedTuple):
    """A task that can be told to end."""

    task: asyncio.Task[None]

    def cancel(self) -> None:
        """Have it end soon."""
        self.task.cancel()


def blocking(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return what a coroutine returns, in a loop of its own: of this thread, or of another if this one has a loop."""
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
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return outcome[0]
