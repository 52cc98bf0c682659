"""The bytes of a file without its compression, which its first bytes tell where nobody says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Self

from asyncdata.errors import DataLossError
from asyncdata.executors.scope import Scope
from asyncdata.formats.compression import HEAD_BYTES, Decompressor, decompressor, recognised
from asyncdata.runtime.retry_count import retries_counted
from asyncdata.storage import Buffer, Entry, Stream

__all__ = ("FileContents",)


class FileContents:
    """The bytes of a file in blocks, each valid until the next is asked for; they are decompressed in a thread."""

    def __init__(
        self,
        stream: Stream,
        name: str,
        compression: str | None,
        scope: Scope,
    ) -> None:
        self._stream = stream
        self._name = name
        self._in_thread = scope.in_thread
        self._meter = scope.meter
        self._expand: Decompressor | None = decompressor(compression, name) if compression else None
        self._head: Buffer = b""
        self._ended = False  # within the first bytes
        self._error: Exception | None = None

    @property
    def compressed(self) -> bool:
        """Whether the file is compressed."""
        return self._expand is not None

    @property
    def plain(self) -> Stream | None:
        """The stream whose bytes these are, if they are not compressed."""
        return self._stream if self._expand is None else None

    async def begin(self) -> Entry:
        """Return what is to be read."""
        with retries_counted(self._meter.retried):
            return await self._stream.begin()

    def took(self, count: int) -> None:
        """Take note that so many bytes of the file were read."""
        self._meter.read += count

    async def recognise(self, is_plain: Callable[[bytes], bool]) -> None:
        """Look at the first bytes, which are `is_plain` where they can be no others; what is wrong comes later."""
        try:
            while len(self._head) < HEAD_BYTES and not self._ended:
                more = await self._more()
                self._ended = not len(more)
                whole = not len(self._head) and len(more) >= HEAD_BYTES
                self._head = more if whole else bytes(self._head) + more  # a copy, as the next block overwrites it
        except (OSError, DataLossError) as error:
            self._error = error
            return
        head = bytes(self._head[:HEAD_BYTES])
        if head and not is_plain(head) and (compression := recognised(head)):
            self._expand = decompressor(compression, self._name)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Buffer:
        expand = self._expand
        if expand is None:
            return await self._next()
        if expand.waiting:
            return await self._in_thread(partial(expand.feed, b""))
        try:
            data = await self._next()
        except StopAsyncIteration:
            expand.finish()
            raise
        return await self._in_thread(partial(expand.feed, data))

    async def _next(self) -> Buffer:
        """Return the next bytes of the file as it is."""
        if len(head := self._head):
            self._head = b""
            return head
        if self._error is not None:
            raise self._error
        if self._ended:
            raise StopAsyncIteration
        if not len(data := await self._more()):
            raise StopAsyncIteration
        return data

    async def _more(self) -> Buffer:
        """Return the next bytes of the stream; none at its end."""
        with retries_counted(self._meter.retried):
            data = await anext(self._stream, b"")
        self.took(len(data))
        return data

    async def aclose(self) -> None:
        """Let go of what is held open, without waiting."""
        await self._stream.aclose()
