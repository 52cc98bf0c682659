"""FileContents: the decompressed bytes of a file. Without a `compression_type` its first bytes show the compression."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Self

from asyncdata.errors import DataLossError
from asyncdata.executors.scope import Scope
from asyncdata.formats.compression import HEAD_BYTES, Decompressor, decompressor, not_supported, recognised
from asyncdata.runtime.retry_count import retries_counted
from asyncdata.storage import Buffer, Entry, Stream

__all__ = ("FileContents",)


class FileContents:
    """The bytes of a file in blocks, decompressed in a thread. A block is valid until the next one is requested."""

    def __init__(
        self,
        stream: Stream,
        name: str,
        compression: str | None,
        scope: Scope,
        most: int,
    ) -> None:
        """Decompress streams that take at most `most` bytes of memory, or 128 MiB."""
        self._stream = stream
        self._name = name
        self.scope = scope
        self._most = most
        self._expand: Decompressor | None = decompressor(compression, name, most) if compression else None
        self._head: Buffer = b""
        self._ended = False  # within the first bytes
        self._error: Exception | None = None

    @property
    def compressed(self) -> bool:
        return self._expand is not None

    @property
    def plain(self) -> Stream | None:
        """The stream of the file itself, if it is not compressed."""
        return self._stream if self._expand is None else None

    async def begin(self) -> Entry:
        with retries_counted(self.scope.meter.retried):
            return await self._stream.begin()

    def took(self, count: int) -> None:
        """Record that `count` bytes of the file were read directly."""
        self.scope.meter.read += count

    async def recognise(self, is_plain: Callable[[bytes], bool]) -> None:
        """Detect the compression from the first bytes, unless `is_plain` accepts them; later reads raise errors."""
        try:
            while len(self._head) < HEAD_BYTES and not self._ended:
                more = await self._more()
                self._ended = not len(more)
                reusable = not len(self._head) and len(more) >= HEAD_BYTES
                self._head = more if reusable else bytes(self._head) + more  # a copy, as the next block overwrites it
        except (OSError, DataLossError) as error:
            self._error = error
            return
        head = bytes(self._head[:HEAD_BYTES])
        if not head or is_plain(head):
            return
        if compression := recognised(head):
            self._expand = decompressor(compression, self._name, self._most)
        elif kind := not_supported(head):
            self._head = b""
            self._error = DataLossError(
                f"{self._name}: it is compressed ({kind}), which is not supported: decompress it, or compress it with "
                'gzip, bzip2 or zstd; compression_type="" reads the bytes as they are'
            )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Buffer:
        expand = self._expand
        if expand is None:
            return await self._next()
        if expand.waiting:
            return await self.scope.in_thread(partial(expand.feed, b""))
        try:
            data = await self._next()
        except StopAsyncIteration:
            expand.finish()
            raise
        return await self.scope.in_thread(partial(expand.feed, data))

    async def _next(self) -> Buffer:
        """Return the next bytes of the file before decompression."""
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
        with retries_counted(self.scope.meter.retried):
            data = await anext(self._stream, b"")
        self.took(len(data))
        return data

    async def aclose(self) -> None:
        """Close the stream, without waiting."""
        await self._stream.aclose()
