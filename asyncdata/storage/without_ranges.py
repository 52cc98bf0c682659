"""Files of web servers without range requests, such as Python's own: read from the beginning, by one request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self, TypeAlias

from asyncdata.errors import DataLossError
from asyncdata.storage.base import Entry
from asyncdata.storage.read_ahead import ReadAhead
from asyncdata.storage.retries import NoRangesError, explained

__all__ = ("RangesOrWhole",)

Whole: TypeAlias = Callable[[], Awaitable[tuple[Entry, AsyncIterator[Any]]]]
"""Makes a request for a whole file; returns what it is, and its bytes as they come."""


class RangesOrWhole:
    """The bytes of a file in blocks: in parts where the server gives these, else all of them from one request.

    That cannot be made again in the middle: where it breaks off is an error. What lies before the offset is dropped.
    """

    def __init__(self, parts: ReadAhead, whole: Whole, offset: int) -> None:
        self._parts = parts
        self._whole = whole
        self._left_out = offset
        self._entry = Entry("")
        self._chunks: AsyncIterator[Any] | None = None
        self._seen = 0

    async def begin(self) -> Entry:
        """Make the first request; return what its answer says about the file."""
        if self._chunks is not None:
            return self._entry
        try:
            return await self._parts.begin()
        except NoRangesError:
            self._entry, self._chunks = await self._whole()
            return self._entry

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> memoryview:
        await self.begin()
        if self._chunks is None:
            return await anext(self._parts)
        while True:
            chunk = await self._chunk(self._chunks)
            self._seen += len(chunk)
            if self._seen > self._left_out:
                return chunk[max(0, self._left_out - (self._seen - len(chunk))) :]

    async def _chunk(self, chunks: AsyncIterator[Any]) -> memoryview:
        """Return the next bytes of the whole file."""
        url = self._entry.path
        try:
            chunk = await anext(chunks, None)
        except Exception as error:  # noqa: BLE001  obstore's have no common base but this
            raise explained(error, url) from None
        if chunk is None:
            if self._seen < self._entry.size:
                raise DataLossError(f"{url}: the answer ended after {self._seen} of {self._entry.size} bytes")
            raise StopAsyncIteration
        return memoryview(chunk)

    async def aclose(self) -> None:
        """End the requests that are under way, without waiting."""
        self._chunks = None
        await self._parts.aclose()
