"""Store: what a source may ask of a place where bytes lie."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, Self, TypeAlias, TypeVar

__all__ = ("BLOCK_BYTES", "Buffer", "InThread", "Store", "Stream")

T = TypeVar("T")

Buffer: TypeAlias = bytes | bytearray | memoryview

BLOCK_BYTES: Final = 2 << 20
"""How much a stream reads at once: with less, calls cost; with more, blocks fall out of the processor's cache."""


class InThread(Protocol):
    """Runs a function in a thread and gives its result, as `asyncio.to_thread` does."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Return what `work` returns, once it has."""
        ...


class Stream(Protocol):
    """The bytes at a path in blocks, in order, each valid until the next is asked for; close it with `aclosing`."""

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
    """A place where bytes lie at paths: a file system, later an object store."""

    def list(self, pattern: str) -> list[str]:
        """Return the paths that match a glob pattern, sorted."""
        ...

    def size(self, path: str) -> int:
        """Return how many bytes lie at `path`."""
        ...

    def stream(
        self, path: str, block_bytes: int = BLOCK_BYTES, offset: int = 0, in_thread: InThread | None = None
    ) -> Stream:
        """Return the bytes at `path` from `offset` on, in blocks of about `block_bytes`."""
        ...

    async def read(self, path: str) -> bytes:
        """Return all bytes at `path`."""
        ...

    async def read_range(self, path: str, start: int, length: int) -> bytes:
        """Return `length` bytes from `start` on, all of which must be there."""
        ...
