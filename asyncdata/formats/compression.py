"""Streams compressed with GZIP or ZLIB, in and out, without I/O; named as TFRecord's `compression_type` names them."""

from __future__ import annotations

import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from asyncdata.errors import DataLossError, PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ("Compressor", "Decompressor", "compressor", "decompressor")

Buffer: TypeAlias = bytes | bytearray | memoryview

WINDOW_BITS: Final = {"GZIP": zlib.MAX_WBITS | 16, "ZLIB": zlib.MAX_WBITS}
"""What zlib calls each container."""

PIECE_BYTES: Final = 16 << 20
"""At most so much is decompressed at once: a block of a few megabytes may hold a thousand times as much."""


class Decompressor(Protocol):
    """Compressed bytes in, bytes out."""

    @property
    def waiting(self) -> bool:
        """Whether `feed(b"")` may return more of what was fed before."""
        ...

    def feed(self, data: Buffer) -> Buffer:
        """Return what the stream's next bytes decompress to, or a part of it; the rest is `waiting`.

        DataLossError when the stream is corrupt, but only after all that comes before was returned.
        """
        ...

    def finish(self) -> None:
        """Say that no more data will come: DataLossError when the stream is corrupt or ends too early."""
        ...


class Compressor(Protocol):
    """Bytes in, compressed bytes out."""

    def feed(self, data: Buffer) -> Buffer:
        """Compress some more bytes; return what is ready of the compressed stream, often nothing."""
        ...

    def flush(self) -> bytes:
        """Return what is needed to decompress everything fed so far."""
        ...

    def finish(self) -> bytes:
        """Return the end of the stream."""
        ...


def decompressor(compression_type: str | None, name: str = "compressed data") -> Decompressor:
    """Return a decompressor for "GZIP" or "ZLIB", or for None and "" one that changes nothing.

    `name` is the file's, for messages.
    """
    bits = window_bits(compression_type)
    return PlainReader() if bits is None else ZlibReader(bits, name)


def compressor(compression_type: str | None) -> Compressor:
    """Return a compressor for "GZIP" or "ZLIB", or for None and "" one that changes nothing."""
    bits = window_bits(compression_type)
    return PlainWriter() if bits is None else ZlibWriter(bits)


def window_bits(compression_type: str | None) -> int | None:
    """Return what zlib calls `compression_type`, None for no compression."""
    if not compression_type:
        return None
    if compression_type not in tuple(WINDOW_BITS):  # it may have no hash
        raise PlanError(f'compression_type must be None, "", "GZIP" or "ZLIB", got {compression_type!r}')
    return WINDOW_BITS[compression_type]


class PlainReader:
    """The decompressor of what is not compressed."""

    waiting = False
    """All is returned at once."""

    def feed(self, data: Buffer) -> Buffer:
        """Return `data` itself."""
        return data

    def finish(self) -> None:
        """Accept any end."""


class ZlibReader:
    """Decompresses one stream after the other, as gzip files may have several members."""

    def __init__(self, bits: int, name: str) -> None:
        self._bits = bits
        self._name = name
        self._stream = zlib.decompressobj(bits)
        self._left: Buffer = b""  # what was fed and is not decompressed yet
        self._full = False  # the stream may have more to give without being fed
        self._begun = False
        self._error: DataLossError | None = None

    @property
    def waiting(self) -> bool:
        """Whether `feed(b"")` may return more."""
        return self._error is None and (self._full or len(self._left) > 0)

    def feed(self, data: Buffer) -> bytes:
        """Return what `data` decompresses to, up to an error; the call after that raises it."""
        if self._error is not None:
            raise self._error
        self._begun = self._begun or len(data) > 0
        self._left = bytes(self._left) + data if len(self._left) else data
        return b"".join(self._members())

    def finish(self) -> None:
        """Raise DataLossError for an error that was kept, or when the last stream has not come to its end."""
        if self._error is not None:
            raise self._error
        if self._begun and not self._stream.eof:
            raise DataLossError(f"{self._name}: the compressed stream is cut short")

    def _members(self) -> Iterator[bytes]:
        """Yield what is waiting, at most `PIECE_BYTES`."""
        room = PIECE_BYTES
        while (len(self._left) or self._full) and self._error is None and room:
            if self._stream.eof:
                self._left = bytes(self._left).lstrip(b"\0")  # padding may follow a member
                self._stream = zlib.decompressobj(self._bits) if self._left else self._stream
                continue
            found = self._decompress(self._left, room)
            room -= len(found)
            self._full = not room and not self._stream.eof
            self._left = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            yield found

    def _decompress(self, data: Buffer, most: int) -> bytes:
        """Return what `data` decompresses to, at most so much, before an error if there is one, which is kept."""
        before = self._stream.copy()
        try:
            return self._stream.decompress(data, most)
        except zlib.error as error:
            self._error = DataLossError(f"{self._name}: the compressed stream is corrupt: {error}")
            return b"".join(before_error(before.decompress, memoryview(data)))


def before_error(decompress: Callable[[memoryview], bytes], data: memoryview) -> Iterator[bytes]:
    """Yield what `data` decompresses to, byte by byte, until an error."""
    with suppress(zlib.error):
        for i in range(len(data)):
            yield decompress(data[i : i + 1])


class PlainWriter:
    """The compressor that changes nothing."""

    def feed(self, data: Buffer) -> Buffer:
        """Return `data` itself."""
        return data

    def flush(self) -> bytes:
        """Return nothing: nothing waits."""
        return b""

    def finish(self) -> bytes:
        """Return nothing: there is no end mark."""
        return b""


class ZlibWriter:
    """Compresses one stream."""

    def __init__(self, bits: int) -> None:
        self._stream = zlib.compressobj(wbits=bits)

    def feed(self, data: Buffer) -> bytes:
        """Return what is ready of the compressed stream."""
        return self._stream.compress(data)

    def flush(self) -> bytes:
        """Return the rest of what was fed."""
        return self._stream.flush(zlib.Z_SYNC_FLUSH)

    def finish(self) -> bytes:
        """Return the rest of what was fed, and the end of the stream."""
        return self._stream.flush(zlib.Z_FINISH)
