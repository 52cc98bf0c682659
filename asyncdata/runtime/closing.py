"""What is closed when a `with` or `async with` block over it ends."""

from __future__ import annotations

from types import TracebackType
from typing import Self

__all__ = ("Closable",)


class Closable:
    """Has `close` and `aclose` called at the end of a block, however that is left."""

    __slots__ = ()

    def close(self) -> None:
        """End what was begun, and wait until it has ended."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """End what was begun, without blocking the event loop."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
