"""Files on web servers without range requests, such as Python's own: one request reads them from the beginning."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

from asyncdata.errors import DataLossError
from asyncdata.storage.base import Entry, Stream
from asyncdata.storage.read_ahead import ReadAhead
from asyncdata.storage.retries import NoRangesError, explained

__all__ = ("RangesOrDownload", "close")

Download: TypeAlias = Callable[[], Awaitable[tuple[Entry, AsyncIterator[Any]]]]
"""Requests a complete file; returns its entry, and its bytes as they arrive."""


class RangesOrDownload(Stream):
    """The bytes of a file in blocks: in parts if the server supports ranges, else from one request.

    That request cannot be resumed, so it is an error if it breaks off. Bytes before the offset are dropped.
    """

    def __init__(self, parts: ReadAhead, download: Download, offset: int) -> None:
        self._parts = parts
        self._download = download
        self._offset = offset
        self._entry = Entry("")
        self._chunks: AsyncIterator[Any] | None = None
        self._seen = 0

    async def begin(self) -> Entry:
        if self._chunks is not None:
            return self._entry
        try:
            return await self._parts.begin()
        except NoRangesError:
            self._entry, self._chunks = await self._download()
            return self._entry

    async def __anext__(self) -> memoryview:
        await self.begin()
        if self._chunks is None:
            return await anext(self._parts)
        while True:
            chunk = await self._chunk(self._chunks)
            self._seen += len(chunk)
            if self._seen > self._offset:
                return chunk[max(0, self._offset - (self._seen - len(chunk))) :]

    async def _chunk(self, chunks: AsyncIterator[Any]) -> memoryview:
        """Return the next bytes of the complete file."""
        url = self._entry.path
        try:
            chunk = await anext(chunks, None)
        except Exception as error:  # noqa: BLE001  obstore's errors have no other common base
            raise explained(error, url) from None
        if chunk is None:
            if self._seen < self._entry.size:
                raise DataLossError(f"{url}: the answer ended after {self._seen} of {self._entry.size} bytes")
            raise StopAsyncIteration
        return memoryview(chunk)

    async def aclose(self) -> None:
        chunks, self._chunks = self._chunks, None
        close(chunks)
        await self._parts.aclose()


def close(chunks: Any) -> None:
    """End a request whose bytes are read no further, if that is to be done: obstore's end by themselves."""
    if end := getattr(chunks, "close", None):
        end()
