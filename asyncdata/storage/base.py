"""Store: what a source may ask of a place where bytes lie."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from asyncdata.runtime.memory_budget import MemoryBudget

__all__ = ("BLOCK_BYTES", "AnyPart", "Buffer", "Ended", "Entry", "Runner", "Status", "Store", "Stream")

T = TypeVar("T")

Buffer: TypeAlias = bytes | bytearray | memoryview

BLOCK_BYTES: Final = 2 << 20
"""How much a stream reads at once: with less, calls cost; with more, blocks fall out of the processor's cache."""


class Entry(NamedTuple):
    """What is at a path: how many bytes, -1 where nobody says, and which version of it.

    A version is an entity tag, a generation or a date; local files have none, as they may be moved.
    """

    path: str
    size: int = -1
    version: str = ""


class Status(NamedTuple):
    """What shows whether a file is still what it was: its size, and when it was changed, in nanoseconds."""

    size: int
    changed_ns: int


class AnyPart(Protocol):
    """A file of which parts are read, in the caller's thread; close it by leaving its `with`."""

    def __enter__(self) -> Self:
        """Return the file itself."""
        ...

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        ...

    def status(self) -> Status:
        """Return what the file is now."""
        ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on, fewer at the end."""
        ...

    def fill_at(self, offset: int, buffer: memoryview) -> int:
        """Fill `buffer` from `offset` on; return how many bytes there were."""
        ...

    def peek_at(self, offset: int, buffer: memoryview) -> int:
        """Do what `fill_at` does if all is at hand; else have it got ready, and return 0."""
        ...


class Ended(Protocol):
    """What runs in the background, and can be told to end."""

    def cancel(self) -> None:
        """Have it end soon; more than once does nothing."""
        ...


class Runner(Protocol):
    """Who runs what a stream does next to its reader, and says how much memory that may take: a pipeline's scope."""

    @property
    def budget(self) -> MemoryBudget:
        """How many bytes the buffers of the pipeline may hold."""
        ...

    def in_thread(self, call: Callable[[], T], /) -> Awaitable[T]:
        """Return what a blocking call returns, once it has, in a thread."""
        ...

    def spawn(self, run: Callable[[], Awaitable[None]], /) -> Ended:
        """Start a task that ends with the pipeline, if not before."""
        ...


class Stream(Protocol):
    """The bytes at a path in blocks, in order, each valid until the next is asked for; close it with `aclosing`."""

    async def begin(self) -> Entry:
        """Return what is to be read, as the answer to the first request says: nothing is asked for twice.

        Raises what is wrong with it, or leaves that to the first read.
        """
        ...

    def __aiter__(self) -> Self:
        """Return the stream itself."""
        ...

    async def __anext__(self) -> Buffer:
        """Return the next bytes, as many as are at hand."""
        ...

    async def aclose(self) -> None:
        """Let go of what the stream holds open; more than once does nothing."""
        ...


class Store(Protocol):
    """A place where bytes lie at paths: a file system, an object store, a web server."""

    def list(self, pattern: str, after: str = "") -> Iterator[Entry]:
        """Yield what matches a glob pattern behind a path, sorted by path; may block."""
        ...

    def head(self, path: str) -> Entry:
        """Return what lies at `path`; `FileNotFoundError` if there is nothing. May block."""
        ...

    def stream(
        self,
        path: str,
        block_bytes: int = BLOCK_BYTES,
        offset: int = 0,
        runner: Runner | None = None,
    ) -> Stream:
        """Return the bytes at `path` from `offset` on, in blocks of about `block_bytes`.

        Without a `runner` what blocks runs in asyncio's threads, and nothing is requested ahead.
        """
        ...

    async def read(self, path: str) -> bytes:
        """Return the bytes at `path`."""
        ...
