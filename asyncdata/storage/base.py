"""Store: what a source may ask of a place where bytes lie."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final, Protocol, TypeAlias, TypeVar

__all__ = ("BLOCK_BYTES", "Buffer", "InThread", "Store")

T = TypeVar("T")

Buffer: TypeAlias = bytes | bytearray | memoryview

BLOCK_BYTES: Final = 1 << 20
"""How much a stream reads at once: with less, calls cost; with more, blocks fall out of the processor's cache."""


class InThread(Protocol):
    """Runs a function in a thread and gives its result, as `asyncio.to_thread` does."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Return what `work` returns, once it has."""
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
    ) -> AsyncGenerator[Buffer, None]:
        """Iterate over the bytes at `path` from `offset` on, in blocks.

        A block is valid until the next is asked for: its memory may be used again.
        """
        ...

    async def read(self, path: str) -> bytes:
        """Return all bytes at `path`."""
        ...

    async def read_range(self, path: str, start: int, length: int) -> bytes:
        """Return `length` bytes from `start` on, all of which must be there."""
        ...
