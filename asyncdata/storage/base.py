"""Store: the interface through which sources read files and objects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from typing import Final, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from asyncdata.runtime.memory_budget import MemoryBudget
from asyncdata.runtime.open_files import OpenFiles

__all__ = ("BLOCK_BYTES", "AnyPart", "Buffer", "Cancellable", "Entry", "Runner", "Status", "Store", "Stream")

T = TypeVar("T")

Buffer: TypeAlias = bytes | bytearray | memoryview

BLOCK_BYTES: Final = 2 << 20
"""Bytes of a block: smaller blocks cost more calls, larger ones do not fit in the processor's cache."""


class Entry(NamedTuple):
    """The size of the file at a path in bytes, -1 if unknown, and its version.

    A version is an entity tag, a generation or a date. Local files have none, as they may be moved.
    """

    path: str
    size: int = -1
    version: str = ""


class Status(NamedTuple):
    """A file's size and modification time in nanoseconds, which show whether it has changed."""

    size: int
    changed_ns: int


class AnyPart(Protocol):
    """A file for reads of parts, in the caller's thread; use it in a `with` block, which closes it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        ...

    def status(self) -> Status:
        """Return the file's current status."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on, fewer at the end."""
        ...

    def fill_at(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` from `offset` on; return how many bytes there were."""
        ...

    def peek_at(self, offset: int, buffer: memoryview) -> int:
        """Do what `fill_at` does if all bytes are in memory; else start to load them, and return 0."""
        ...


class Cancellable(Protocol):
    """A background task that can be cancelled."""

    def cancel(self) -> None:
        """Cancel it without waiting. Idempotent."""
        ...


class Runner(Protocol):
    """Runs the blocking calls and tasks of a stream, and limits its memory: the scope of a pipeline."""

    @property
    def budget(self) -> MemoryBudget:
        """The memory budget of the pipeline's buffers."""
        ...

    @property
    def executor(self) -> Executor | None:
        """The threads that aiofiles reads files in; `None` for those of the event loop."""
        ...

    @property
    def open_files(self) -> OpenFiles:
        """The files that the pipeline has open."""
        ...

    def in_thread(self, call: Callable[[], T], /) -> Awaitable[T]:
        """Run a blocking call in a thread and return its result."""
        ...

    def spawn(self, run: Callable[[], Awaitable[None]], /) -> Cancellable:
        """Start a task that ends with the pipeline at the latest."""
        ...


class Stream(Protocol):
    """The bytes at a path in blocks, in order. A block is valid until the next one is requested. Use `aclosing`."""

    async def begin(self) -> Entry:
        """Make the first request and return the entry in its answer, so that no extra request is needed.

        Raises the error of the file, or leaves that to the first read.
        """
        ...

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Buffer:
        """Return the next bytes, as many as are available."""
        ...

    async def aclose(self) -> None:
        """Release the files and requests of the stream. Idempotent."""
        ...


class Store(Protocol):
    """A file system, an object store or a web server: bytes by path."""

    def list(self, pattern: str, after: str = "") -> Iterator[Entry]:
        """Yield the entries that match a glob pattern, sorted by path, from the first one after `after`; may block."""
        ...

    def head(self, path: str) -> Entry:
        """Return the entry at `path`; `FileNotFoundError` if there is none. May block."""
        ...

    def stream(
        self,
        path: str,
        block_bytes: int = BLOCK_BYTES,
        offset: int = 0,
        runner: Runner | None = None,
    ) -> Stream:
        """Return the bytes at `path` from `offset` on, in blocks of about `block_bytes`.

        Without a `runner`, blocking calls run in asyncio's executor, and nothing is requested ahead.
        """
        ...

    async def read(self, path: str) -> bytes:
        """Return the bytes at `path`."""
        ...
