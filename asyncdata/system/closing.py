"""Closable: `with` and `async with` for iterators and channels; a file is closed by its source (`parsed_files`)."""

from __future__ import annotations

from typing import Self

__all__ = ("Closable",)


class Closable:
    """Calls `close` or `aclose` at the end of a `with` or `async with` block, however it is left."""

    __slots__ = ()

    def close(self) -> None:
        """Stop everything that runs, and wait for it."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Stop everything that runs, without blocking the event loop."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
